"""
The measured incompatibilities between files and releases.

Each row of :data:`REFUSALS` describes failures of real releases with the fixtures
(``fixtures/loads.py``); ``tests/model/compatibility/test_verdicts.py`` compares the rows with the
records. A row selects files by their container, policies, classes and keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats.document import UNTYPED
from policytool.formats.hdf5.read import TRAINING
from policytool.formats.saved_model import GRAPH, KERAS
from policytool.model import inbound_nodes, optimizer_config
from policytool.model.compatibility.evidence import Evidence, is_adapted
from policytool.model.compatibility.restored_objects import has_graphs
from policytool.model.model import Obstacle
from policytool.model.tree import INPUT_CLASS, MODEL_CLASSES, storage
from policytool.model.writer_version import NEEDED_KEYS
from policytool.releases import (
    dtype_support,
    keras_objects,
    known_arguments,
    layer_variables,
)
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import (
    Category,
    known_classes,
    layer_facts,
    operation_facts,
)
from policytool.releases.policy_formats import KERAS2_CLASSES
from policytool.releases.releases import (
    CURRENT,
    KERAS3,
    LOADERS,
    family_of,
    is_since,
    position,
    releases_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_TRAINING_KEYS: Final = frozenset({"optimizer_config", "loss_weights"})
"""Keys of training configurations whose lack is a KeyError in Keras 3.0."""


KEYS_OF_OPTIMIZED_LAYERS: Final = {
    "ClusterWeights": "number_of_clusters",
    "PruneLowMagnitude": "pruning_schedule",
    "QuantizeLayer": "quantizer",
    "QuantizeWrapper": "quantize_config",
    "QuantizeWrapperV2": "quantize_config",
}
"""
The layer classes of tensorflow-model-optimization, with a key that others do not have. Its last
release, 0.8, derives them from tf_keras: Keras 3.15 fails with "Only instances of `keras.Layer`".
"""


UNICODE_TEXT: Final = (
    "its JSON is stored as Unicode text, as h5py writes a str; TF 2.4 and older decode only bytes"
)


def _lacks_axis(loader: str) -> Callable[[Evidence], bool]:
    """
    Return a test for an adapted layer whose input does not have one of its axes, or has an unknown
    size there. Keras 3 drops some axes when it reads HDF5 (:mod:`open_questions`).
    """

    def lacks_axis(evidence: Evidence) -> bool:
        if evidence.shapes is None or not any(map(is_adapted, evidence.traits.class_names)):
            return False
        return any(
            size is None
            for index, site in enumerate(evidence.shapes.sites)
            if is_adapted(site.class_name)
            for size in evidence.kept_sizes(index, loader)
        )

    return lacks_axis


class Incompatibility(Struct, frozen=True, kw_only=True):
    """The reason why some releases fail to load a kind of file."""

    kind: Obstacle
    """The part of the file that the releases do not support."""

    formats: frozenset[str]
    releases: frozenset[str]
    reason: str
    """A sentence part that completes "refused by ...: "."""

    shows: Callable[[Evidence], bool]


def _row(
    kind: Obstacle, formats: str, releases: str, reason: str, applies: Callable[[Evidence], bool]
) -> Incompatibility:
    return Incompatibility(
        kind=kind,
        formats=frozenset(formats.split()),
        releases=releases_in(releases),
        reason=reason,
        shows=applies,
    )


def _mixes_attention(policy: str) -> Callable[[Evidence], bool]:
    return lambda evidence: policy in evidence.traits.early_attentions


def _is_subclassed(evidence: Evidence) -> bool:
    """
    Return whether the model is of a subclass, and not a functional model: instances of a subclass
    that are made of inputs and outputs have the config of a functional model.
    """
    is_functional = "output_layers" in keras_objects.arguments_of(evidence.document.config)
    return evidence.traits.root_class not in MODEL_CLASSES and not is_functional


def _is_mistaken(evidence: Evidence) -> bool:
    """
    Return whether the model is of a subclass that does not read its config itself, as the classes
    of ``keras.experimental`` do.
    """
    return layer_facts(evidence.traits.root_class).category is Category.UNKNOWN


def is_mistaken_root(evidence: Evidence) -> bool:
    """Return whether the root of a SavedModel is such a model, without inputs and outputs."""
    is_subclassed = evidence.traits.root_class is not None and not evidence.traits.graph_network
    return is_subclassed and _is_mistaken(evidence)


def _policy_dict(*classes: str) -> Callable[[Evidence], bool]:
    return lambda evidence: not evidence.traits.policy_classes.isdisjoint(classes)


def _only_wrappers_have_dicts(evidence: Evidence) -> bool:
    """
    Return whether all dicts of Keras 2 are the policies of wrappers inside other layers, which are
    called without a cast and have no variables of that policy. Measured with wrappers in
    TimeDistributed in Keras 3.3, 3.6 and 3.15.
    """
    sites = evidence.shapes.sites if evidence.shapes is not None else ()
    owners = [site for site in sites if keras_objects.class_of(site.spelled) in KERAS2_CLASSES]
    return bool(owners) and all(
        layer_facts(site.class_name).category is Category.WRAPPER
        and site.parent is not None
        and layer_facts(sites[site.parent].class_name).category is Category.WRAPPER
        for site in owners
    )


def _class(*names: str) -> Callable[[Evidence], bool]:
    return lambda evidence: not evidence.traits.class_names.isdisjoint(names)


def _discretizes_halves(evidence: Evidence) -> bool:
    """
    Return whether a Discretization casts its input to 16 bits; integers are not cast. If the model
    also has inputs in floats, the input of the layer is taken for one of these.
    """
    sites = evidence.shapes.sites if evidence.shapes is not None else ()
    inputs = [site.config or {} for site in sites if site.class_name == INPUT_CLASS]
    return any(
        name == "Discretization" and policy.removeprefix("mixed_") in HALVES
        for name, policy in evidence.traits.layer_policies
    ) and not (
        inputs and all(str(config.get("dtype")).startswith(("int", "uint")) for config in inputs)
    )


def _discretizes_half_inputs(evidence: Evidence) -> bool:
    """
    Return whether a Discretization is called on an input in float16, which TF 2.9 and later do not
    cast if it returns integers.
    """
    if evidence.shapes is None:
        return False
    sites = evidence.shapes.sites
    halves = {
        site.name
        for site in sites
        if site.class_name == INPUT_CLASS and (site.config or {}).get("dtype") == "float16"
    }
    return bool(halves) and any(
        name in halves
        for index, site in enumerate(sites)
        if site.class_name == "Discretization"
        and (site.config or {}).get("output_mode", "int") == "int"
        for name, _ in inbound_nodes.tensors(evidence.shapes.entry(index).get("inbound_nodes"))
    )


def _normalizes_in(*dtypes: str) -> Callable[[Evidence], bool]:
    """Return a test for a Normalization of TF 2.5 with one of some policies."""
    return lambda evidence: (
        evidence.is_written_in("tf2.5")
        and any(
            name == "Normalization" and policy in dtypes
            for name, policy in evidence.traits.layer_policies
        )
    )


def _has_discretization_of(evidence: Evidence, ranges: str) -> bool:
    return "Discretization" in evidence.traits.class_names and evidence.is_written_in(ranges)


def _key(class_names: str, *keys: str) -> Callable[[Evidence], bool]:
    return lambda evidence: evidence.has_key(class_names, *keys)


def _dilates_strides(*beginnings: str) -> Callable[[Evidence], bool]:
    return lambda evidence: any(
        name.startswith(beginnings) for name in evidence.traits.dilated_strides
    )


def _observation(code: str) -> Callable[[Evidence], bool]:
    return lambda evidence: any(
        observation.code == code for observation in evidence.document.observations
    )


def _lacks_training_keys(evidence: Evidence) -> bool:
    """Return whether a training configuration lacks a key that Keras 3.0 requires."""
    if evidence.document.training_part is None:
        return False
    training = evidence.document.training
    return not isinstance(training, dict) or not training.keys() >= _TRAINING_KEYS


def _is_functional(evidence: Evidence) -> bool:
    """Whether a SavedModel is a functional model or contains one."""
    return (
        evidence.traits.graph_network and evidence.traits.root_class != "Sequential"
    ) or evidence.traits.nested_models


def _has_separate_metadata(evidence: Evidence) -> bool:
    """Whether the Keras metadata of a SavedModel is missing in ``saved_model.pb``."""
    files = {part.partition("#")[0] for part in evidence.document.parts}
    return KERAS in files and GRAPH not in files


def _has_child(evidence: Evidence, name: str) -> bool:
    """Whether an object in a SavedModel has a child of some name."""
    nodes = evidence.document.nodes.values()
    return any(name == child for node in nodes for child, _ in node.children)


def _is_root_misplaced(loader: str) -> Callable[[Evidence], bool]:
    def is_misplaced(evidence: Evidence) -> bool:
        module, name = evidence.traits.root_module, evidence.traits.root_class
        return (
            module is not None
            and name in MODEL_CLASSES
            and known_arguments.is_misplaced(loader, module, name)
        )

    return is_misplaced


def _is_misplaced(loader: str, *, models: bool) -> Callable[[Evidence], bool]:
    """Return a test for layers, or for nested models, that a release does not find."""
    return lambda evidence: any(
        module is not None
        and (name in MODEL_CLASSES) is models
        and known_arguments.is_misplaced(loader, module, name)
        for module, name in evidence.traits.places | evidence.traits.wrapped_places
    )


def _is_homeless(places: Iterable[tuple[str | None, str]]) -> bool:
    return any(module is None and name in known_classes() for module, name in places)


def _is_function_misplaced(loader: str) -> Callable[[Evidence], bool]:
    """
    Return a test for activations that a release does not find. All need the key of the module, and
    Keras 3.15 a module in it; measured in TF 2.15, tf_keras 2.21, Keras 3.0, 3.3, 3.6 and 3.15.
    """

    def is_lost(module: str | None, name: str) -> bool:
        if module is None:
            return is_since(loader, "keras3.7")
        return not module or known_arguments.is_misplaced(loader, module, name)

    return lambda evidence: any(
        known_arguments.is_known(known_arguments.ACTIVATIONS, name) and is_lost(module, name)
        for module, name in evidence.traits.function_places
    )


def _lacks_root_module(evidence: Evidence) -> bool:
    return evidence.traits.root_module is None and evidence.traits.root_class in MODEL_CLASSES


def _meets_rank(evidence: Evidence) -> bool:
    """Whether the extra dimension of a Sequential's input shape reaches a layer that rejects it."""
    outcomes = (layer_facts(name).extra_axis for name in evidence.traits.shaped)
    return next((outcome for outcome in outcomes if outcome != "kept"), None) == "fails"


def _are_integers(modes: Iterable[str]) -> bool:
    return not _INTEGER_MODES.isdisjoint(mode.partition("/")[0] for mode in modes)


def _follows_policy(class_name: str) -> bool:
    """
    Return whether a variable of a class has the dtype of a pure policy, or may have it; those of a
    BatchNormalization have not (measured in TF 2.5, and with files of TF 2.4). Op layers have no
    variables: TF 2.4 loads 9 measured models of only op layers.
    """
    facts = layer_facts(class_name)
    if facts.is_op_layer or facts.category is Category.REGULARIZATION:  # such as AddLoss
        return False
    variables = layer_variables.slots(class_name, "tf2.4", {})
    return variables is None or any(
        dtype_support.variable_dtype("tf2.5", class_name, "bfloat16", slot.name) is None
        for slot in variables
    )


_UNBUILDABLE_CODE: Final = (
    "an activation, initializer, regularizer or constraint is Python bytecode, which is not rebuilt"
)
_ALL_CONFIGS: Final = "h5 json yaml keras orbax"
_AFTER_COUNTS: Final = "after keras3.0"
"""The releases that do not count the calls in other models (:mod:`inbound_nodes`)."""

_LISTED_OUTPUT: Final = (
    "a functional model in a Sequential model returns a list, as releases before Keras 3.11 write "
    "it, which a later layer does not accept"
)
_KERAS3_POLICIES: Final = (
    "DTypePolicy",
    "FloatDTypePolicy",
    "QuantizedDTypePolicy",
    "QuantizedFloat8DTypePolicy",
    "DTypePolicyMap",
    "Int4DTypePolicy",
    "GPTQDTypePolicy",
    "AWQDTypePolicy",
)

_RANDOM_LAYERS: Final = tuple(
    f"Random{name}"
    for name in ("Contrast", "Crop", "Flip", "Height", "Rotation", "Translation", "Width", "Zoom")
)
"""Layers of images that have no ``build`` in TF 2.5."""

_INTEGER_MODES: Final = frozenset({"int8", "int4"})
_NORMALIZED_INTEGERS: Final = (
    "SpectralNormalization cannot normalize the kernel of a layer quantized to int8 or int4"
)
_DTYPED: Final = frozenset({"Constant"})
"""The initialiser of Keras 3 that takes a dtype."""

_UNCOUNTED: Final = "a layer counts the words of a vocabulary that JSON does not contain"
_BUCKETIZED: Final = (
    "a Discretization casts its input to 16 bits, which the op Bucketize does not support"
)
MASKS_IN_FLOAT32: Final = (
    "TF 2.1 to 2.4 apply the masks of attention in float32, and the layer computes in another dtype"
)
_BOUNDARIES: Final = "only TF 2.5 stores the boundaries of a Discretization in a variable"
_TYPED_INPUT: Final = "an InputLayer has a `type_spec` beside other arguments"
_NO_LAYER_CLASS: Final = (
    "a layer class of Keras has a module that does not contain it; Keras writes keras.layers"
)
_NO_MODEL_CLASS: Final = "the model class is in a module that does not exist in Keras 3"
EXPORTED: Final = (
    "exported for serving, so that load_model in Keras 2 does not return a Keras model"
)

_SUBJECTS: Final = {
    "graph": "the config of a model",
    "chain": "the config of a Sequential model",
    "layer": "the entry of a layer in the config",
    "connected layer": "the entry of a layer in the config",
    "call": "the entry of a call in the config",
    "argument": "the entry of a tensor in the config",
    "tensor": "the config of a tensor",
    "policy": "a policy",
    "policy config": "the config of a policy",
}
"""What a missing key belongs to, by the names in ``NEEDED_KEYS``."""


_NEEDING: Final = {
    ("graph", "name"): "tf2.9 on, keras3.0 on",
    ("policy", "config"): "tf1.15 on",
    ("policy config", "name"): "tf1.15 on",
}
"""The releases that need a key, if some do not."""


def _missing_key(what: str, key: str) -> Incompatibility:
    """Return the incompatibility of a config without a key."""
    return _row(
        Obstacle.CONFIG,
        _ALL_CONFIGS,
        _NEEDING.get((what, key), "tf1.15 on, keras3.0 on"),
        f"{_SUBJECTS[what]} has no `{key}`",
        lambda evidence: (what, key) in evidence.traits.missing_keys,
    )


REFUSALS: Final[tuple[Incompatibility, ...]] = (
    *(_missing_key(what, key) for what, keys in NEEDED_KEYS.items() for key in keys),
    # containers
    _row(
        Obstacle.CONTAINER,
        "weights",
        "tf1.15 on, keras3.0 on",
        "contains only weights; build the model and call load_weights",
        lambda _: True,
    ),
    _row(
        Obstacle.CONTAINER,
        "keras-hub",
        "tf1.15 on",
        "KerasHub presets need Keras 3",
        lambda _: True,
    ),
    _row(
        Obstacle.CONTAINER,
        "orbax",
        "tf1.15 on, keras3.0 to keras3.13",
        "Orbax checkpoints need Keras 3.14 or later",
        lambda _: True,
    ),
    _row(
        Obstacle.CONTAINER,
        "orbax",
        "keras3.14 on",
        "Keras loads only the directory that contains the step",
        _observation("orbax-step"),
    ),
    # Keras 3.14 and 3.15 read the optimizer of the model, also with compile=False
    _row(
        Obstacle.MODEL,
        "orbax",
        "keras3.14 on",
        "Keras loads Orbax checkpoints only if the model is compiled",
        lambda evidence: optimizer_config.configuration(evidence.document) is None,
    ),
    _row(
        Obstacle.MODEL,
        "keras",
        "tf1.15 on, keras3.0 on",
        "a FeatureSpace is not a Keras model",
        lambda evidence: evidence.traits.root_class == "FeatureSpace",
    ),
    _row(
        Obstacle.CONTAINER,
        "savedmodel",
        "keras3.0 on",
        "Keras 3 does not support SavedModels",
        lambda _: True,
    ),
    # From all exports, releases of Keras 2 fail, or return an object that is not a Keras model
    _row(
        Obstacle.CONTAINER,
        "savedmodel",
        "tf1.15 on",
        EXPORTED,
        lambda evidence: evidence.document.config_part is None or not evidence.document.nodes,
    ),
    _row(
        Obstacle.CONTAINER,
        "keras",
        "tf1.15 to tf2.9",
        ".keras archives need TF 2.12 or later",
        lambda _: True,
    ),
    # Keras 3.4 and 3.5 according to their sources
    _row(
        Obstacle.CONTAINER,
        "keras",
        "tf2.12 on, keras3.0 to keras3.3",
        "unpacked archives need Keras 3.4 or later",
        lambda evidence: evidence.document.config_file is not None,
    ),
    # Measured in TF 1.15, 2.1, 2.3, 2.4 and 2.5: since then, Keras decodes only bytes
    _row(
        Obstacle.CONTAINER,
        "h5",
        "tf1.15 to tf2.4",
        UNICODE_TEXT,
        lambda evidence: not evidence.document.unicode_attributes <= {TRAINING},
    ),
    _row(
        Obstacle.CONTAINER,
        "yaml",
        "tf2.3 on",
        "TF 2.3.4 and later do not support YAML",
        lambda _: True,
    ),
    _row(
        Obstacle.CONTAINER, "yaml", "keras3.0 on", "Keras 3 does not support YAML", lambda _: True
    ),
    _row(
        Obstacle.CONTAINER,
        "yaml",
        "tf2.0 to tf2.2",
        "contains tags for Python objects, which PyYAML 5.2 and later reject",
        _observation("python-objects"),
    ),
    _row(
        Obstacle.MODEL,
        "h5 json yaml",
        "tf2.1 to tf2.2, keras3.0 on",
        "the config of its Sequential model is a list, the format used up to Keras 2.2.2",
        lambda evidence: evidence.traits.listed_layers,
    ),
    # Layers that cannot be built in any order: releases loop forever or fail to load; see
    # fixtures/attacks.json.
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "tf1.15 on, keras3.0 on",
        "circular dependency between layers",
        lambda evidence: evidence.traits.stuck,
    ),
    # Fails in Keras 3.4 too, and loads in 3.12 and 3.15
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "keras3.0 to keras3.6",
        "a shared layer is called on the result of a layer that is listed later",
        lambda evidence: evidence.traits.later_calls,
    ),
    # Keras 3.12 never returns
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "keras3.0 on",
        "a layer that was shared with a nested model is stored as a copy, without the calls of the "
        "other model that its graph counts",
        lambda evidence: evidence.traits.missing_calls and evidence.is_keras3,
    ),
    # Measured in TF 2.12 and 2.15 and the newest tf_keras (KeyError), and with edited files in
    # Keras 3.15. Keras 2 writes such a call if models three deep share the layer.
    _row(
        Obstacle.GRAPH,
        f"{_ALL_CONFIGS} savedmodel",
        "tf1.15 on, keras3.0 on",
        "a call or an output uses the result of a layer that its model does not have",
        lambda evidence: evidence.traits.outer_calls,
    ),
    # Measured with files of Keras 3.3, 3.9 and 3.15 in Keras 3.0, 3.3, 3.6, 3.10, 3.12, 3.14, 3.15
    _row(
        Obstacle.GRAPH,
        "keras",
        "keras3.14 on",
        "a layer is shared with a nested model, whose call of it Keras 3.14 and later take for the "
        "call of the outer model",
        lambda evidence: (
            any(layer.is_first and not layer.is_chained for layer in evidence.shared)
            and evidence.is_written_in(_AFTER_COUNTS)
        ),
    ),
    _row(
        Obstacle.STORAGE,
        "keras",
        "keras3.0 on",
        "a layer is shared with a nested model that is listed before it, so that Keras does not "
        "restore the variables of the layer",
        lambda evidence: (
            any(layer.has_variables and not layer.is_first for layer in evidence.shared)
            and evidence.is_keras3
        ),
    ),
    # `layers.deserialize` of Keras 2 drops the mark since TF 2.13; measured in TF 2.13 to 2.15 and
    # tf_keras 2.21 with 5 models of each, and with 2 of TF 2.15 in Keras 3.0, 3.3, 3.6 and 3.15
    _row(
        Obstacle.STORAGE,
        "keras",
        "after tf2.12, keras3.0 on",
        "a layer is shared between models; Keras 2 stores its variables once, but they are read "
        "for each model",
        lambda evidence: evidence.shares_variables and not evidence.is_keras3,
    ),
    # 7 files of Keras 3.0, which Keras 3.3 to 3.15 load
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "keras3.0",
        "an output is the output of a nested functional model, which Keras 3.0 does not find",
        lambda evidence: evidence.traits.late_outputs and evidence.is_keras3,
    ),
    _row(
        Obstacle.CLASS,
        _ALL_CONFIGS,
        "tf1.15 on, keras3.0 on",
        _UNBUILDABLE_CODE,
        lambda evidence: (
            evidence.traits.bare_code
            or any(known_arguments.kind_of(key) for key in evidence.traits.code_arguments)
        ),
    ),
    # Keras 3.10 to 3.15 load an activation with a class, which no release writes
    _row(
        Obstacle.CLASS,
        _ALL_CONFIGS,
        "tf1.15 on, keras3.0 to keras3.6",
        _UNBUILDABLE_CODE,
        lambda evidence: bool(evidence.traits.code_arguments),
    ),
    # SavedModels
    _row(
        Obstacle.POLICY,
        "savedmodel",
        "tf1.15 to tf2.0",
        "policy dicts need TF 2.1 or later",
        _policy_dict(*KERAS2_CLASSES),
    ),
    _row(
        Obstacle.CONTAINER,
        "savedmodel",
        "tf1.15 to tf2.4",
        "its metadata is only in keras_metadata.pb, which needs TF 2.5 or later",
        _has_separate_metadata,
    ),
    # TF 2.5 reads the file, but not the configs of models of connected layers in it
    _row(
        Obstacle.CONTAINER,
        "savedmodel",
        "tf2.5",
        "the configs of its models are only in keras_metadata.pb, which needs TF 2.6 or later",
        lambda evidence: _has_separate_metadata(evidence) and has_graphs(evidence.document),
    ),
    _row(
        Obstacle.GRAPH,
        "savedmodel",
        "tf1.15 to tf2.9",
        "its graph contains DisableCopyOnRead, an op introduced in TF 2.12",
        lambda evidence: "DisableCopyOnRead" in evidence.document.ops,
    ),
    _row(
        Obstacle.CLASS,
        "savedmodel",
        "tf2.5 on",
        "Discretization of TF 2.4 cannot be rebuilt from its config, and has no traces",
        lambda evidence: _class("Discretization")(evidence) and evidence.is_written_in("tf2.4"),
    ),
    _row(
        Obstacle.CONTAINER,
        "savedmodel",
        "tf2.1",
        "its functional models store input shapes in the format of a later release",
        lambda evidence: evidence.is_written_in("tf2.2 to tf2.9") and _is_functional(evidence),
    ),
    # 48 SavedModels of TF 2.1, of 11 op layers and 15 models in models
    _row(
        Obstacle.GRAPH,
        "savedmodel",
        "tf2.1",
        "TF 2.1 does not restore an op layer with a single input from its traces",
        lambda evidence: evidence.traits.lone_ops,
    ),
    _row(
        Obstacle.MODEL,
        "savedmodel",
        "tf2.1",
        "TF 2.1 restores no model in a functional model, and no Sequential in a Sequential",
        lambda evidence: (
            evidence.traits.nested_in_graphs
            or (evidence.traits.nested_models and not evidence.traits.nested_graphs)
        ),
    ),
    _row(
        Obstacle.CONTAINER,
        "savedmodel",
        "tf1.15 to tf2.1",
        "its Sequential models store input shapes in the format of a later release",
        lambda evidence: evidence.has_shape_objects,
    ),
    _row(
        Obstacle.VARIABLES,
        "savedmodel",
        "tf2.3 to tf2.4",
        "TF 2.4 and older create the variable of a MeanIoU only in float64",
        lambda evidence: any(stored != "float64" for _, stored in evidence.iou_dtypes),
    ),
    _row(
        Obstacle.VARIABLES,
        "savedmodel",
        "tf2.5 on",
        "TF 2.5 and later create the variable of a MeanIoU in the dtype of the metric",
        lambda evidence: any(stored != dtype for dtype, stored in evidence.iou_dtypes),
    ),
    _row(
        Obstacle.CONTAINER,
        "savedmodel",
        "tf2.2 to tf2.3",
        "models saved without traces need TF 2.4 or later",
        lambda evidence: evidence.has_no_traces and has_graphs(evidence.document),
    ),
    _row(
        Obstacle.POLICY,
        "savedmodel",
        "tf2.1 to tf2.3",
        "PolicyV1 needs TF 2.4 or later",
        _policy_dict("PolicyV1"),
    ),
    _row(
        Obstacle.POLICY,
        "savedmodel",
        "tf1.15 to tf2.4",
        "mixed policies are stored as plain names, which need TF 2.5 or later",
        _policy_dict("mixed-name"),
    ),
    _row(
        Obstacle.CLASS,
        "savedmodel",
        "tf2.12 on",
        "random image layers cannot be built, because TF 2.5 and older do not store their input "
        "shapes",
        lambda evidence: (
            evidence.is_written_in("tf2.3 to tf2.5") and _class(*_RANDOM_LAYERS)(evidence)
        ),
    ),
    _row(
        Obstacle.KEY,
        "savedmodel",
        "tf2.9 to tf2.15",
        ("MultiHeadAttention has no argument `softmax_robust_masking` before tf_keras 2.21"),
        lambda evidence: (
            evidence.has_key("MultiHeadAttention", "softmax_robust_masking")
            and evidence.has_no_traces
        ),
    ),
    # Measured in TF 2.4 to 2.15 and tf_keras 2.21 with files of TF 2.4, 2.9, 2.12, 2.15 and
    # tf_keras 2.21, each with float16 and float64 as the global policy or that of the layer.
    # Without `query_shape`, releases restore the layer from its traces.
    _row(
        Obstacle.STORAGE,
        "savedmodel",
        "tf2.9 to tf2.12",
        "MultiHeadAttention stores kernels in another dtype than float32, in which TF 2.12 and "
        "older build them",
        lambda evidence: (
            evidence.has_key("MultiHeadAttention", "query_shape")
            and not evidence.has_key("MultiHeadAttention", "softmax_robust_masking")
            and not evidence.attention_dtypes <= {"float32"}
        ),
    ),
    _row(
        Obstacle.STORAGE,
        "savedmodel",
        "after tf2.12",
        "MultiHeadAttention with a pure policy stores kernels in float32, as TF 2.12 and older "
        "build them, and not in the dtype of its policy",
        lambda evidence: (
            evidence.has_key("MultiHeadAttention", "query_shape")
            and "float32" in evidence.attention_dtypes
            and not evidence.traits.layer_policies.isdisjoint(
                ("MultiHeadAttention", policy) for policy in ("float16", "bfloat16", "float64")
            )
        ),
    ),
    # Files of TF 2.3 and 2.5 in TF 2.9, 2.12, 2.15 and tf_keras 2.21, which load each other's
    _row(
        Obstacle.STORAGE,
        "savedmodel",
        "tf2.9 on",
        "TF 2.5 and older store lookup tables under another path",
        lambda evidence: (
            any(layer_facts(name).is_lookup for name in evidence.classes_of_objects)
            and _has_child(evidence, "_table")
            and not _has_child(evidence, "lookup_table")
        ),
    ),
    # Measured with files of TF 2.4 in TF 2.3, and of TF 2.5 in later releases, with six policies
    # and five dtypes of inputs; subclassed models do not call their layers during loading
    *(
        _row(Obstacle.DTYPE, formats, ranges, _BUCKETIZED, _discretizes_halves)
        for formats, ranges in ((f"{_ALL_CONFIGS} savedmodel", "tf2.3"), ("savedmodel", "tf2.9 on"))
    ),
    # Measured with files of TF 2.4 and 2.5 with five policies, in TF 2.9, 2.12, 2.15 and tf_keras
    _row(
        Obstacle.DTYPE,
        _ALL_CONFIGS,
        "tf2.9 on",
        "a Discretization has an input in float16, which the op Bucketize does not support",
        _discretizes_half_inputs,
    ),
    *(
        _row(Obstacle.STORAGE, "h5", ranges, _BOUNDARIES, applies)
        for ranges, applies in (
            ("tf2.5", lambda evidence: _has_discretization_of(evidence, "tf2.3 to tf2.4")),
            ("tf2.9 on", lambda evidence: _has_discretization_of(evidence, "tf2.5")),
        )
    ),
    # Measured with functional, Sequential and subclassed models with four policies
    _row(
        Obstacle.STORAGE,
        "savedmodel",
        "tf2.3 to tf2.4",
        "a Normalization of TF 2.5 has statistics in the dtype of its policy, not in float32",
        _normalizes_in("float16", "bfloat16", "float64"),
    ),
    # Files of TF 2.15, which TF 2.9 loads: "expected a Tensor in checkpoint_key"
    _row(
        Obstacle.STORAGE,
        "savedmodel",
        "tf2.12",
        "TF 2.12 does not restore the lookup tables of later releases",
        lambda evidence: (
            _has_child(evidence, "token_counts") and evidence.is_written_in("after tf2.12")
        ),
    ),
    # Functional models of tf_keras 2.21 without a Sequential load: `RevivedInputLayer`
    _row(
        Obstacle.KEY,
        "savedmodel",
        "tf2.9 to tf2.15",
        "the InputLayer of a Sequential model has an argument `optional`, which needs tf_keras",
        lambda evidence: (
            evidence.has_key("InputLayer", "optional")
            and "Sequential" in {evidence.traits.root_class, *evidence.traits.class_names}
        ),
    ),
    _row(
        Obstacle.MODEL,
        "savedmodel",
        "tf2.2",
        "these releases mistake the config of a subclassed model for that of a functional model",
        is_mistaken_root,
    ),
    _row(
        Obstacle.MODEL,
        "json",
        "tf1.15 to tf2.5",
        "these releases mistake the config of a subclassed model for that of a functional model",
        lambda evidence: _is_subclassed(evidence) and _is_mistaken(evidence),
    ),
    # .keras archives between families
    # Keras 2 looks up only the root of an archive in its module
    *(
        _row(Obstacle.CLASS, "keras", loader, reason, _is_root_misplaced(loader))
        for loader, reason in (
            ("tf2.12", "TF 2.12 expects the model class in the module keras.engine"),
            ("tf2.15", "TF 2.15 expects the model class in the module keras.src.engine"),
            (CURRENT[0], "the model class is in a module that does not exist in tf_keras"),
        )
    ),
    # HDF5 of tf_keras has the module of a model that is nested twice
    *(
        _row(Obstacle.CLASS, formats, loader, reason, applies)
        for loader in sorted(releases_in("keras3.0 on").intersection(LOADERS), key=position)
        for formats, reason, applies in (
            ("json keras orbax", _NO_MODEL_CLASS, _is_root_misplaced(loader)),
            (_ALL_CONFIGS, _NO_MODEL_CLASS, _is_misplaced(loader, models=True)),
            (
                _ALL_CONFIGS,
                _NO_LAYER_CLASS,
                _is_misplaced(loader, models=False),
            ),
        )
    ),
    *(
        _row(
            Obstacle.CLASS,
            _ALL_CONFIGS if family_of(loader) == KERAS3 else "json keras",
            loader,
            "an activation is a function in a module that does not contain it",
            _is_function_misplaced(loader),
        )
        for loader in sorted(releases_in("after tf2.12, keras3.0 on") & set(LOADERS), key=position)
    ),
    _row(
        Obstacle.CLASS,
        "h5 yaml",
        "tf1.15 on",
        "an activation is a function in a dict, which Keras 2 reads only in archives and JSON",
        lambda evidence: bool(evidence.traits.function_places),
    ),
    _row(
        Obstacle.CLASS,
        "json",
        "tf1.15 to tf2.12",
        "an activation is a function in a dict, which needs TF 2.13 or later",
        lambda evidence: bool(evidence.traits.function_places),
    ),
    _row(
        Obstacle.CLASS,
        _ALL_CONFIGS,
        "keras3.9 on",
        "a layer class has a module of TensorFlow, which Keras 3.9 and later do not import",
        lambda evidence: any(
            module == "tensorflow.keras.layers" and name in known_classes()
            for module, name in evidence.traits.references
        ),
    ),
    _row(
        Obstacle.STORAGE,
        "keras",
        "tf2.12",
        "its variable names differ from those that TF 2.12 expects",
        lambda evidence: (
            "tf2.12" not in evidence.releases
            and evidence.traits.root_class in MODEL_CLASSES
            and bool(evidence.document.tensors)
            and (
                evidence.dependency_steps is None
                or storage.COUNTED_ONCE in evidence.dependency_steps
            )
        ),
    ),
    _row(
        Obstacle.STORAGE,
        "keras",
        "tf2.15 on",
        "TF 2.15 and later do not find the variables in the archive layout of TF 2.12 to 2.14 "
        "(`_layer_checkpoint_dependencies`)",
        lambda evidence: evidence.dependency_steps is not None,
    ),
    _row(
        Obstacle.STORAGE,
        "keras",
        "keras3.0 on",
        "Keras 3 does not find all variables in the archive layout of TF 2.12 and 2.13, which "
        "counts each layer twice",
        lambda evidence: storage.COUNTED_TWICE in (evidence.dependency_steps or ()),
    ),
    # architectures that Keras 3 cannot place
    _row(
        Obstacle.MODEL,
        "json",
        "keras3.0 on",
        "the JSON does not specify the module of the model class",
        _lacks_root_module,
    ),
    _row(
        Obstacle.MODEL,
        "keras",
        "tf2.12 on, keras3.0 on",
        "the archive does not specify the module of the model class",
        _lacks_root_module,
    ),
    _row(
        Obstacle.MODEL,
        "json",
        "after tf2.12",
        "the module of the model class is null",
        lambda evidence: _lacks_root_module(evidence) and "module" in evidence.traits.root_keys,
    ),
    # policies
    _row(
        Obstacle.POLICY,
        _ALL_CONFIGS,
        "tf1.15 to tf2.0",
        "policy dicts need TF 2.1 or later",
        _policy_dict(*KERAS2_CLASSES, *_KERAS3_POLICIES),
    ),
    _row(
        Obstacle.POLICY,
        _ALL_CONFIGS,
        "tf2.1 to tf2.3",
        "PolicyV1 needs TF 2.4 or later",
        _policy_dict("PolicyV1"),
    ),
    _row(
        Obstacle.POLICY,
        _ALL_CONFIGS,
        "tf1.15 to tf2.4",
        "mixed policies are stored as plain names, which need TF 2.5 or later",
        _policy_dict("mixed-name", "quantized-name"),
    ),
    _row(
        Obstacle.POLICY,
        _ALL_CONFIGS,
        "tf2.1 on",
        "policies use Keras 3 dicts",
        _policy_dict(*_KERAS3_POLICIES),
    ),
    _row(
        Obstacle.POLICY,
        _ALL_CONFIGS,
        "keras3.0",
        "policies use Keras 2 dicts without a module",
        lambda evidence: (
            _policy_dict(*KERAS2_CLASSES)(evidence)
            and "Policy.module" not in evidence.traits.policy_keys
        ),
    ),
    _row(
        Obstacle.POLICY,
        _ALL_CONFIGS,
        "keras3.3 on",
        "policies use Keras 2 dicts (Policy, PolicyV1)",
        lambda evidence: (
            _policy_dict(*KERAS2_CLASSES)(evidence) and not _only_wrappers_have_dicts(evidence)
        ),
    ),
    _row(
        Obstacle.POLICY,
        _ALL_CONFIGS,
        "keras3.0",
        "quantized policies and policy maps need a later release",
        _policy_dict("quantized-name", *_KERAS3_POLICIES[2:]),
    ),
    _row(
        Obstacle.POLICY,
        _ALL_CONFIGS,
        "keras3.3",
        "quantized policies and policy maps are stored as dicts, which need Keras 3.4 or later",
        _policy_dict(*_KERAS3_POLICIES[2:]),
    ),
    _row(
        Obstacle.POLICY,
        _ALL_CONFIGS,
        "keras3.6",
        "int4, GPTQ and AWQ need a release later than Keras 3.6",
        _policy_dict("Int4DTypePolicy", "GPTQDTypePolicy", "AWQDTypePolicy"),
    ),
    _row(
        Obstacle.STORAGE,
        "h5",
        "keras3.3",
        "Keras 3.3 stores the variables of quantized layers in a different order in HDF5",
        lambda evidence: (
            _policy_dict("quantized-name", *_KERAS3_POLICIES[2:])(evidence)
            and not evidence.is_written_in("keras3.0 to keras3.3")
        ),
    ),
    _row(
        Obstacle.DTYPE,
        _ALL_CONFIGS,
        "keras3.3 on",
        _NORMALIZED_INTEGERS,
        lambda evidence: _are_integers(evidence.traits.normalized_modes),
    ),
    # The sum of the kernel and LoRA is a float; a JSON file of Keras 3.10 loads in 3.12 and 3.15
    *(
        _row(
            Obstacle.DTYPE,
            formats,
            ranges,
            _NORMALIZED_INTEGERS,
            lambda evidence: _are_integers(evidence.traits.summed_modes),
        )
        for formats, ranges in (
            ("h5 yaml keras orbax", "keras3.3 on"),
            ("json", "keras3.3 to keras3.6"),
        )
    ),
    _row(
        Obstacle.DTYPE,
        _ALL_CONFIGS,
        "tf2.1",
        "TF 2.1 does not cast the kernel of ConvLSTM2D under a mixed policy",
        lambda evidence: any(
            name == "ConvLSTM2D" and policy.startswith("mixed_")
            for name, policy in evidence.traits.layer_policies
        ),
    ),
    # Files of TF 2.9 and 2.15 in TF 2.4, 2.5, 2.9, 2.12 and 2.15, with four policies
    *(
        _row(
            Obstacle.DTYPE,
            _ALL_CONFIGS,
            ranges,
            "a stateful recurrent layer has its states in float32, and computes in another dtype",
            applies,
        )
        for ranges, applies in (
            (
                "tf2.4 to tf2.5",
                lambda evidence: any(
                    policy.removeprefix("mixed_") != "float32"
                    for policy in evidence.traits.stateful_policies
                ),
            ),
            ("tf2.9 to tf2.12", lambda evidence: "float64" in evidence.traits.stateful_policies),
        )
    ),
    # edited configs: measured in TF 2.4 to 2.15, tf_keras 2.21 and Keras 3.0, 3.3, 3.6 and 3.15
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "tf1.15 on, keras3.0",
        "an InputLayer has a policy instead of a dtype",
        lambda evidence: bool(evidence.traits.input_policies),
    ),
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "keras3.1 to keras3.3",
        "an InputLayer has a policy object instead of a dtype",
        lambda evidence: evidence.traits.input_policies == {"dict"},
    ),
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "keras3.3 on",
        "an InputLayer has a mixed policy instead of a dtype",
        lambda evidence: "name" in evidence.traits.input_policies,
    ),
    *(
        _row(Obstacle.KEY, formats, ranges, _TYPED_INPUT, applies)
        for formats, ranges, applies in (
            (_ALL_CONFIGS, "tf1.15 on", lambda evidence: bool(evidence.traits.typed_inputs)),
            ("h5", "keras3.0", lambda evidence: "TypeSpec" in evidence.traits.typed_inputs),
        )
    ),
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "keras3.0 on",
        "an InputLayer has no shape, which Keras 3 requires",
        lambda evidence: evidence.traits.unshaped_input,
    ),
    *(
        _row(Obstacle.CLASS, formats, ranges, reason, applies)
        for formats, ranges, looked_up in (
            (_ALL_CONFIGS, "keras3.0 on", lambda traits: traits.places | traits.wrapped_places),
            ("json keras", "after tf2.12", lambda traits: traits.places),
        )
        for reason, applies in (
            (
                "the module of a layer is null",
                lambda evidence, places=looked_up: _is_homeless(places(evidence.traits)),
            ),
            (
                "the module of an initializer, regularizer or constraint is null",
                lambda evidence: evidence.traits.null_parts,
            ),
        )
    ),
    # arrays, which TF 2.13 and later write into the configs of initializers, and archives and JSON
    # into those of layers; measured in TF 2.4 to 2.15 and tf_keras 2.21
    _row(
        Obstacle.KEY,
        "h5",
        "tf1.15 on",
        "an initializer has an array, which Keras 2 does not read from HDF5",
        _class(keras_objects.ARRAY),
    ),
    _row(
        Obstacle.KEY,
        "json",
        "tf1.15 to tf2.12",
        "an argument is an array in the format of TF 2.13 and later",
        _class(keras_objects.ARRAY),
    ),
    *(
        _row(
            Obstacle.KEY,
            formats,
            ranges,
            "an argument of a layer is an array, which Keras 2 reads only in the config of an "
            "initializer",
            lambda evidence: evidence.traits.array_arguments,
        )
        for formats, ranges in (("json", "after tf2.12"), ("keras", "tf2.12 on"))
    ),
    # graph ops
    _row(
        Obstacle.GRAPH,
        "json",
        "tf2.4",
        "an index contains an ellipsis, which TF 2.4 does not read from JSON",
        _class(keras_objects.ELLIPSIS),
    ),
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "tf1.15 to tf2.2",
        "op layers (TFOpLambda) need TF 2.3 or later",
        _class("TFOpLambda"),
    ),
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "tf1.15 to tf2.3",
        "op layers (SlicingOpLambda) need TF 2.4 or later",
        _class("SlicingOpLambda"),
    ),
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "keras3.0 on",
        "Keras 3 does not support Keras 2 op layers",
        _class("TensorFlowOpLayer", "TFOpLambda", "SlicingOpLambda", "ClassMethod"),
    ),
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "tf1.15 on",
        "Keras 2 does not have the operations of Keras 3",
        lambda evidence: any(
            not known_arguments.is_known(known_arguments.LAYERS, name)
            for name in evidence.traits.operations
        ),
    ),
    _row(
        Obstacle.GRAPH,
        "h5",
        "keras3.0 on",
        "HDF5 cannot represent the operations in its graph",
        lambda evidence: any(
            not operation_facts(name).read_as_layer for name in evidence.traits.operations
        ),
    ),
    _row(
        Obstacle.KEY,
        "json keras orbax",
        "after keras3.12",
        "an operation has an axis that its tensor does not have, which Keras 3.12 does not check",
        lambda evidence: evidence.traits.exceeded_axes,
    ),
    _row(
        Obstacle.KEY,
        "json keras orbax",
        "after keras3.12",
        "a convolution has another number of input channels than its kernel, which Keras 3.12 does "
        "not check",
        lambda evidence: evidence.traits.other_channels,
    ),
    # layers of Keras 2 in older Keras 2
    _row(
        Obstacle.KEY,
        f"{_ALL_CONFIGS} savedmodel",
        "tf1.15 to tf2.9",
        "an attention layer is called with `use_causal_mask`, which needs TF 2.10 or later",
        lambda evidence: evidence.traits.causal_calls,
    ),
    # Measured with convolutions in one, two and three dimensions
    _row(
        Obstacle.DTYPE,
        _ALL_CONFIGS,
        "tf2.9",
        "TF 2.9 does not build a convolution with groups under a mixed policy",
        lambda evidence: evidence.traits.mixed_groups,
    ),
    # 3.6 has an operation in its graph for each cast; 3.3 and 3.15 load it
    _row(
        Obstacle.STORAGE,
        "h5 keras",
        "keras3.6",
        "Keras 3.6 reads the variables of layers of several dtypes in another order",
        lambda evidence: evidence.moves_other_shapes,
    ),
    # A file of TF 2.3, which TF 2.4 and 2.5 load, and TF 2.9, 2.15 and tf_keras 2.21 do not
    _row(
        Obstacle.DTYPE,
        _ALL_CONFIGS,
        "tf2.9 on",
        "DenseFeatures under a mixed policy joins an embedding in 16 bits with columns in float32",
        lambda evidence: (
            any(
                name == "DenseFeatures" and policy.startswith("mixed_")
                for name, policy in evidence.traits.layer_policies
            )
            and _class("EmbeddingColumn")(evidence)
            and _class("NumericColumn", "BucketizedColumn", "IndicatorColumn")(evidence)
        ),
    ),
    # Keras 3.6 writes such files if masks are joined; 3.0, 3.6 and 3.15 do not load them
    _row(
        Obstacle.GRAPH,
        "json yaml keras orbax",
        "keras3.0 on",
        "an operation, whose name is not stored, gets the name of a layer",
        lambda evidence: evidence.traits.repeated_names and evidence.is_keras3,
    ),
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "keras3.6",
        "Keras 3.6 joins the masks of a Concatenate in an operation with the name of a layer",
        lambda evidence: evidence.traits.clashing_masks,
    ),
    # Measured in Keras 3.0, 3.3, 3.6, 3.8 and 3.15
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "keras3.6",
        "the query of an attention layer has a mask, which Keras 3.6 cannot pass on",
        lambda evidence: evidence.traits.attends_to_mask,
    ),
    # Both classes, a mask of an Embedding and a causal mask, with mixed_float16, mixed_bfloat16,
    # float16 and float64, in TF 2.1, 2.3, 2.4 and 2.5
    _row(
        Obstacle.DTYPE,
        _ALL_CONFIGS,
        "tf2.1 to tf2.4",
        MASKS_IN_FLOAT32,
        lambda evidence: evidence.traits.masks_in_float32 is True,
    ),
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "tf1.15 to tf2.4",
        "using a layer as an activation needs TF 2.5 or later",
        lambda evidence: evidence.traits.activation_layers,
    ),
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "tf1.15 on",
        "op layers expect float16, but TF 2.0 and older do not store the mixed policy",
        lambda evidence: evidence.traits.half_ops and not evidence.traits.half_policies,
    ),
    # Files of TF 2.4, 2.9, 2.15 and tf_keras 2.21 in these releases
    _row(
        Obstacle.GRAPH,
        f"{_ALL_CONFIGS} savedmodel",
        "tf1.15 on",
        "tf.einsum is stored without its inputs, because Keras 2 stores only the first argument",
        lambda evidence: ("tensorflow", "einsum") in evidence.traits.references,
    ),
    # Measured with a model of TF 1.15, which TF 1.15 loads, and TF 2.3, 2.4, 2.15, the newest
    # tf_keras, and Keras 3.0, 3.6 and the newest Keras do not.
    _row(
        Obstacle.CLASS,
        "h5 json",
        "tf2.3 on, keras3.0 on",
        "the layer class Network exists only in TF 1.13 to 2.2",
        _class("Network"),
    ),
    *(
        _row(
            Obstacle.GRAPH,
            f"{_ALL_CONFIGS} savedmodel",
            ranges,
            "an op layer combines a number with a tensor of another dtype (`1.0 + x`), because "
            "Keras 2 converts numbers to float32 or int32",
            applies,
        )
        for ranges, applies in (
            ("tf1.15 on", lambda evidence: evidence.traits.refused_numbers),
            ("tf2.3 to tf2.13", lambda evidence: bool(evidence.traits.early_constants)),
            ("after tf2.13", lambda evidence: bool(evidence.traits.mismatched_constants)),
        )
    ),
    # Measured with an op on the result of MultiHeadAttention in TF 2.4, 2.9, 2.12 and 2.15: add,
    # concat and matmul, also after a reshape. All load under this policy.
    *(
        _row(
            Obstacle.GRAPH,
            "h5 keras json",
            "tf2.4 to tf2.13",
            "the inner layers of MultiHeadAttention use the global policy, so that an op combines "
            f"float32 with {policy.removeprefix('mixed_')}; call set_global_policy('{policy}') "
            "before loading",
            _mixes_attention(policy),
        )
        for policy in ("mixed_float16", "mixed_bfloat16", "float16", "bfloat16", "float64")
    ),
    # Files of TF 2.4 and 2.9 in TF 2.15
    _row(
        Obstacle.GRAPH,
        "h5 keras json",
        "after tf2.13",
        "an op combines the result of MultiHeadAttention, which has the dtype of its policy since "
        "TF 2.14, with a tensor of another dtype",
        lambda evidence: bool(evidence.traits.mixed_attentions),
    ),
    _row(
        Obstacle.CLASS,
        "h5 keras json",
        "keras3.0 on",
        "layers of tensorflow-model-optimization are layers of Keras 2",
        lambda evidence: any(
            evidence.has_key(name, key) for name, key in KEYS_OF_OPTIMIZED_LAYERS.items()
        ),
    ),
    # models that a file cannot rebuild
    _row(
        Obstacle.MODEL,
        "h5",
        "tf1.15 on, keras3.0 on",
        "HDF5 does not support subclassed models",
        _is_subclassed,
    ),
    _row(
        Obstacle.MODEL,
        "keras",
        "tf2.12",
        "archives from TF 2.15 and tf_keras use different layer paths for subclassed models",
        lambda evidence: (
            evidence.traits.root_class not in MODEL_CLASSES and evidence.is_written_in("tf2.15 on")
        ),
    ),
    _row(
        Obstacle.MODEL,
        "h5",
        "tf1.15 on, keras3.0 on",
        ("a Sequential model without an input shape has no variables until it is called"),
        lambda evidence: (
            evidence.traits.shapeless
            and evidence.traits.root_class == "Sequential"
            and bool(evidence.document.tensors)
        ),
    ),
    # Measured in TF 2.4, 2.9 and 2.15, with files of TF 2.5 to tf_keras 2.21
    *(
        _row(
            Obstacle.MODEL,
            formats,
            ranges,
            "a nested Sequential model has no layers",
            lambda evidence: evidence.traits.empty_models,
        )
        for formats, ranges in ((_ALL_CONFIGS, "tf1.15 to tf2.4"), ("savedmodel", "tf1.15 on"))
    ),
    # Keras 3 in older Keras 3
    _row(
        Obstacle.STORAGE,
        "keras",
        "keras3.0",
        "Keras 3.0 does not find the variables of Bidirectional layers in archives",
        lambda evidence: (
            "Bidirectional" in evidence.traits.class_names and bool(evidence.document.tensors)
        ),
    ),
    # Measured in Keras 3.0, which reads the shapes as lists, and 3.3
    _row(
        Obstacle.MODEL,
        "json keras",
        "keras3.0",
        "Keras 3.0 does not build a Dot for stored shapes",
        lambda evidence: evidence.has_key("Dot", "axes"),
    ),
    # 24 files of Keras 3.3 and 3.6, with LSTM cells alone, below and after others
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "keras3.0",
        "an RNN returns the states of a StackedRNNCells with an LSTM cell",
        lambda evidence: evidence.traits.returned_states,
    ),
    # Measured with 14 models of Keras 3.3 and 3.6
    _row(
        Obstacle.STORAGE,
        "h5",
        "keras3.0",
        "Keras 3.0 counts the variables of the layer in a Bidirectional three times",
        lambda evidence: _class("Bidirectional")(evidence) and bool(evidence.document.tensors),
    ),
    # Measured in Keras 3.0 and 3.3, which write such a model only in a Sequential, and load that.
    # 24 files of TF 2.15 and tf_keras 2.21: they do not build a Sequential with it when they load.
    _row(
        Obstacle.MODEL,
        _ALL_CONFIGS,
        "keras3.0 to keras3.3",
        "TimeDistributed cannot determine the output shape of a model",
        lambda evidence: (
            bool(evidence.traits.distributed_models)
            and not evidence.is_built_late
            and not evidence.is_written_in("keras3.0 to keras3.3")
        ),
    ),
    _row(
        Obstacle.MODEL,
        _ALL_CONFIGS,
        "after keras3.6",
        "TimeDistributed cannot determine the output shape of a model with a list of outputs, as "
        "releases before Keras 3.11 write it",
        lambda evidence: evidence.traits.distributed_lists,
    ),
    # Measured with six classes in two TimeDistributed in Keras 3.0, 3.6 and 3.15
    _row(
        Obstacle.MODEL,
        _ALL_CONFIGS,
        "keras3.0 on",
        "a TimeDistributed in a TimeDistributed stores the input shape of the layer in it, as "
        "tf_keras 2.21 writes it",
        lambda evidence: evidence.traits.flat_distribution,
    ),
    # Files of TF 2.9 and 2.15, tf_keras 2.21, and Keras 3.12 and 3.15 in Keras 3.0 and 3.6
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "keras3.0 to keras3.6",
        "a Normalization has one mean for several values, which Keras 3.0 to 3.6 do not repeat",
        lambda evidence: evidence.repeats_mean,
    ),
    # Measured with ten axes in the formats of these releases
    *(
        _row(
            Obstacle.KEY,
            _ALL_CONFIGS,
            loader,
            "a Normalization has an axis that its input does not have, or whose size is unknown",
            _lacks_axis(loader),
        )
        for loader in sorted(releases_in("tf2.12 on, keras3.0 on") & set(LOADERS), key=position)
    ),
    # Keras 3.0 and 3.6 add the list of sizes to a tuple
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "keras3.0 to keras3.6",
        "MultiHeadAttention has an `output_shape`, which is not read before Keras 3.7",
        lambda evidence: evidence.traits.projected,
    ),
    _row(
        Obstacle.CLASS,
        _ALL_CONFIGS,
        "keras3.6",
        "Keras 3.6 cannot call a Pipeline, which lacks `compute_output_shape`",
        _class("Pipeline"),
    ),
    _row(
        Obstacle.MODEL,
        _ALL_CONFIGS,
        "keras3.0 to keras3.3",
        "uses the single-output format introduced in Keras 3.11",
        lambda evidence: evidence.traits.flat_outputs,
    ),
    _row(
        Obstacle.MODEL,
        _ALL_CONFIGS,
        "keras3.0 to keras3.3",
        "the model stores its single input without a list, which Keras 3.0 to 3.3 do not read",
        lambda evidence: evidence.traits.flat_inputs,
    ),
    # Files of TF 2.1 to 2.15, tf_keras 2.21 and Keras 3.6 in Keras 3.0, 3.3, 3.6 and 3.15
    _row(
        Obstacle.MODEL,
        _ALL_CONFIGS,
        "keras3.0 to keras3.3",
        "the inputs or outputs of a model are lists or dicts in a list or dict, which Keras 3.0 to "
        "3.3 do not read",
        lambda evidence: evidence.traits.nested_tensors,
    ),
    # Files of TF 2.15, tf_keras 2.21, Keras 3.3 and 3.15 in Keras 3.0, 3.3, 3.6 and 3.15, which
    # load if the scores are not used
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "keras3.0",
        "the model uses the scores of a MultiHeadAttention, which Keras 3.0 does not return",
        lambda evidence: "MultiHeadAttention" in evidence.traits.scored,
    ),
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "keras3.0 to keras3.6",
        "the model uses the scores of an Attention or AdditiveAttention, which Keras 3.0 to 3.6 do "
        "not return",
        lambda evidence: not evidence.traits.scored.isdisjoint(inbound_nodes.ATTENTIONS),
    ),
    # layers of Keras 2 in Keras 3
    # `call` of Cropping1D, 2D and 3D in Keras 3.0 and 3.15; Keras 2 returns an empty tensor
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "keras3.0 on",
        "a cropping layer leaves nothing of its input",
        lambda evidence: evidence.crops_everything,
    ),
    _row(
        Obstacle.MODEL,
        "h5",
        "keras3.0",
        "Keras 3 reads the graph of nested models incorrectly",
        lambda evidence: evidence.traits.nested_in_graphs and not evidence.is_keras3,
    ),
    _row(
        Obstacle.MODEL,
        "h5",
        "after keras3.0",
        "Keras 3 reads the graph of nested models incorrectly",
        lambda evidence: evidence.traits.missed_calls and not evidence.is_keras3,
    ),
    # In Keras 3.3 and 3.5 to 3.10, `functional_from_config` unpacks lists of one tensor
    _row(
        Obstacle.MODEL,
        _ALL_CONFIGS,
        "keras3.0, keras3.4, keras3.11 on",
        _LISTED_OUTPUT,
        lambda evidence: evidence.traits.fails_on_list and evidence.lists_outputs,
    ),
    _row(
        Obstacle.MODEL,
        _ALL_CONFIGS,
        "keras3.11 on",
        _LISTED_OUTPUT,
        lambda evidence: evidence.traits.fails_on_list_late and evidence.lists_outputs,
    ),
    _row(
        Obstacle.MODEL,
        "h5",
        "keras3.0 on",
        "Keras 3 reads the input shape of the first layer as a shape without the batch "
        "dimension, and another layer does not accept the extra dimension",
        _meets_rank,
    ),
    _row(
        Obstacle.GRAPH,
        "h5",
        "keras3.0 on",
        "a recurrent layer receives its input and states as one list, which Keras 3 does not "
        "support in Keras 2 HDF5 files",
        lambda evidence: evidence.traits.given_states and not evidence.is_keras3,
    ),
    _row(
        Obstacle.GRAPH,
        _ALL_CONFIGS,
        "tf1.15 on",
        "a recurrent layer receives constants as its states or mask, which Keras 2 stores as "
        "numbers and does not read",
        lambda evidence: evidence.traits.constant_states,
    ),
    _row(
        Obstacle.STORAGE,
        "h5",
        "keras3.3",
        "Keras 3.3 counts the variables of nested Model instances differently",
        lambda evidence: (
            evidence.traits.nested_graphs
            and "Model" in evidence.traits.class_names
            and not evidence.is_keras3
        ),
    ),
    _row(
        Obstacle.GRAPH,
        "h5",
        "after keras3.6",
        "a layer receives a list of masks as an argument, which Keras 3 does not read from Keras 2 "
        "HDF5 files",
        lambda evidence: evidence.traits.mask_lists and not evidence.is_keras3,
    ),
    _row(
        Obstacle.GRAPH,
        "h5",
        "keras3.0 on",
        "MultiHeadAttention receives `value` as a keyword argument, which Keras 3 does not "
        "support in Keras 2 HDF5 files",
        lambda evidence: (
            _class("MultiHeadAttention")(evidence)
            and not evidence.is_keras3
            and not evidence.has_key("MultiHeadAttention", "query_shape")
        ),
    ),
    # Measured in TF 2.3, 2.4, 2.5 and 2.9 with seven models
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "tf1.15 to tf2.5",
        "a StackedRNNCells in a StackedRNNCells has a cell of several states",
        lambda evidence: evidence.traits.stacked_states,
    ),
    # Releases before TF 2.12, and Keras 3.13 and later for the first, compute with both.
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "tf2.12 on, keras3.0 to keras3.12",
        "a depthwise or separable convolution has strides and a dilation rate above 1",
        _dilates_strides("Depthwise", "Separable"),
    ),
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "tf2.12 on, keras3.0 on",
        "a transposed convolution has strides and a dilation rate above 1",
        lambda evidence: any("Transpose" in name for name in evidence.traits.dilated_strides),
    ),
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "tf1.15 on, after keras3.12",
        "a ConvLSTM has strides and a dilation rate above 1",
        _dilates_strides("ConvLSTM"),
    ),
    _row(
        Obstacle.KEY,
        "json keras",
        "keras3.0 on",
        "the axis of a BatchNormalization layer is a list (the Keras 2 format), but Keras 3 "
        "requires a number",
        lambda evidence: "BatchNormalization" in evidence.traits.listed_axes,
    ),
    _row(
        Obstacle.KEY,
        "h5",
        "keras3.0 on",
        "the axis of a BatchNormalization layer inside another layer is a list, which Keras 3 "
        "supports only in top-level layers",
        lambda evidence: evidence.traits.wrapped_axis,
    ),
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "keras3.0 on",
        "an initializer has a `dtype`, which Keras 3 does not support",
        lambda evidence: bool(evidence.traits.dtyped_initializers - _DTYPED),
    ),
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "keras3.0 on",
        "Discretization has no argument `trainable` in Keras 3",
        _key("Discretization", "trainable"),
    ),
    _row(
        Obstacle.KEY,
        "h5 keras orbax",
        "keras3.0 on",
        "a layer name contains a slash, which Keras 3 does not allow",
        lambda evidence: evidence.traits.slashed,
    ),
    _row(
        Obstacle.DTYPE,
        _ALL_CONFIGS,
        "keras3.0 on",
        "a Hashing layer has a float dtype, which was the default up to TF 2.5",
        lambda evidence: evidence.traits.float_hashes,
    ),
    _row(
        Obstacle.DTYPE,
        _ALL_CONFIGS,
        "keras3.0 to keras3.3",
        "a Hashing layer has a policy in a dict, and Keras 3.0 to 3.3 require the name of a dtype",
        lambda evidence: evidence.traits.policy_hashes,
    ),
    _row(
        Obstacle.KEY,
        _ALL_CONFIGS,
        "keras3.0 to keras3.6",
        "using a layer as an activation needs Keras 3.15 or later",
        lambda evidence: evidence.traits.activation_layers,
    ),
    _row(
        Obstacle.CLASS,
        "h5 json keras orbax",
        "keras3.0 on",
        "nested layers are serialized without a module",
        lambda evidence: evidence.traits.bare_nested,
    ),
    _row(
        Obstacle.KEY,
        "h5 json",
        "tf1.15 to tf2.5",
        "a StringLookup layer sets an output dtype, which needs TF 2.6 or later",
        lambda evidence: _class("StringLookup")(evidence) and evidence.is_written_in("tf2.9 on"),
    ),
    # storage
    _row(
        Obstacle.KEY,
        "h5 keras json",
        "keras3.0",
        "a CategoryEncoding receives `count_weights`, which Keras 3.0 does not support",
        lambda evidence: evidence.traits.weighted_counts and evidence.is_keras3,
    ),
    _row(
        Obstacle.STORAGE,
        "h5",
        "keras3.0",
        "Keras 3.0 reads the training configuration even with compile=False, and that of the file "
        "is incomplete",
        _lacks_training_keys,
    ),
    _row(
        Obstacle.STORAGE,
        "h5",
        "tf1.15 to tf2.4",
        "a layer stores its variables in bfloat16, which these releases cannot read from HDF5",
        lambda evidence: any(
            policy == "bfloat16" and _follows_policy(name)
            for name, policy in evidence.traits.layer_policies
        ),
    ),
    _row(
        Obstacle.STORAGE,
        "h5",
        "tf1.15 on, keras3.0 on",
        "no release can read bfloat16 variables from HDF5",
        lambda evidence: evidence.opaque_storage,
    ),
    # Measured in Keras 3.3, 3.6, 3.12 and 3.15: "No cast function available"
    _row(
        Obstacle.STORAGE,
        "keras",
        "keras3.0 on",
        "bfloat16 variables are stored without their dtype, so that no release can read them",
        _observation(UNTYPED),
    ),
    _row(
        Obstacle.STORAGE,
        "keras",
        "after tf2.15",
        "its weights are in model.weights.npz, which these releases do not unpickle",
        _observation("npz-weights"),
    ),
    _row(
        Obstacle.STORAGE,
        "keras",
        "keras3.10 on",
        ("its weights are in model.weights.npz, which Keras 3.10 and later do not support"),
        _observation("npz-weights"),
    ),
    # Measured with the files that TF 2.9, 2.12 and 2.15 leave when they fail to save three lookup
    # layers, with and without adapt, in TF 2.9, 2.12, 2.15 and tf_keras 2.21: none of them loads.
    _row(
        Obstacle.STORAGE,
        "h5",
        "tf2.9 on",
        "the vocabulary of a layer is a table, which HDF5 cannot contain",
        lambda evidence: evidence.traits.tables,
    ),
    # Measured with three lookup layers and their modes in TF 2.9, 2.12, 2.15 and tf_keras 2.21
    *(
        _row(Obstacle.KEY, "json", ranges, _UNCOUNTED, applies)
        for ranges, applies in (
            ("tf2.9", lambda evidence: evidence.traits.uncounted),
            ("tf2.12 on", lambda evidence: evidence.traits.unsized),
        )
    ),
    _row(
        Obstacle.KEY,
        "h5 json keras savedmodel",
        "tf2.9 on, keras3.0 on",
        "a layer pads counts of words to a maximum number that its config does not have",
        lambda evidence: evidence.traits.unlimited,
    ),
    # Files of TF 2.9, 2.12 and 2.15 in Keras 3.0 and 3.15
    _row(
        Obstacle.KEY,
        "h5",
        "keras3.0 on",
        "a layer counts the words of a vocabulary that HDF5 does not contain",
        lambda evidence: evidence.traits.unsized,
    ),
    # Files of TF 2.9, 2.15 and tf_keras 2.21 in Keras 3.0, 3.6 and 3.12
    _row(
        Obstacle.STORAGE,
        "h5",
        "keras3.0 on",
        "the weights of a tf-idf layer are stored as a variable, which the layer does not have in "
        "Keras 3",
        lambda evidence: evidence.traits.weighted and not evidence.is_keras3,
    ),
    # Files of Keras 3.0, 3.6 and 3.12 in 3.0 and 3.6
    _row(
        Obstacle.STORAGE,
        "keras",
        "keras3.0 to keras3.6",
        "the weights of a tf-idf layer are not in its config",
        lambda evidence: evidence.traits.unweighted,
    ),
    # Files of Keras 3.0, 3.6 and 3.15, with three classes of layers, in 3.15
    _row(
        Obstacle.STORAGE,
        "keras",
        "after keras3.6",
        "a tf-idf layer pads its weights to a number of words that its vocabulary does not have",
        lambda evidence: evidence.traits.padded and evidence.is_keras3,
    ),
    _row(
        Obstacle.STORAGE,
        "keras",
        "keras3.0 to keras3.6",
        "its model.weights.npz contains plain arrays instead of layer entries",
        lambda evidence: _observation("npz-weights")(evidence) and bool(evidence.document.tensors),
    ),
    _row(
        Obstacle.STORAGE,
        "keras",
        "tf2.12 on",
        "Keras 2 cannot read bfloat16 variables from archives",
        lambda evidence: evidence.opaque_storage,
    ),
)
"""The first row that applies gives the reason."""
