"""
Parts of a model that files of a target cannot store: names of layers, variables, code of classes,
and the private layers of ``keras.applications`` models.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from policytool.migration.convert.architecture import (
    Network,
    Recipe,
    SerializedObject,
    Unit,
    map_networks,
    map_units,
    replace_references,
    rewire,
    unused_name,
    walk,
)
from policytool.migration.convert.decoding import KERAS_PACKAGES, has_graph
from policytool.migration.convert.masks.flow import makes_mask
from policytool.migration.convert.rewrites._base import ConversionContext, layer_beside, rewrite
from policytool.migration.convert.rewrites.lambdas import lambda_expression
from policytool.migration.plan import COPY_WEIGHTS, CUSTOM_CODE
from policytool.migration.planning.notes import custom_code_words
from policytool.model.calls import Call, Reference
from policytool.model.compatibility.incompatibilities import KEYS_OF_OPTIMIZED_LAYERS
from policytool.model.hazards import LAMBDA, LAMBDA_ADVICE
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.target import Target
    from policytool.model.calls import Argument

_Lacking = tuple[Unit, str, str]
"""
A layer that the target does not support, the code of the refusal, and the rest of its message.
"""


_NO_SCOPE: Final = re.compile(r"^[^A-Za-z0-9.]+|[^A-Za-z0-9_./>-]")
_OF_MASKS: Final = re.compile(
    r"(all|any|broadcast_to|cast|concatenate|expand_dims|logical_and|logical_or|not_equal"
    r"|ones_like|squeeze|where|zeros_like)(_\d+)?"
)
"""The names of operations that ``compute_mask`` of layers in Keras 3.0 to 3.15 creates."""

_SLASHES: Final = "Keras 3 does not allow slashes in names"
_SCOPES: Final = "Keras 2 cannot use the old name as a name scope"
_NAMELESS: Final = "layer"


@rewrite(
    applies=lambda context: context.to_keras3 or context.crosses,
)
def naming(root: Unit, context: ConversionContext) -> Unit:
    """
    Renames layers whose names the other library does not support.

    Keras 3 does not support slashes (``Layer.__init__`` via keras/src/utils/naming.py). Keras 2
    creates a name scope from a layer's name, which must start with a letter, a digit or a dot and
    continue with these and ``_ / > -`` (``name_scope`` in tensorflow/python/framework/ops.py).
    Underscores replace all other characters.

    If a tensor has a mask, ``compute_mask`` of layers adds operations to the graph, whose names are
    the class names with a count (``auto_name`` in keras/src/utils/naming.py). A layer of the file
    with such a name is renamed: a Concatenate of masked inputs would have the same name
    ``concatenate`` as the operation that joins the masks.
    """
    if not context.from_keras3 and any(map(makes_mask, walk(root))):
        root = _apart(root, context)
    change, reason = (_without_slash, _SLASHES) if context.to_keras3 else (_scope_name, _SCOPES)
    return _change_names(
        root, change, lambda network, names: _rename(network, names, context, reason)
    )


def _without_slash(name: str) -> str:
    return name.replace("/", "_")


def _scope_name(name: str) -> str:
    """Return a name that is valid as a name scope of Keras 2."""
    scope = _NO_SCOPE.sub(lambda match: "" if match.start() == 0 else "_", name)
    return scope or _NAMELESS


def _change_names(
    root: Unit,
    change: Callable[[str], str],
    rename: Callable[[Network, Mapping[str, str]], Network],
) -> Unit:
    """Return a model with changed names, which are unique within each network."""

    def plain(value: Value) -> Value:
        """Return a config value with the names of the layers in it changed."""
        if isinstance(value, Unit):
            return replace(value, name=change(value.name))
        return [plain(item) for item in value] if isinstance(value, list) else value

    def inside(unit: Unit) -> Unit:
        """Return a unit after renaming the layers in its config and in its network."""
        renamed = replace(unit, config={key: plain(value) for key, value in unit.config.items()})
        if unit.network is None:
            return renamed
        return replace(renamed, network=rename(unit.network, _names(unit.network, change)))

    return replace(map_units(root, inside), name=change(root.name))


def _apart(root: Unit, context: ConversionContext) -> Unit:
    """Return a model whose layer names differ from those of operations that Keras 3 adds."""

    def change(network: Network) -> Network:
        names = _names(network, lambda name: f"{name}_" if _OF_MASKS.fullmatch(name) else name)
        return _rename(
            network, names, context, "Keras 3 uses the old name for an operation on masks"
        )

    return map_networks(root, lambda network: network if network.is_chain else change(network))


def _names(network: Network, change: Callable[[str], str]) -> dict[str, str]:
    """Return a new, unique name for each changed name."""
    used_names = {unit.name for unit in network.units}
    names: dict[str, str] = {}
    for unit in network.units:
        name = change(unit.name)
        if name != unit.name:
            names[unit.name] = unused_name(name, used_names)
    return names


def _rename(
    network: Network, names: Mapping[str, str], context: ConversionContext, reason: str
) -> Network:
    """Return a network after renaming layers in it and in all references to them."""
    if not names:
        return network
    for member in network.units:
        if member.name in names:
            context.log.change(
                "renamed", member, f"{member.name} is renamed to {names[member.name]}: {reason}"
            )

    def change(reference: Reference) -> Argument:
        return structs.replace(reference, layer=names.get(reference.layer, reference.layer))

    rewired = rewire(network, change)
    units = tuple(replace(unit, name=names.get(unit.name, unit.name)) for unit in rewired.units)
    return replace(rewired, units=units, inputs=replace_references(rewired.inputs, change))


_OTHERWISE: Final = "tf2.12"
"""
The release whose archives store the layers of a subclassed model in other places than later
releases (measured with subclassed models of 2.15, 2.21 and Keras 3.15).
"""

_SHAPED_SINCE: Final = "keras3.6"
"""
The first measured Keras 3 release whose Sequential returns its output shape to a TimeDistributed
(earlier: NotImplementedError in ``compute_output_shape``).
"""

_BFLOAT16_SINCE: Final = "tf2.5"
"""The first release that loads bfloat16 variables from HDF5, which stores them as float32."""

_TABLES_SINCE: Final = "tf2.9"
"""
The first measured release that reads lookup layers from HDF5.

TF 2.3 to 2.5: ``NotImplementedError: Save or restore weights that is not an instance of
`tf.Variable` is not supported in h5``.
"""

_SHAPE: Final = "input_shape"
_OLD_SHAPE: Final = "build_input_shape"
"""The key of the build shape in the config of a Keras 2 Sequential."""


@rewrite(
    after=("inputs", "policies"),  # expects input shapes, and a single policy for each layer
    applies=lambda context: context.target.container != "json",
)
def storage(root: Unit, context: ConversionContext) -> Unit:
    """
    Reports models whose variables cannot be stored in the target's file format: subclassed models
    in HDF5, bfloat16 variables before TF 2.5, and Sequential models that were never built.

    The releases fail on such models (``policytool.model.compatibility.incompatibilities``); these
    refusals name the layers that cause the failures.
    """
    target, log = context.target, context.log
    model_words = f"{root.path} ({root.class_name})"
    if root.network is None:
        if target.container == "h5":
            log.refuse(
                "model",
                root,
                f"{model_words} is a subclassed model, which HDF5 does not support; use a .keras "
                "archive, and make its class available when you load it",
            )
        elif target.loader == _OTHERWISE and context.source_release != _OTHERWISE:
            log.refuse(
                "model",
                root,
                f"{model_words} is a subclassed model, and {target.name} expects its layers at "
                "different paths in an archive; choose a later release",
            )
        elif context.crosses and any(context.loaded.document.tensors or ()):
            _judge_build(root, context, model_words)
        return root
    if (
        root.network.is_chain
        and not has_graph(root)
        and not _is_built(root, context)
        and any(context.loaded.placed.variables.values())
    ):
        log.refuse(
            "model",
            root,
            f"{model_words} has no input shape in the file, and no release creates its variables "
            "without one; set the input shape and save the model again"
            if root.config.get(_OLD_SHAPE) is None
            else f"{model_words} has only input shapes by name, from which no release creates "
            "variables; save it again as a functional model",
        )
    for unit, code, text in (
        *_without_tables(root, target),
        *_without_bfloat16(root, context),
        *_without_shapes(root, target),
    ):
        log.refuse(code, unit, f"{unit.path} ({unit.class_name}) {text}")
    return root


def _judge_build(root: Unit, context: ConversionContext, model_words: str) -> None:
    """
    Refuse a subclassed model that the target cannot build in the same way as the source's library.

    Both call ``build`` with a single shape; without it they load no variables and report no error.
    Only Keras 3 supports several arguments (``shapes_dict``); other keys come from the class's
    ``get_build_config``.
    """
    words = {} if root.build is None else root.build
    if words.get(_SHAPE) is not None and words.keys() == {_SHAPE}:
        return
    reason = (
        f"and no release creates its variables without one; {COPY_WEIGHTS}"
        if not words
        else (f"only {', '.join(sorted(words))}, which {context.target.name} does not read")
    )
    context.log.refuse("model", root, f"{model_words} has no input shape in the file, {reason}")


def _without_tables(root: Unit, target: Target) -> Iterator[_Lacking]:
    """Yield the lookups whose tables the target cannot read from HDF5."""
    if target.container == "h5" and not target.since(_TABLES_SINCE):
        for unit in walk(root):
            if layer_facts(unit.class_name).is_lookup and not unit.custom:
                yield (
                    unit,
                    "class",
                    (
                        f"has a lookup table, which {target.name} cannot read from HDF5; choose "
                        "a later release"
                    ),
                )


def _without_bfloat16(root: Unit, context: ConversionContext) -> Iterator[_Lacking]:
    """Yield the layers whose bfloat16 variables the target cannot read from HDF5."""
    target = context.target
    if target.container == "h5" and not target.since(_BFLOAT16_SINCE):
        for unit in _in_bfloat16(root, context):
            text = f"stores its variables in bfloat16, which {target.name} cannot read from HDF5"
            yield (
                unit,
                "policy",
                f"{text}; use --set {unit.path}=mixed_bfloat16 to store them as float32",
            )


def _without_shapes(root: Unit, target: Target) -> Iterator[_Lacking]:
    """
    Yield the TimeDistributed layers around a Sequential model, whose output shape the target cannot
    compute.
    """
    if target.is_keras3 and not target.since(_SHAPED_SINCE):
        for unit in walk(root):
            layer = unit.config.get("layer") if unit.class_name == "TimeDistributed" else None
            if isinstance(layer, Unit) and layer.network is not None and layer.network.is_chain:
                text = f"wraps a Sequential model, whose output shape {target.name} cannot compute"
                yield (
                    unit,
                    "class",
                    f"{text}; choose a later release, or wrap a functional model instead",
                )


def _is_built(root: Unit, context: ConversionContext) -> bool:
    """
    Return whether the file contains the shape with which the target builds the model. No release
    builds a Sequential model from the shapes of several inputs by name.
    """
    if isinstance(root.config.get(_OLD_SHAPE), list):
        return True
    return (
        context.target.container == "keras"
        and root.build is not None
        and isinstance(root.build.get(_SHAPE), list)
    )


def _in_bfloat16(root: Unit, context: ConversionContext) -> Iterator[Unit]:
    """Yield the layers that store variables in bfloat16."""
    placed = context.loaded.placed.variables
    for unit in walk(root):
        policy = unit.config.get("dtype")
        stores = (
            unit.site is not None
            and bool(placed.get(unit.site))
            and not layer_facts(unit.class_name).keeps_moving_statistics
        )  # Keras 2 creates their variables in float32 under any 16-bit policy
        if stores and isinstance(policy, Policy) and policy.variable_dtype == "bfloat16":
            yield unit


_FEATURES: Final = frozenset({"DenseFeatures", "SequenceFeatures"})


@rewrite(
    after=("applications", "named_lambdas"),  # they replace custom classes and code
    applies=lambda context: context.crosses,
)
def code(root: Unit, context: ConversionContext) -> Unit:
    """
    Reports layers whose results are unknown: layers that contain code, custom layers, and layers
    that require TensorFlow feature columns.
    """
    custom_units: dict[str, Unit] = {}
    for unit in walk(root):
        if unit.custom and context.to_keras3 and _is_optimized(unit):
            context.log.refuse(
                "class",
                unit,
                f"{unit.path} ({unit.class_name}) belongs to tensorflow-model-optimization, whose "
                "layers are layers of Keras 2; convert a copy without these layers, such as the "
                "result of strip_pruning or strip_clustering",
            )
        elif unit.custom:
            if unit.module is not None and unit.module.partition(".")[0] in KERAS_PACKAGES:
                context.log.refuse(
                    "class",
                    unit,
                    f"{unit.path} ({unit.class_name}) is a class from {unit.module}, which "
                    f"{context.target.name} cannot import",
                )
            custom_units.setdefault(unit.class_name, unit)
        elif unit.class_name == LAMBDA and not isinstance(
            unit.config.get("function"), SerializedObject
        ):
            expression = lambda_expression(unit, context)
            reason = (
                f"computes {expression.text} with Python bytecode, which depends on the Python "
                "version"
                if expression is not None
                else "contains Python bytecode or a function name, which the other library reads "
                "differently"
            )
            context.log.refuse(
                "lambda",
                unit,
                f"{unit.path} (Lambda) {reason}; {LAMBDA_ADVICE}",
            )
        elif unit.class_name in _FEATURES and context.to_keras3:
            context.log.refuse(
                "class",
                unit,
                f"{unit.path} ({unit.class_name}): {context.target.name} has no feature columns",
            )
    if custom_units:
        context.log.caution(
            CUSTOM_CODE,
            None,
            custom_code_words(custom_units, context.target.name),
        )
    return root


def _is_optimized(unit: Unit) -> bool:
    """Return whether a custom layer is one of tensorflow-model-optimization."""
    return KEYS_OF_OPTIMIZED_LAYERS.get(unit.class_name) in unit.config


_SCALED_SUM: Final = "CustomScaleLayer"
_SUM_KEYS: Final = frozenset({"trainable", "dtype", "scale"})
_UNNAMED: Final = f"Custom>{_SCALED_SUM}"
"""The registered name of the class without a package."""

_CHANNELS: Final = "LayerScale"
_SIZE: Final = "projection_dim"
_ONLY: Final = "0"
"""The name of a layer's single variable in archives, the only format with modules."""


@rewrite(
    applies=lambda context: context.crosses,
)
def applications(root: Unit, context: ConversionContext) -> Unit:
    """
    Replaces the private layers of ``keras.applications`` models, which no release exports, with
    layers that all releases have.

    ``CustomScaleLayer`` (keras/applications/inception_resnet_v2.py, TF 2.13 and later) adds its
    second input, multiplied by a factor, to its first. ``LayerScale``
    (keras/applications/convnext.py) multiplies each channel of images by a weight, like an
    EinsumDense without a bias. The equation does not use ``...``, which TF 2.4 parses incorrectly.
    Both are identified by their module; HDF5 files do not contain it, so only ``CustomScaleLayer``
    is identified, by its registered name in tf_keras.
    """

    def change(unit: Unit) -> Unit:
        if unit.network is not None and not unit.network.is_chain:
            return replace(unit, network=_sums(unit.network, context))
        return _channels(unit, context) if _is_channels(unit) else unit

    return map_units(root, change)


def _is_own(unit: Unit, class_name: str, module: str) -> bool:
    """Return whether a layer has a private class of a Keras module."""
    root, _, submodule = (unit.module or "").partition(".")
    return (
        unit.custom
        and unit.class_name == class_name
        and root in KERAS_PACKAGES
        and submodule.removeprefix("src.") == module
    )


def _is_sum(unit: Unit) -> bool:
    """
    Return whether a unit is the private layer of InceptionResNetV2 that adds a scaled residual.
    """
    known = _is_own(unit, _SCALED_SUM, "applications.inception_resnet_v2") or (
        unit.custom
        and unit.class_name == _SCALED_SUM
        and unit.module is None
        and unit.registered_name == _UNNAMED
        and unit.config.keys() <= _SUM_KEYS
    )
    return (
        known
        and isinstance(unit.config.get("scale"), int | float)
        and all(_is_pair(call) for call in unit.calls)
    )


def _is_pair(call: Call) -> bool:
    return (
        len(call.args) == 1
        and isinstance(call.args[0], list | tuple)
        and [type(argument) for argument in call.args[0]] == [Reference, Reference]
    )


def _sums(network: Network, context: ConversionContext) -> Network:
    """Return a graph with a Rescaling of the second input and an Add for each scaled sum."""
    names = {unit.name for unit in network.units}
    units: list[Unit] = []
    for unit in network.units:
        if not _is_sum(unit) or f"{unit.name}_scale" in names:
            units.append(unit)
            continue
        scaling = layer_beside(unit, "Rescaling", "scale", scale=unit.config["scale"], offset=0.0)
        pairs = [
            list(call.args[0]) for call in unit.calls if isinstance(call.args[0], list | tuple)
        ]
        units.append(replace(scaling, calls=tuple(Call(args=(pair[1],)) for pair in pairs)))
        sums = tuple(
            Call(args=([pair[0], Reference(layer=scaling.name, call=number)],))
            for number, pair in enumerate(pairs)
        )
        context.log.change(
            "unexported-class",
            unit,
            f"{_SCALED_SUM} becomes Rescaling and Add because no release exports this class",
        )
        units.append(replace(_as_public(unit.without("scale"), "Add"), calls=sums))
    return replace(network, units=tuple(units))


def _as_public(unit: Unit, class_name: str) -> Unit:
    """Return a layer after replacing its private class by a public class."""
    public = replace(unit, custom=False, registered_name=None, module=None, build=None)
    return replace(public, class_name=class_name)


def _is_channels(unit: Unit) -> bool:
    return _is_own(unit, _CHANNELS, "applications.convnext") and isinstance(
        unit.config.get(_SIZE), int
    )


def _channels(unit: Unit, context: ConversionContext) -> Unit:
    """Return a layer that scales channels as an EinsumDense."""
    context.log.change(
        "unexported-class",
        unit,
        f"{_CHANNELS} becomes EinsumDense because no release exports this class",
    )
    without_initializer = unit.without("init_values", _SIZE).with_config(
        equation="abcd,d->abcd", output_shape=[None, None, unit.config[_SIZE]], bias_axes=None
    )
    layout = {"kernel": Recipe(parts=(_ONLY,))}
    return replace(_as_public(without_initializer, "EinsumDense"), layout=layout)
