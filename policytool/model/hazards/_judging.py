"""
The effects of loading an object in a config: an object with a class name, or a value in a format of
Keras.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.model import inbound_nodes
from policytool.model.calls import CONSTANT
from policytool.releases import keras_objects, known_arguments, lambda_code, symbols
from policytool.releases.layer_classes import layer_facts, public_class_name
from policytool.releases.symbols import in_tensorflow, is_foreign, is_harmful, is_own, op
from policytool.support.errors import short
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.document import Address
    from policytool.support.text.jsontext import Json


class Harm(StrEnum):
    """The possible harm of loading a file."""

    CODE = "code"
    """The object is code, which the release runs."""

    NAMED = "named"
    """It names code with access to files, the network or Python, which a release looks up."""

    UNKNOWN = "unknown"
    """
    It names an object of a library that is not on a list of names that only compute, or has a
    format that no release writes.
    """

    CUSTOM = "custom"
    """It names custom code, which has to be available."""

    PROGRAM = "program"
    """It makes the release unpickle a module, or load the graph of another model."""

    FILE = "file"
    """It makes the release open or download another file."""

    ENDLESS = "endless"
    """It makes loading never end."""


RUNNING: Final = frozenset({Harm.CODE, Harm.NAMED, Harm.PROGRAM})
"""The harms of code that a release runs."""


class Hazard(Struct, frozen=True, kw_only=True):
    """A harmful or unknown part of a file."""

    harm: Harm
    name: str
    """The name, unique within the layer: a class, a function with its module, or a config key."""

    what: str
    """The effect, as a predicate."""

    address: Address
    site: int | None
    """The layer that contains it; None if it is not in a layer, as in a training configuration."""

    module: str | None = None
    """
    The stored module of the object, which a release may import; None if the file stores none.
    """


HazardParts = tuple[Harm, str, str]
"""The harm, the name and the predicate of a hazard whose place is not yet known."""


_NOT_PURE: Final = "which is not on the allow-list of functions"


def find_wrapped(
    class_name: str, config: dict[str, Json], entry: dict[str, Json]
) -> Iterator[HazardParts]:
    """
    Yield hazards for the functions that a wrapper calls and that are not known to only compute.

    :param entry: the layer's entry in its model, with its calls (``inbound_nodes``).
    """
    named_by = layer_facts(class_name).wrapped_op
    if named_by == "function":
        yield from _find_wrapped_function(config.get("function"))
    elif named_by == "class_method":
        yield from _find_class_method(config)
    elif named_by == "attribute":
        yield from _find_attribute(class_name, config.get("attr_name"))
    else:
        yield from _find_op(config.get("node_def"))
    if any(
        all(name == CONSTANT for name, _ in inbound_nodes.tensors(node))
        for node in keras_objects.stored_calls(entry)
    ):
        yield (
            Harm.UNKNOWN,
            "constants",
            ("has a call with only constant inputs, which no release writes"),
        )


def _find_wrapped_function(name: Json) -> Iterator[HazardParts]:
    """Yield the hazard of the TensorFlow function that an op layer calls."""
    if not isinstance(name, str):
        yield Harm.UNKNOWN, "function", "does not refer to a TensorFlow function"
    elif not (
        symbols.is_pure_function(name)
        or (name.startswith(symbols.RAW) and symbols.is_pure_op(name.removeprefix(symbols.RAW)))
    ):
        yield from _find_call(f"tensorflow.{name}", harmful=in_tensorflow(name))


def _find_class_method(config: dict[str, Json]) -> Iterator[HazardParts]:
    """
    Yield the hazard of a method of a class. If no release wraps the class, the method is looked up
    in all names of TensorFlow.
    """
    owner, method = config.get("cls_symbol"), config.get("method_name")
    if not (
        isinstance(owner, str)
        and isinstance(method, str)
        and symbols.is_class_method(owner, method)
    ):
        yield from _find_call(f"tensorflow.{owner}.{method}", harmful=True)


def _find_attribute(class_name: str, name: Json) -> Iterator[HazardParts]:
    """
    Yield the hazard of a tensor attribute that an op layer reads; none if it is on the allow-list.
    """
    if not (isinstance(name, str) and symbols.is_tensor_attribute(class_name, name)):
        yield (
            Harm.UNKNOWN,
            str(name),
            (
                f"reads the tensor attribute {short(str(name))}, which is not on the allow-list "
                "of attributes"
            ),
        )


def _find_op(node: Json) -> Iterator[HazardParts]:
    """
    Yield the hazard of the op in the ``node_def`` of an op layer. All releases write it as JSON; a
    release would parse text as protobuf.
    """
    name = node.get("op") if isinstance(node, dict) else None
    if not isinstance(node, dict) or not isinstance(name, str):
        yield (
            Harm.UNKNOWN,
            "node_def",
            "stores its op in a format other than JSON, which no release does",
        )
    elif harmful := op(name):
        yield Harm.NAMED, name, f"runs the op {name}, which {harmful.what}"
    elif not symbols.is_pure_op(name) or _has_function(node.get("attr")):
        yield (
            Harm.UNKNOWN,
            name,
            f"runs the op {short(name)}, which is not on the allow-list of ops",
        )


def _has_function(attributes: Json) -> bool:
    """Return whether an attribute names a function, which is never in a config."""
    values = attributes.values() if isinstance(attributes, dict) else ()
    return any(
        isinstance(value, dict)
        and (
            "func" in value or (isinstance(listed := value.get("list"), dict) and "func" in listed)
        )
        for value in values
    )


def _find_call(name: str, *, harmful: bool) -> Iterator[HazardParts]:
    """Yield the hazard of a call that is not on the allow-list of functions."""
    if harmful:
        yield Harm.NAMED, name, f"calls {short(name)}, which accesses resources outside the model"
    else:
        yield Harm.UNKNOWN, name, f"calls {short(name)}, {_NOT_PURE}"


LAMBDA: Final = "Lambda"
LAMBDA_ADVICE: Final = (
    "replace it with layers in the source and save the model again; without the source, build the "
    "other layers in code, save the architecture, and add the weights with migrate "
    "architecture.json --weights FILE"
)
_CHECKPOINT: Final = "ckpt_to_load_from"
"""The argument of a feature column that names a checkpoint."""

_TYPE: Final = "_type"
_RUNS: Final = "which runs when the model loads without safe mode"
_BYTE_CODE: Final = "byte code"
_FUNCTION: Final = "function"
_NAMING: Final = ("activation", "initializer", "regularizer", "constraint", "init")
"""
Suffixes of the arguments whose text Keras looks up as the name of a function or class. ``init`` is
for Keras 1.
"""

_KERAS1: Final = (
    "init",
    "_regularizer",
    "_constraint",
    "inner_activation",
    "border_mode",
    "dim_ordering",
    "consume_less",
    "mode",
    "input_dtype",
)
"""
Suffixes of the arguments of Keras 1 with text, which no measured release writes (keras/layers of
Keras 1.2.2).
"""

_CALLING: Final = ("fn", "partitioner")
"""
Suffixes of the arguments with a function: of metrics (``fn``), wrappers of RNN cells
(``residual_fn``) and feature columns (``normalizer_fn``).
"""


def find(value: dict[str, Json]) -> Iterator[HazardParts]:
    """Yield the hazards of an object in a config, independent of the object that contains it."""
    for key, kind in value.items():
        if kind == "lambda" and key.endswith(_TYPE) and value.get(key.removesuffix(_TYPE)):
            yield (
                Harm.CODE,
                _BYTE_CODE,
                (
                    f"contains Python bytecode ({key.removesuffix(_TYPE)}"
                    f"{_code_text(value, ': ')}), which runs when the model loads"
                ),
            )
    class_name, config = keras_objects.class_of(value), value.get("config")
    if class_name is None:
        if isinstance(value.get(keras_objects.CLASS), dict):
            yield (
                Harm.UNKNOWN,
                keras_objects.CLASS,
                ("stores its class name as an object instead of text, which no release does"),
            )
        return
    if class_name == keras_objects.CODE:
        text = f"{keras_objects.CODE}{_code_text({'function': value}, ': ')}"
        yield Harm.CODE, _BYTE_CODE, f"contains Python bytecode ({text}), {_RUNS}"
    elif class_name in {"TypeSpec", "__typespec__"}:
        yield from _find_tensor_type(value)
    elif class_name == _FUNCTION and isinstance(config, str):
        yield from _find_function(value, config)
    elif isinstance(config, dict):
        yield from _find_in_object(value, class_name, config)
    else:
        yield from _find_class(value, class_name)
    if (
        isinstance(config, dict)
        and "output_layers" in config
        and (uncallable := inbound_nodes.uncallable_layers(config))
    ):
        yield Harm.ENDLESS, "graph", f"has {inbound_nodes.describe_stuck(uncallable)}"


def _find_in_object(
    value: dict[str, Json], class_name: str, config: dict[str, Json]
) -> Iterator[HazardParts]:
    """
    Yield the hazards of an object with a class name and a config: those of its kind of layer, then
    of its class, then of its arguments.
    """
    layer_hazards = (
        _find_lambda_code(config)
        if class_name == LAMBDA
        else find_wrapped(class_name, config, value)
        if layer_facts(class_name).is_op_layer
        else _find_file(class_name, config)
    )
    has_hazard = False
    for hazard in layer_hazards:
        has_hazard = True
        yield hazard
    if not has_hazard or not layer_facts(class_name).opens:
        yield from _find_class(value, class_name)
    yield from _find_arguments(value, class_name, config)


def _find_lambda_code(config: dict[str, Json]) -> Iterator[HazardParts]:
    """
    Yield the hazards of the code that a Lambda runs: byte code, or the name of a function, which
    Keras 2 looks up in all loaded modules.
    """
    function = config.get("function")
    for key in ("function", "output_shape", "mask"):
        module, name = (
            config.get("module" if key == "function" else f"{key}_module"),
            config.get(key),
        )
        if isinstance(module, str) and isinstance(name, str) and is_harmful(module, name):
            yield (
                Harm.NAMED,
                f"{module}.{name}",
                f"calls {short(f'{module}.{name}')}, which does not belong in a model",
            )
    if isinstance(function, str) and config.get("function_type") != "lambda":
        yield (
            Harm.CUSTOM,
            f"{function} of a {LAMBDA}",
            f"is a Lambda that calls the Python function {short(function)}",
        )
    elif isinstance(function, list) or not isinstance(function, dict):
        text = _code_text(config, " (", ")")
        yield Harm.CODE, _BYTE_CODE, f"is a Lambda with Python bytecode{text}, {_RUNS}"


def _code_text(config: dict[str, Json], before: str, after: str = "") -> str:
    """Return what the byte code of a Lambda computes, between two texts; empty if unknown."""
    expression = lambda_code.expression(config)
    return f"{before}{expression.text}{after}" if expression is not None else ""


def _find_file(class_name: str, config: dict[str, Json]) -> Iterator[HazardParts]:
    """Yield the hazard of a Keras layer that opens another file when it is built."""
    facts = layer_facts(class_name)
    if facts.opens:
        key = facts.opens["argument"]
        file_argument = config.get(key)
        if file_argument:
            yield (
                Harm.PROGRAM,
                key,
                facts.opens["effect"].format(
                    short(file_argument) if isinstance(file_argument, str) else "another file"
                ),
            )
    elif (
        (facts.is_lookup or class_name.endswith("Lookup"))
        and isinstance(config.get("vocabulary"), str)
        and config["vocabulary"]
    ):
        yield (
            Harm.FILE,
            "vocabulary",
            (
                f"reads its vocabulary from {short(str(config['vocabulary']))} on the machine "
                "that loads the model"
            ),
        )
    elif config.get(_CHECKPOINT):
        yield (
            Harm.FILE,
            _CHECKPOINT,
            (
                f"reads its weights from {short(str(config[_CHECKPOINT]))} on the machine "
                "that loads the model"
            ),
        )


def _find_tensor_type(value: dict[str, Json]) -> Iterator[HazardParts]:
    """
    Yield the hazard of a tensor type that a release looks up: by module in the Keras format, or by
    registered name in metadata.
    """
    # each of the two names is looked up by another release
    names, module = (
        [value[key] for key in ("type_spec", "spec_name") if value.get(key)],
        value.get("module"),
    )
    name = next(
        (
            spec_name
            for spec_name in names
            if not (isinstance(spec_name, str) and symbols.is_pure_spec(spec_name))
        ),
        names[0] if names else None,
    )
    is_foreign_module = (
        module is not None
        and not str(module).startswith("tensorflow.python.framework.")
        and not str(module).startswith("tensorflow.python.ops.")
    )
    if (
        not isinstance(name, str)
        or not symbols.is_pure_spec(name)
        or is_foreign_module
        or value.get("registered_name")
    ):
        yield (
            Harm.UNKNOWN,
            str(name),
            (
                f"refers to the type {short(f'{module}.{name}' if module else str(name))}, "
                "which is not a tensor type"
            ),
        )


def _find_function(value: dict[str, Json], name: str) -> Iterator[HazardParts]:
    """
    Yield the hazard of a function that is looked up by its module, or, in older releases, by its
    registered name.
    """
    module, registered = value.get("module"), value.get("registered_name")
    module_name = module if isinstance(module, str) and module else None
    full_name = f"{module_name}.{name}" if module_name else name
    if module_name and is_harmful(module_name, name):
        yield (
            Harm.NAMED,
            full_name,
            f"refers to {short(full_name)}, which does not belong in a model",
        )
    elif (
        isinstance(registered, str)
        and registered not in {name, _FUNCTION}
        and (module_name is None or not is_foreign(module_name))
    ):
        yield Harm.CUSTOM, registered, f"needs {registered}, a registered custom object"
    elif not symbols.is_pure_function_of(module_name, name):
        is_bare = not module_name or symbols.is_custom_function(name, module_name)
        if module_name and not is_bare and not is_foreign(module_name):
            yield (
                Harm.UNKNOWN,
                full_name,
                (f"refers to {short(full_name)}, which is not on the allow-list of functions"),
            )
        else:
            yield (
                Harm.CUSTOM,
                name,
                f"needs {name}, which is not a Keras function"
                if is_bare
                else f"needs {name} from {module_name}",
            )


def _find_class(value: dict[str, Json], class_name: str) -> Iterator[HazardParts]:
    """Yield the hazard of a class that is not known to only compute."""
    module, registered = value.get("module") or None, value.get("registered_name")
    name = class_name.rpartition(">")[2] if is_own(class_name) else class_name
    looked_up_name = registered if isinstance(registered, str) else class_name
    is_judged_by_call = name == LAMBDA or layer_facts(name).is_op_layer
    if isinstance(module, str) and (
        is_harmful(module, name) or is_foreign(module) or class_name.startswith("__")
    ):
        yield from _find_foreign_class(value, module, name, looked_up_name)
    elif ">" in name or (
        public_class_name(looked_up_name) != public_class_name(class_name)
        and not is_own(looked_up_name)
    ):
        yield Harm.CUSTOM, looked_up_name, f"needs {looked_up_name}, a registered custom object"
    elif not is_judged_by_call and (reason := symbols.exclusion_reason(name)):
        yield Harm.UNKNOWN, name, f"uses the class {name}, which {reason}"
    elif not (is_judged_by_call or symbols.is_pure_class(name)):
        yield Harm.CUSTOM, looked_up_name, f"needs {looked_up_name}, which is not a Keras class"
    elif isinstance(module, str) and not symbols.is_modelling(module):
        yield (
            Harm.UNKNOWN,
            f"{module}.{name}",
            f"refers to {short(f'{module}.{name}')}, but this module contains no layers",
        )


def _find_foreign_class(
    value: dict[str, Json], module: str, name: str, registered_name: str
) -> Iterator[HazardParts]:
    """
    Yield the hazard of a class in a module outside Keras, which a release imports unless the class
    is registered under its name.
    """
    qualified_name = short(f"{module}.{name}")
    if is_harmful(module, name):
        yield (
            Harm.NAMED,
            f"{module}.{name}",
            f"refers to {qualified_name}, which does not belong in a model",
        )
    elif name.startswith("__"):
        yield (
            Harm.UNKNOWN,
            f"{module}.{name}",
            (
                f"uses the serialization marker {qualified_name} with a module, which no release "
                "does"
            ),
        )
    elif not (
        symbols.is_pure_class_of(module, name)
        or symbols.is_pure_hub_class(module, name, registered_name)
    ):
        if isinstance(value.get("registered_name", ""), str):
            yield Harm.CUSTOM, registered_name, f"needs {name} from {module}"
        else:
            yield (
                Harm.UNKNOWN,
                f"{module}.{name}",
                (
                    f"refers to {qualified_name} without a registered name, so loading imports "
                    "the module"
                ),
            )


def _find_arguments(
    value: dict[str, Json], class_name: str, config: dict[str, Json]
) -> Iterator[HazardParts]:
    """
    Yield the hazards of text that Keras looks up as the name of a custom function, and of text in
    an argument that no release writes.
    """
    for key, text in config.items():
        if (
            isinstance(text, str)
            and text
            and key.endswith(_NAMING + _CALLING)
            and not symbols.is_pure_name(text)
            and not (_is_of_hub(value, class_name) and symbols.is_hub_activation(text))
        ):
            yield (
                Harm.CUSTOM,
                text,
                (
                    f"needs {short(text)}, which is not a Keras "
                    f"{'function' if key.endswith(_CALLING) else key.rpartition('_')[2]}"
                ),
            )
        elif isinstance(text, list) and text and key.endswith(_CALLING):
            yield (
                Harm.CODE,
                _BYTE_CODE,
                f"contains Python bytecode ({short(key)}), {_RUNS}",
            )
    if known_arguments.is_known(known_arguments.LAYERS, class_name):
        for key in known_arguments.unknown_keys(
            known_arguments.LAYERS,
            class_name,
            tuple(
                key for key, item in config.items() if not key.endswith(_KERAS1) and _has_text(item)
            ),
        ):
            yield (
                Harm.UNKNOWN,
                key,
                f"has the argument {short(key)}, which no release writes for {class_name}",
            )


def _is_of_hub(value: dict[str, Json], class_name: str) -> bool:
    """Return whether an object is of a reviewed class of KerasHub."""
    module = value.get("module")
    return isinstance(module, str) and symbols.is_pure_hub_class(
        module, class_name, value.get("registered_name")
    )


def _has_text(value: Json) -> bool:
    """
    Return whether a value contains text at any depth. Numbers are harmless in all arguments.
    """
    return any(isinstance(leaf, str) for leaf in jsontext.leaves(value))
