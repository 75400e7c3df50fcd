"""
The traits of a model's config, collected in one pass over its JSON, and the releases that can have
written a file, as the smallest set that the traits prove.

``keras_version`` does not distinguish TF 2.3 from 2.4, and ``to_json`` of Keras 3 does not write
it. Keys and classes that a release was the first or the last to write narrow the set further
(``data/writer_marks.json``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.model import inbound_nodes
from policytool.model.calls import TENSOR
from policytool.releases import data, generations, keras_objects, known_arguments
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import is_operation, layer_facts
from policytool.releases.policy_formats import KERAS2_CLASSES
from policytool.releases.releases import (
    KERAS2,
    KERAS3,
    RELEASES,
    Release,
    is_known,
    newest_known,
    releases_in,
)
from policytool.releases.symbols import is_harmful
from policytool.support.text.jsontext import text_at

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from policytool.formats.document import Writer
    from policytool.releases.keras_operations import OperationUse
    from policytool.support.text.jsontext import Json

_HALVES: Final = ("float16", "mixed_float16")
_NORMALIZATION: Final = "BatchNormalization"
_INPUT: Final = "InputLayer"
_LAMBDA: Final = "Lambda"
_CODE: Final = frozenset({_LAMBDA, keras_objects.CODE})
_FUNCTIONS: Final = ("fn", "partitioner")
"""Suffixes of the arguments with a function, which is a list if it is bytecode."""

NEEDED_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "graph": ("name", "layers", "input_layers", "output_layers"),
        "chain": ("name", "layers"),
        "layer": ("class_name", "config"),
        "connected layer": ("name", "inbound_nodes"),
        "call": ("args", "kwargs"),
        "argument": ("class_name", "config"),
        "tensor": ("shape", "dtype", "keras_history"),
        "policy": ("class_name", "config"),
        "policy config": ("name",),
    }
)
"""
The keys without which a model does not load: each was removed from a model of TF 2.4, TF 2.15,
Keras 3.0 and 3.15, and loaded in TF 2.4, 2.9 and 2.15, tf_keras 2.21, and Keras 3.0, 3.6 and 3.15.
TF 2.15 and tf_keras replace a missing config by the defaults of the class, if it has any.
"""

_QUANTIZED: Final = "_from_"
"""The text between the mode and the source in the name of a quantized policy."""


@dataclass
class ConfigTraits:
    """
    The traits of a config. :func:`of` fills them; this module and
    :mod:`policytool.model.compatibility` read them.
    """

    class_names: set[str] = field(default_factory=set)
    keys: dict[str, set[str]] = field(default_factory=dict)
    """By class name, the config keys that at least one object of the class has."""

    common_keys: dict[str, set[str]] = field(default_factory=dict)
    """By class name, the config keys that all objects of the class have."""

    policy_classes: set[str] = field(default_factory=set)
    """
    The formats of dtypes: the class names of dicts, ``name`` for a plain float dtype, and
    ``mixed-name`` and ``quantized-name`` for plain policy names.
    """

    policy_keys: set[str] = field(default_factory=set)
    """
    ``Class.key`` for each config key of a policy dict, and ``Class.module`` if such a dict has a
    module.
    """

    root_keys: frozenset[str] = frozenset()
    root_class: str | None = None
    graph_network: bool = False
    """Whether the root of a SavedModel is marked as functional, independent of its class."""

    operation_uses: set[OperationUse] = field(default_factory=set)
    """Calls of Keras 3 graph entries that are operations, not layers."""

    operation_axes: set[tuple[str, str]] = field(default_factory=set)
    """Class name and axis, as JSON, of each operation that has an axis."""

    other_channels: bool = False
    """Whether a convolution has another number of input channels than its kernel."""

    exceeded_axes: bool = False
    """Whether an operation has an axis that its tensor does not have."""

    operation_functions: set[tuple[str, str]] = field(default_factory=set)
    """Class name of each operation with a function as an argument, and the function's name."""

    bare_nested: bool = False
    """Whether a layer in the config of another layer is serialised without its ``module``."""

    activation_layers: bool = False
    """Whether an activation is a layer."""

    nested_models: bool = False
    empty_models: bool = False
    """Whether a nested Sequential has no layers."""

    nested_graphs: bool = False
    """Whether a nested model is functional, or is nested in a functional model."""

    nested_in_graphs: bool = False
    """Whether a model is nested in a functional model."""

    missed_calls: bool = False
    """Whether Keras 3 looks up a call of a nested model that the config does not have."""

    given_states: bool = False
    """Whether a recurrent layer of a functional model receives states in addition to its input."""

    constant_states: bool = False
    """
    Whether a recurrent layer of a functional model receives numbers as its states or mask, in a
    Keras 2 config.
    """

    fails_on_list: bool = False
    """Whether a layer of a Sequential fails on the output of a functional model, a list."""

    fails_on_list_late: bool = False
    """Whether this is so if the Sequential is built, as Keras 3.5 and later do."""

    distributed_models: set[str] = field(default_factory=set)
    """The classes of models that a TimeDistributed wraps."""

    distributed_lists: bool = False
    """Whether a TimeDistributed wraps a model with a list of outputs."""

    summed_modes: set[str] = field(default_factory=set)
    """The quantization modes of layers with LoRA whose kernel another layer normalizes."""

    normalized_modes: set[str] = field(default_factory=set)
    """The quantization modes of layers in a layer that normalises their kernels."""

    weighted_counts: bool = False
    """Whether a CategoryEncoding receives the weights of its counts as a keyword argument."""

    lone_ops: bool = False
    """Whether an op layer of TF 1.15 to 2.3 is called with a single tensor."""

    mask_lists: bool = False
    """Whether a layer is called with a list of masks."""

    missing_keys: set[tuple[str, str]] = field(default_factory=set)
    """
    Keys that model classes of Keras need and the config lacks, each after what lacks it, as in
    :data:`NEEDED_KEYS`.
    """

    listed_layers: bool = False
    """Whether the config of a Sequential is a list of layers, as in Keras up to 2.2.2."""

    shapeless: bool = False
    """Whether the config of a Sequential does not contain the shape of its input."""

    shape_in_layer: bool = False
    """
    Whether the root is a Sequential without an input layer whose first layer, or the first layer of
    a model in its place, declares the input shape, as Keras up to TF 2.1 writes it.
    """

    shaped: tuple[str, ...] = ()
    """
    Class names of the layers of a Sequential whose first layer declares the input shape, and is
    neither an input layer nor a model.
    """

    dtyped_initializers: set[str] = field(default_factory=set)
    """Class names of initialisers with a dtype."""

    slashed: bool = False
    """Whether the name of a layer contains a slash."""

    dilated_strides: set[str] = field(default_factory=set)
    """Class names of layers with strides and a dilation rate above 1."""

    listed_axes: set[str] = field(default_factory=set)
    """Class names of layers with a list as their axis."""

    wrapped_axis: bool = False
    """
    Whether a BatchNormalization has a list as its axis in the config of another layer, or with a
    module, as releases write it in models that are nested twice.
    """

    float_hashes: bool = False
    """Whether a Hashing layer returns bucket numbers but has a dtype that is not an integer."""

    policy_hashes: bool = False
    """Whether a Hashing layer returns bucket numbers and has a policy in a dict."""

    graph_halves: set[str] = field(default_factory=set)
    """
    The 16-bit dtypes that operations and calls have as an argument, such as ``ops.cast`` and
    ``tf.cast``. Those of the tensors in a call do not count: they stay as they are if a policy
    changes, and no release reads them.
    """

    half_ops: bool = False
    """Whether the op of an op layer of TF 1.15 to 2.3 has the type float16."""

    refused_numbers: bool = False
    """See :func:`policytool.model.inbound_nodes.refuses_number`."""

    mismatched_constants: set[str] = field(default_factory=set)
    """The dtypes of tensors that op layers combine with numbers of another dtype (``1.0 - x``)."""

    early_constants: set[str] = field(default_factory=set)
    """The same up to TF 2.13, in which the results of attention layers are in float32."""

    mixed_attentions: set[str] = field(default_factory=set)
    """See :func:`policytool.model.inbound_nodes.mixed_attentions`."""

    early_attentions: set[str] = field(default_factory=set)
    """The same up to TF 2.13, in which the results of attention layers are in float32."""

    layer_policies: set[tuple[str, str]] = field(default_factory=set)
    """Class name and policy name of each layer with a stored policy."""

    drawn: set[tuple[str, str]] = field(default_factory=set)
    """Class name of each initialiser, and the policy of the layer whose variables it creates."""

    fused: set[tuple[str, str]] = field(default_factory=set)
    """
    Class name and policy name of each LSTM and GRU with the arguments for which Keras 2 can use a
    kernel of cuDNN.
    """

    stateful_policies: set[str] = field(default_factory=set)
    """The policies of recurrent layers that keep their states between batches."""

    half_policies: bool = False
    """Whether a dtype is a policy that computes in float16, as a plain name or in a dict."""

    references: set[tuple[str, str]] = field(default_factory=set)
    """Module and name of each class and function, including what op layers call."""

    contains_code: bool = False
    """
    Whether the file may contain code that runs when it is loaded: the search for code
    (:mod:`policytool.model.hazards`) is slow.
    """

    code_arguments: set[str] = field(default_factory=set)
    """The arguments of layers, except the function of a Lambda, that are Python bytecode."""

    input_policies: set[str] = field(default_factory=set)
    """The formats of policies in place of the dtype of an InputLayer: ``dict``, or ``name``."""

    unshaped_input: bool = False
    """Whether the config of an InputLayer has no shape."""

    typed_inputs: set[str] = field(default_factory=set)
    """The class names of types of inputs that have another argument that is not null."""

    places: set[tuple[str | None, str]] = field(default_factory=set)
    """
    Module and class of each layer that has a module, which may be null, except layers with a
    registered name, the root, and :attr:`wrapped_places`.
    """

    wrapped_places: set[tuple[str | None, str]] = field(default_factory=set)
    """The same of layers in wrappers whose layer Keras 2 finds without the module."""

    null_parts: bool = False
    """Whether the module of an initializer, regularizer or constraint is null."""

    function_places: set[tuple[str | None, str]] = field(default_factory=set)
    """Module and name of each activation in a dict; an empty module if the dict has none."""

    root_module: str | None = None

    array_arguments: bool = False
    """Whether an argument of a layer is a NumPy array in the format of archives."""

    projected: bool = False
    """Whether an attention layer has an output shape that differs from its query."""

    weighted: bool = False
    """Whether the config of a layer that computes tf-idf has weights."""

    unweighted: bool = False
    """Whether the config of a layer that computes tf-idf has no weights."""

    padded: bool = False
    """Whether such a layer pads the weights of fewer words than its maximum number."""

    unlimited: bool = False
    """Whether a layer pads its words to a maximum number that its config does not have."""

    tables: bool = False
    """Whether the vocabulary of a lookup is a table, because its config has none."""

    uncounted: bool = False
    """Whether a layer counts words, and its config has no vocabulary."""

    unsized: bool = False
    """Whether this is so, and the config does not have the number of words either."""

    bare_code: bool = False
    """Whether an activation is Python bytecode without its class, as releases write it."""

    unknown_policies: set[str] = field(default_factory=set)
    """Policy classes and quantization modes that no known release has."""

    quantization_modes: set[str] = field(default_factory=set)
    """The quantization modes of policies that known releases have."""

    later_calls: bool = False
    """Whether an input of a call is the output of a layer later in the list."""

    missing_calls: bool = False
    """Whether a call uses the result of a call that a functional model does not have."""

    flat_distribution: bool = False
    """Whether a TimeDistributed in a layer is built for an input without time."""

    stacked_states: bool = False
    """Whether a StackedRNNCells in another has a cell with several states, as LSTM cells have."""

    returned_states: bool = False
    """Whether an RNN returns the states of stacked cells, one of which has several."""

    outer_calls: bool = False
    """Whether a call or an output uses the result of a layer that its model does not have."""

    causal_calls: bool = False
    """Whether a call has the argument ``use_causal_mask``."""

    mixed_groups: bool = False
    """Whether a convolution has groups and a mixed policy."""

    scored: set[str] = field(default_factory=set)
    """The classes of attention layers whose scores are used."""

    attends_to_mask: bool = False
    """Whether the query of an attention layer has a mask."""

    masked_attentions: set[str] = field(default_factory=set)
    """See :func:`policytool.model.inbound_nodes.masked_attention_dtypes`."""

    may_attend_to_mask: bool = False
    """Whether it is unknown if a mask reaches the query of an attention layer."""

    repeated_names: bool = False
    """Whether Keras 3 gives the name of a layer to an operation of a functional model."""

    clashing_masks: bool = False
    """Whether Keras 3.6 joins masks in an operation that has the name of a layer."""

    late_outputs: bool = False
    """Whether an output is a call of a functional model that is counted from 1."""

    stuck: bool = False
    """Whether a functional model has a call that cannot be built."""

    depth: int = 0
    """
    The maximum depth in calls of a walk through the graph of a functional model; the maximum if
    there are several models.
    """

    flat_inputs: bool = False
    """
    Whether a functional model stores its single input without a list, but its outputs in a list.
    """

    nested_tensors: bool = False
    """Whether the list or dict of a functional model's inputs or outputs contains another."""

    flat_outputs: bool = False
    """
    Whether a functional model stores its single output as ``["x", 0, 0]`` instead of a list of
    references.
    """

    @property
    def harmful_references(self) -> tuple[str, ...]:
        """The classes and functions with access to files, the network or Python, in order."""
        return tuple(
            f"{module}.{name}"
            for module, name in sorted(self.references)
            if is_harmful(module, name)
        )

    @property
    def operations(self) -> frozenset[str]:
        """Class names of Keras 3 graph entries that are operations, not layers."""
        return frozenset(use.class_name for use in self.operation_uses)


_SIXTEEN_BITS: Final = tuple(HALVES)  # not a set, because the value may be a list or an object
_OF_OBJECTS: Final = frozenset({"name", "batch_shape", "class_name", "keras_history"})
"""Keys of configs of objects and tensors, which the arguments of calls do not have."""


def of(config: Json, training: Json = None, objects: Iterable[Json] = ()) -> ConfigTraits:
    """
    Return the traits of a model's config and of its training configuration.

    :param objects: the metadata of a SavedModel's objects. Only their policies and their code are
        read, because the layers of a subclassed model are stored nowhere else
    """
    traits = ConfigTraits()
    for metadata in objects:
        if isinstance(metadata, dict) and "dtype" in metadata:
            _note_dtype(metadata["dtype"], traits)
        for value in keras_objects.dicts(metadata):
            _note_code(value, traits)
    if isinstance(config, dict):
        traits.root_keys = frozenset(config)
        traits.root_class = str(keras_objects.class_of(config))
        traits.root_module = text_at(config, "module")
        traits.graph_network = config.get("is_graph_network") is True
        for is_always_built in inbound_nodes.fails_on_list(config):
            traits.fails_on_list |= is_always_built
            traits.fails_on_list_late = True
        traits.shape_in_layer = _declares_shape(config)
        traits.shaped = _class_names(config) if traits.shape_in_layer else ()
    for value in keras_objects.dicts(config, training):
        _note(value, traits)
        _note_code(value, traits)
    return traits


def _note_code(value: dict[str, Json], traits: ConfigTraits) -> None:
    """Record whether a JSON object may contain code, and the class or function that it names."""
    for key, item in value.items():
        if (type(item) is list and key.endswith(_FUNCTIONS)) or (
            item == "lambda" and key.endswith("_type")
        ):
            traits.contains_code = True
    class_name = keras_objects.class_of(value)
    if class_name is None:
        return
    config, module = value.get("config"), value.get("module")
    facts = layer_facts(class_name)
    traits.contains_code |= class_name in _CODE or bool(facts.opens)
    if isinstance(module, str):
        is_function = class_name == keras_objects.FUNCTION and isinstance(config, str)
        traits.references.add((module, str(config) if is_function else class_name))
    if facts.wrapped_op is not None and isinstance(config, dict):
        node = config.get("node_def")
        traits.contains_code |= facts.wrapped_op == "class_method"
        traits.references.add(("tensorflow", str(config.get("function"))))
        traits.references.add(
            ("tensorflow.raw_ops", str(node.get("op") if isinstance(node, dict) else None))
        )


def _missing_keys(class_name: str | None, value: Mapping[str, Json]) -> Iterable[tuple[str, str]]:
    """Return the keys that a model or a tensor of Keras 3 needs and lacks, with what lacks them."""
    config = value.get("config")
    if class_name == TENSOR:
        return _missing_in_tensor(value)
    if not isinstance(config, dict):
        return ()
    if class_name is None:
        return _missing_in_tensor(value) if "keras_history" in config else ()
    network = layer_facts(class_name).network
    return _missing_in_model(network, config) if network is not None else ()


def _missing_in_model(network: str, config: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield the keys that a model needs and lacks, with what lacks them."""
    yield from _absent(network, config)
    layers = config.get("layers")
    for entry in layers if isinstance(layers, list) else ():
        if isinstance(entry, dict):
            yield from _absent("layer", entry)
            if network == "graph":
                yield from _absent("connected layer", entry)
            calls = entry.get("inbound_nodes")
            for call in calls if isinstance(calls, list) else ():
                # Keras 2 writes lists, or a dict of the inputs by their names
                if isinstance(call, dict) and ("args" in call or "kwargs" in call):
                    yield from _absent("call", call)


def _missing_in_tensor(value: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield the keys that a tensor of Keras 3 needs and lacks."""
    yield from _absent("argument", value)
    config = value.get("config")
    if isinstance(config, dict):
        yield from _absent("tensor", config)


def _missing_in_policy(policy: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield the keys that a policy needs and lacks."""
    yield from _absent("policy", policy)
    config = policy.get("config")
    if keras_objects.class_of(policy) in KERAS2_CLASSES and isinstance(config, dict):
        yield from _absent("policy config", config)


def _absent(what: str, value: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    return ((what, key) for key in NEEDED_KEYS[what] if key not in value)


def _note(value: dict[str, Json], traits: ConfigTraits) -> None:
    """Record the traits of a JSON object in a config."""
    class_name, config = keras_objects.class_of(value), value.get("config")
    if class_name is not None:
        traits.class_names.add(class_name)
        if isinstance(config, dict):
            _note_config(class_name, config, traits)
            if "module" in value and class_name == _NORMALIZATION:
                traits.wrapped_axis |= isinstance(config.get("axis"), list)
            if "inbound_nodes" in value and "trainable" not in config and is_operation(value):
                _note_operation(value, config, traits)
        elif class_name == "Sequential" and isinstance(config, list):
            traits.listed_layers = True
    traits.missing_keys.update(_missing_keys(class_name, value))
    if value.get("dtype") in _SIXTEEN_BITS and value.keys().isdisjoint(_OF_OBJECTS):
        traits.graph_halves.add(str(value["dtype"]))
    if "dtype" in value and "layers" not in value:  # no release reads the policy of a Sequential
        _note_dtype(value["dtype"], traits)
        if isinstance(dtype := value["dtype"], dict):
            traits.missing_keys.update(_missing_in_policy(dtype))


def _note_operation(entry: dict[str, Json], config: dict[str, Json], traits: ConfigTraits) -> None:
    from policytool.releases import keras_operations  # only for graphs with operations

    class_name = str(keras_objects.class_of(entry))
    if config.get("dtype") in _SIXTEEN_BITS:
        traits.graph_halves.add(str(config["dtype"]))
    traits.operation_uses.update(keras_operations.uses(entry))
    traits.exceeded_axes |= keras_operations.exceeds_axes(entry)
    traits.other_channels |= keras_operations.mismatches_channels(entry)
    if config.get("axis") is not None:
        traits.operation_axes.add((class_name, json.dumps(config["axis"])))
    for function in keras_operations.functions(entry):
        traits.operation_functions.add((class_name, function))


def _note_config(class_name: str, config: dict[str, Json], traits: ConfigTraits) -> None:
    """Record the traits of the config of a layer or model."""
    if class_name in traits.keys:
        traits.keys[class_name].update(config)
        traits.common_keys[class_name].intersection_update(config)
    else:
        traits.keys[class_name] = set(config)
        traits.common_keys[class_name] = set(config)
    if "trainable" in config:
        _note_nested(class_name, config, traits)
        _note_policy(class_name, config, traits)
        _note_arguments(class_name, config, traits)
    if class_name == _INPUT:
        _note_input_dtype(config.get("dtype"), traits)
        traits.unshaped_input |= config.keys().isdisjoint(_SHAPES)
        if config.get("type_spec") is not None:
            other_keys = config.keys() - {"name", "type_spec"}
            if any(config[key] is not None for key in other_keys):
                traits.typed_inputs.add(str(keras_objects.class_of(config["type_spec"])))
    if "output_layers" in config:
        _note_outputs(config, traits)
    if isinstance(node := config.get("node_def"), dict):
        traits.half_ops |= "DT_HALF" in str(node)
        traits.refused_numbers |= inbound_nodes.refuses_number(node, config.get("constants"))
    if "layers" in config:
        _note_model(class_name, config, traits)
    _note_wrapped(class_name, config, traits)


def _note_wrapped(class_name: str, config: dict[str, Json], traits: ConfigTraits) -> None:
    """Record the traits of the layer or the cells in a layer."""
    layer, cell = config.get("layer"), config.get("cell")
    if config.get("return_state") is True and layer_facts(keras_objects.class_of(cell)).wraps:
        traits.returned_states |= _has_several_states(cell)
    match layer_facts(class_name).wraps:
        case "cells":
            traits.stacked_states |= _has_several_states(config) and any(
                keras_objects.class_of(value) == class_name for value in keras_objects.dicts(config)
            )
        case "steps":
            _note_distributed(layer, traits)
        case "kernel" if layer_facts(keras_objects.class_of(layer)).quantizable:
            inner = keras_objects.arguments_of(layer)
            dtype, has_lora = inner.get("dtype"), inner.get("lora_rank") is not None
            modes = traits.summed_modes if has_lora else traits.normalized_modes
            modes.update(generations.quantization_modes(dtype))
            if isinstance(dtype, str) and _QUANTIZED in dtype:
                modes.add(dtype.partition(_QUANTIZED)[0])


def _has_several_states(cells: Json) -> bool:
    """Return whether one of the cells has several states."""
    return any("LSTM" in str(keras_objects.class_of(cell)) for cell in keras_objects.dicts(cells))


_SHAPES: Final = frozenset(
    {"batch_input_shape", "batch_shape", "input_shape", "input_tensor", "shape"}
)


def _note_input_dtype(dtype: Json, traits: ConfigTraits) -> None:
    if isinstance(dtype, dict):
        traits.input_policies.add("dict")
    elif isinstance(dtype, str) and dtype.startswith("mixed_"):
        traits.input_policies.add("name")


def _note_distributed(layer: Json, traits: ConfigTraits) -> None:
    name = keras_objects.class_of(layer)
    if isinstance(layer, dict) and name in inbound_nodes.MODELS:
        traits.distributed_models.add(name)
        traits.distributed_lists |= inbound_nodes.lists_outputs(layer)


def _note_policy(class_name: str, config: dict[str, Json], traits: ConfigTraits) -> None:
    is_bidirectional = layer_facts(class_name).wraps == "directions"  # which computes in its layer
    owner = keras_objects.arguments_of(config.get("layer")) if is_bidirectional else config
    name = keras_objects.policy_name(owner.get("dtype"))
    if name is None:
        return
    traits.layer_policies.add((class_name, name))
    if config.get("stateful") is True and class_name in _RECURRENT:
        traits.stateful_policies.add(name)
    if is_fused(class_name, config):
        traits.fused.add((class_name, name))
    traits.mixed_groups |= (
        class_name in _GROUPED and name.startswith("mixed_") and _exceeds_one(config.get("groups"))
    )
    for key, value in config.items():
        if key.endswith("_initializer") and isinstance(value, dict):
            traits.drawn.add((str(keras_objects.class_of(value)), name))


_GROUPED: Final = frozenset(
    {f"{name}{rank}D" for name in ("Conv", "Convolution") for rank in (1, 2, 3)}
)
"""
The convolutions that compute groups. Others ignore ``groups``, and a GroupNormalization divides its
channels into them (measured with 10 classes in TF 2.9).
"""

_RECURRENT: Final = frozenset({"SimpleRNN", "LSTM", "GRU"})
"""The classes with states that were measured with ``stateful``."""


def is_fused(class_name: str, config: Mapping[str, Json]) -> bool:
    """Return whether a layer is an LSTM or GRU for which Keras 2 can use a kernel of cuDNN."""
    return (
        class_name in ("LSTM", "GRU")
        and config.get("activation") == "tanh"
        and config.get("recurrent_activation") == "sigmoid"
        and config.get("use_bias") is True
        and not config.get("recurrent_dropout")
        and not config.get("unroll")
        and config.get("reset_after") is not False
    )


def _note_arguments(class_name: str, config: dict[str, Json], traits: ConfigTraits) -> None:
    """Record the traits of single arguments."""
    for key, value in config.items():
        if key.endswith("_initializer") and "dtype" in keras_objects.arguments_of(value):
            traits.dtyped_initializers.add(str(keras_objects.class_of(value)))
        if isinstance(value, dict):
            _note_part(key, value, traits)
        if class_name != _LAMBDA and keras_objects.class_of(value) == keras_objects.CODE:
            traits.code_arguments.add(key)
        traits.array_arguments |= keras_objects.class_of(value) == keras_objects.ARRAY
        traits.bare_code |= (
            isinstance(value, dict) and value.keys() == {"value"} and key.endswith("activation")
        )
    name = config.get("name")
    traits.slashed |= isinstance(name, str) and "/" in name
    if isinstance(config.get("axis"), list):
        traits.listed_axes.add(class_name)
    if _exceeds_one(config.get("strides")) and _exceeds_one(config.get("dilation_rate")):
        traits.dilated_strides.add(class_name)
    facts = layer_facts(class_name)
    traits.projected |= facts.makes_projections and bool(config.get("output_shape"))
    if facts.is_lookup:
        _note_lookup(config, traits)
    if class_name == "Hashing" and config.get("output_mode", "int") == "int":
        dtype = config.get("dtype")
        traits.float_hashes |= isinstance(dtype, str) and not dtype.startswith("int")
        traits.policy_hashes |= isinstance(dtype, dict)


def _note_part(key: str, value: dict[str, Json], traits: ConfigTraits) -> None:
    """Record the module of an initializer, regularizer or constraint, or of an activation."""
    class_name = keras_objects.class_of(value)
    is_part = known_arguments.kind_of(key) or key == "dtype"
    if is_part and "module" in value and value["module"] is None:
        traits.null_parts |= value.get("registered_name") in (None, class_name)
    if class_name == keras_objects.FUNCTION and key.endswith("activation"):
        _note_place(value, str(value.get("config")), traits.function_places)


def _note_lookup(config: Mapping[str, Json], traits: ConfigTraits) -> None:
    """Record the traits of a layer with a vocabulary, and of one that counts its words."""
    traits.tables |= config.get("vocabulary") is None
    mode = config.get("output_mode", "int")
    pads = config.get("pad_to_max_tokens") is True
    if mode == "tf_idf":
        has_weights = config.get("idf_weights") is not None
        traits.weighted |= has_weights
        traits.unweighted |= not has_weights
        sizes = config.get("vocabulary_size"), config.get("max_tokens")
        traits.padded |= pads and not has_weights and None not in sizes and sizes[0] != sizes[1]
    traits.unlimited |= pads and config.get("max_tokens") is None
    if mode not in (None, "int") and not pads and not config.get("vocabulary"):
        traits.uncounted = True
        traits.unsized |= not config.get("vocabulary_size")


def _exceeds_one(value: Json) -> bool:
    """Return whether a number, or one of a list of numbers, is greater than 1."""
    values = value if isinstance(value, list) else [value]
    return any(isinstance(number, int) and number > 1 for number in values)


def _declares_shape(root: dict[str, Json]) -> bool:
    """
    Return whether the first layer of a Sequential declares an input shape without an input layer.
    """
    layers = keras_objects.layer_list(keras_objects.arguments_of(root))
    first = layers[0] if keras_objects.class_of(root) == "Sequential" and layers else None
    name, inner = (
        keras_objects.class_of(first),
        first.get("config") if isinstance(first, dict) else None,
    )
    return isinstance(inner, dict) and (
        name in inbound_nodes.MODELS or (name != _INPUT and "batch_input_shape" in inner)
    )


def _class_names(root: dict[str, Json]) -> tuple[str, ...]:
    """Return the classes of a model's layers; empty if the first layer is a model."""
    names = tuple(
        str(keras_objects.class_of(layer))
        for layer in keras_objects.layer_list(keras_objects.arguments_of(root))
        if isinstance(layer, dict)
    )
    return () if names and names[0] in inbound_nodes.MODELS else names


_LAYERS: Final = frozenset({"layer", "backward_layer", "cell", "cells"})
"""The keys of layers in the configs of layers."""


def _note_place(value: dict[str, Json], name: str, places: set[tuple[str | None, str]]) -> None:
    """Record in which module a release looks up an object, unless it has a registered name."""
    is_function = keras_objects.class_of(value) == keras_objects.FUNCTION
    if is_function or ("module" in value and value.get("registered_name") in (None, name)):
        module = value.get("module", "")
        places.add((module if isinstance(module, str) else None, name))


def _note_nested(class_name: str, config: dict[str, Json], traits: ConfigTraits) -> None:
    """Record the traits of layers in the config of another layer."""
    wraps = layer_facts(class_name).wraps
    places = traits.wrapped_places if wraps in ("steps", "kernel") else traits.places
    for key, value in config.items():
        for layer in value if isinstance(value, list) and key == "cells" else [value]:
            if isinstance(layer, dict) and key in _LAYERS:
                _note_place(layer, str(keras_objects.class_of(layer)), places)
        first = value[0] if isinstance(value, list) and value and key == "cells" else value
        inner = keras_objects.arguments_of(first)
        is_model = key in _LAYERS and "layers" in inner
        if isinstance(first, dict) and (is_model or "trainable" in inner):
            traits.bare_nested |= "module" not in first
        if isinstance(first, dict) and "trainable" in inner:
            traits.activation_layers |= key == "activation"
            traits.flat_distribution |= _is_built_flat(first)
            traits.wrapped_axis |= keras_objects.class_of(first) == _NORMALIZATION and isinstance(
                inner.get("axis"), list
            )


def _is_built_flat(layer: Mapping[str, Json]) -> bool:
    """Return whether a nested TimeDistributed stores the input shape of the layer in it."""
    built = layer.get("build_config")
    shape = built.get("input_shape") if isinstance(built, dict) else None
    is_distributed = layer_facts(str(keras_objects.class_of(layer))).wraps == "steps"
    return is_distributed and isinstance(shape, list) and len(shape) < _DISTRIBUTED_RANK


def _note_model(class_name: str, config: dict[str, Json], traits: ConfigTraits) -> None:
    """Record the traits of a model's list of layers."""
    layers = [layer for layer in keras_objects.layer_list(config) if isinstance(layer, dict)]
    for layer in layers:
        _note_place(layer, str(keras_objects.class_of(layer)), traits.places)
    nested = {keras_objects.class_of(layer) for layer in layers} & inbound_nodes.MODELS
    traits.nested_models |= bool(nested)
    traits.empty_models |= any(
        keras_objects.class_of(layer) == "Sequential"
        and not keras_objects.layer_list(layer.get("config"))
        for layer in layers
    )
    traits.nested_graphs |= bool(nested) and {class_name, *nested} != {"Sequential"}
    traits.nested_in_graphs |= bool(nested) and class_name != "Sequential"
    traits.mismatched_constants.update(inbound_nodes.mismatched_constants(config))
    traits.early_constants.update(inbound_nodes.mismatched_constants(config, projected="float32"))
    traits.mixed_attentions.update(inbound_nodes.mixed_attentions(config))
    traits.early_attentions.update(inbound_nodes.mixed_attentions(config, projected="float32"))
    if class_name != "Sequential" and nested:
        traits.missed_calls |= inbound_nodes.misses_calls(config)
    if any("Attention" in str(keras_objects.class_of(layer)) for layer in layers):
        traits.causal_calls |= any(
            inbound_nodes.has_keyword(layer, "use_causal_mask") for layer in layers
        )
        traits.scored.update(inbound_nodes.attentions_with_scores(config))
        traits.masked_attentions.update(inbound_nodes.masked_attention_dtypes(config))
        attends = inbound_nodes.attends_to_mask(config)
        traits.attends_to_mask |= attends is True
        traits.may_attend_to_mask |= attends is None
    traits.weighted_counts |= any(
        keras_objects.class_of(layer) == "CategoryEncoding"
        and inbound_nodes.has_keyword(layer, "count_weights")
        for layer in layers
    )
    traits.lone_ops |= any(
        keras_objects.class_of(layer) == "TensorFlowOpLayer"
        and inbound_nodes.takes_one_tensor(layer)
        for layer in layers
    )
    traits.mask_lists |= any(inbound_nodes.takes_mask_list(layer) for layer in layers)
    recurrent = [
        layer for layer in layers if layer_facts(keras_objects.class_of(layer)).takes_states
    ]
    traits.given_states |= any(map(inbound_nodes.takes_tensor_list, recurrent))
    traits.constant_states |= any(
        inbound_nodes.takes_constant(layer, keyword)
        for layer in recurrent
        for keyword in ("initial_state", "mask")
    )
    built = config.get("build_input_shape")
    # Sequential.from_config of Keras 2 builds with a list, and not with a dict of inputs
    if class_name == "Sequential" and layers and not (isinstance(built, list) and built):
        first = layers[0].get("config")
        traits.shapeless |= (
            isinstance(first, dict)
            and not {"batch_input_shape", "batch_shape"} & set(first)
            and "layers" not in first
        )


def _note_outputs(config: dict[str, Json], traits: ConfigTraits) -> None:
    traits.stuck |= bool(inbound_nodes.uncallable_layers(config))
    traits.later_calls |= inbound_nodes.has_later_calls(config)
    traits.missing_calls |= inbound_nodes.has_missing_calls(config)
    traits.late_outputs |= inbound_nodes.has_late_outputs(config)
    traits.outer_calls |= inbound_nodes.refers_outside(config)
    traits.depth = max(traits.depth, inbound_nodes.depth(config))
    inputs, outputs = (_is_reference(config.get(key)) for key in ("input_layers", "output_layers"))
    traits.repeated_names |= inbound_nodes.repeats_name(config)
    layers = keras_objects.layer_list(config)
    if any(layer_facts(keras_objects.class_of(layer)).moves == "joined" for layer in layers):
        traits.clashing_masks |= inbound_nodes.clashes_with_mask(config)
    traits.flat_outputs |= outputs
    traits.flat_inputs |= inputs and not outputs
    traits.nested_tensors |= any(
        _is_nested(config.get(key)) for key in ("input_layers", "output_layers")
    )


def _is_nested(value: Json) -> bool:
    """Return whether a structure of references contains other structures."""
    if _is_reference(value):
        return False
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(item, dict | list) and not _is_reference(item) for item in items)


def _is_reference(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _note_dtype(dtype: Json, traits: ConfigTraits) -> None:
    """Record the traits of a policy."""
    if isinstance(dtype, str):
        traits.policy_classes.add(
            "quantized-name"
            if _QUANTIZED in dtype
            else "mixed-name"
            if dtype.startswith("mixed_")
            else "name"
        )
        traits.half_policies |= dtype in _HALVES
    elif isinstance(dtype, dict):
        traits.unknown_policies.update(generations.unknown_parts(dtype))
        traits.quantization_modes.update(generations.quantization_modes(dtype))
        class_name, config = str(keras_objects.class_of(dtype)), dtype.get("config")
        traits.policy_classes.add(class_name)
        if "module" in dtype:
            traits.policy_keys.add(f"{class_name}.module")
        if isinstance(config, dict):
            traits.policy_keys.update(f"{class_name}.{key}" for key in config)
            traits.half_policies |= text_at(config, "name") in _HALVES


_DISTRIBUTED_RANK: Final = 3
"""The smallest rank of the input of a TimeDistributed."""


class Mark(Struct, frozen=True, kw_only=True):
    """A trait of configs, and the releases that write it."""

    releases: frozenset[str]
    readers: frozenset[str]
    """
    The releases that load configs with the trait, including older releases that ignore a key, and
    later releases that use a default.
    """

    conditions: Mapping[str, Any]
    """The arguments of the conditions, by the name of the condition."""

    @property
    def lasts(self) -> bool:
        """Whether all later releases of a family also write it."""
        return any(newest_known(family).id in self.releases for family in (KERAS2, KERAS3))

    def shows(self, traits: ConfigTraits) -> bool:
        """Return whether a config has the trait: all conditions are true."""
        return all(_TESTS[name](traits, value) for name, value in self.conditions.items())


_TESTS: Final[Mapping[str, Callable[[ConfigTraits, Any], bool]]] = MappingProxyType(
    {
        "classes": lambda traits, names: not traits.class_names.isdisjoint(names),
        "flat_outputs": lambda traits, expected: traits.flat_outputs is expected,
        "input_key": lambda traits, key: key in traits.keys.get("InputLayer", ()),
        "key": lambda traits, key: _has(traits.keys, key),
        "lacks": lambda traits, key: (
            key.partition(".")[0] in traits.keys and not _has(traits.common_keys, key)
        ),
        "only_policies": lambda traits, classes: traits.policy_classes == set(classes),
        "policies": lambda traits, classes: not traits.policy_classes.isdisjoint(classes),
        "policy_key": lambda traits, key: key in traits.policy_keys,
        "root_keys": lambda traits, keys: traits.root_keys.issuperset(keys),
    }
)


def _has(keys: Mapping[str, Container[str]], key: str) -> bool:
    """Return whether the keys of ``Class`` contain ``key``, for a key ``Class.key``."""
    class_name, _, name = key.partition(".")
    return name in keys.get(class_name, ())


@cache
def marks() -> tuple[Mark, ...]:
    """Return the rows of ``data/writer_marks.json``."""
    return tuple(
        Mark(
            releases=releases_in(row["releases"]),
            readers=releases_in(row.get("readers", row["releases"])),
            conditions={name: row[name] for name in row.keys() & _TESTS.keys()},
        )
        for row in data.read("writer_marks")["marks"]
    )


def candidates(writer: Writer, seen: ConfigTraits) -> tuple[tuple[Release, ...], bool]:
    """
    Return the releases that may have written the file, oldest first, and whether no release of that
    library accepts all of its marks together. An edited or converted file may have older or newer
    marks than its version.

    If the marks contradict each other, the file was edited or converted, and its version is used.
    Without a version, only marks that all later releases still write are used: an editor may omit
    keys that a release writes, but does not add keys of later releases.
    """
    releases = _releases_of_version(writer)
    present_marks = [mark for mark in marks() if mark.shows(seen)]
    if narrowed := _releases_in_all(releases, [mark.releases for mark in present_marks]):
        return narrowed, False
    lasting_marks = (
        ()
        if writer.keras
        else _releases_in_all(releases, [mark.releases for mark in present_marks if mark.lasts])
    )
    families = {release.family for release in releases}
    library = (*releases, *(release for release in RELEASES if release.family in families))
    return lasting_marks or releases, not _releases_in_all(
        library, [mark.readers for mark in present_marks]
    )


def _releases_in_all(
    releases: tuple[Release, ...], sets: Iterable[frozenset[str]]
) -> tuple[Release, ...]:
    """Return the releases that are in all sets of ids, or newer than all known releases."""
    for release_ids in sets:
        releases = tuple(
            release for release in releases if release.id in release_ids or not is_known(release.id)
        )
    return releases


def label(origins: tuple[Release, ...]) -> str | None:
    """
    Return the name of a range of releases, such as ``tf2.3-2.4``, ``keras3.4+`` or ``tf2.4``; None
    if they are from several families.
    """
    first, last = origins[0], origins[-1]
    if len(origins) == 1:
        return first.id
    range_of_releases = RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1]
    libraries = {release.library for release in range_of_releases}
    if last is newest_known(last.family) and (
        libraries <= {"tf", "tf_keras"} or first.family == last.family == KERAS3
    ):
        return f"{first.id}+"
    return f"{first.id}-{last.version}" if len(libraries) == 1 else None


def _releases_of_version(writer: Writer) -> tuple[Release, ...]:
    """Return the releases that write these versions; all releases if the file has no version."""
    by_keras = _releases_of_keras_version(writer.keras) if writer.keras else RELEASES
    if not writer.tensorflow:
        return by_keras
    minor = ".".join(writer.tensorflow.split(".")[:2])
    both = tuple(
        release for release in by_keras if release.id in {f"tf{minor}", f"tf_keras{minor}"}
    )
    return both or by_keras


def _releases_of_keras_version(version: str) -> tuple[Release, ...]:
    """
    Return the releases that write this ``keras_version``. Complete strings (``2.2.4-tf``) take
    precedence over prefixes (``2.2.``).
    """
    exact_releases = tuple(release for release in RELEASES if version == release.keras_version)
    begun = tuple(
        release
        for release in RELEASES
        if release.keras_version.endswith(".") and version.startswith(release.keras_version)
    )
    return exact_releases or begun or _newer_release(version)


def _newer_release(version: str) -> tuple[Release, ...]:
    """
    Return a release that is newer than all known releases, and is handled as the newest of its
    family. Return all releases if the text is not a version.
    """
    match = re.match(r"([23])\.(\d+)", version)
    if not match:
        return RELEASES
    minor = f"{match[1]}.{match[2]}"
    last = newest_known(KERAS3 if match[1] == "3" else KERAS2)
    return (replace(last, id=f"{last.library}{minor}", keras_version=f"{minor}."),)
