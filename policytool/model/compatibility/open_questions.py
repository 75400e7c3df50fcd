"""The parts of a model because of which it is unknown whether a release loads it."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats import WITHOUT_WEIGHTS
from policytool.model import inbound_nodes
from policytool.model.compatibility import restored_objects
from policytool.model.compatibility.evidence import ORDERING_BY_CASTS
from policytool.model.compatibility.expected_variables import CALIBRATED
from policytool.model.compatibility.incompatibilities import MASKS_IN_FLOAT32, is_mistaken_root
from policytool.model.compatibility.mask_changes import mask_changes
from policytool.model.model import Cause, Obstacle
from policytool.model.tree import INPUT_CLASS, path_of
from policytool.releases import keras_objects, known_arguments
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import LOADERS, is_since, release_name, releases_in
from policytool.support.errors import short
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from policytool.formats.document import Document
    from policytool.model.compatibility.evidence import Evidence
    from policytool.model.compatibility.serialized_objects import ObjectGroup
    from policytool.model.tree import Site
    from policytool.model.writer_version import ConfigTraits
    from policytool.releases.releases import Release
    from policytool.support.text.jsontext import Json

UNTRIED: Final = frozenset({"keras1"})
"""Generations without a fixture."""

_OP_LAYER_KEYS: Final = frozenset(
    {
        *("name", "trainable", "dtype", "autocast", "function", "method", "symbol"),
        *("node_def", "constants"),
    }
)
"""The keys that releases write into the configs of op layers."""

_SHOWN: Final = 3
_WALKED: Final = 900
"""
The depth in calls that all releases can walk with the default recursion limit of Python.

If the program calls them at its top level, they reach a depth of 984 to 987 (TF 2.4, 2.9, 2.15,
tf_keras 2.21, Keras 3.0, 3.15).
"""

_KERAS2: Final = releases_in("tf1.15 on")
_KERAS3: Final = releases_in("keras3.0 on")
_CHECKING_BYTECODE: Final = {
    "h5": releases_in("keras3.12 on"),
    "keras": releases_in("tf2.12 on, keras3.0 on"),
}
"""By file format, the releases whose safe mode rejects the bytecode of a Lambda."""

_REVIVING: Final = releases_in("tf2.3 on")
"""The releases that restore layers from traces (:mod:`restored_objects`)."""

_ALL: Final = frozenset(LOADERS)
_BEFORE_VOCABULARIES: Final = releases_in("tf2.3 to tf2.5")
_BEFORE_TABLES: Final = releases_in("tf1.15 to tf2.5")
_BEFORE_AXES: Final = releases_in("keras3.0 to keras3.6")
"""The releases of Keras 3 that also drop an axis that is a number."""

_UNPICKLING: Final = releases_in("tf2.12 to tf2.15, keras3.0 to keras3.6")
"""The releases whose ``NpzIOStore`` has ``allow_pickle=True``."""

_AT_MINUS_ONE: Final = 1
"""The index of the value at -1 in the result of :func:`known_arguments.activation_values`."""

_MIXED: Final = frozenset({"mixed_float16", "mixed_bfloat16"})
_LAST: Final = -1
_INNER: Final = frozenset({1, 2, -2})
"""
Axes that are not the last axis of most tensors. Other axes usually are the last one, and to drop
them changes nothing.
"""


_READ: Final = frozenset({(INPUT_CLASS, "type_spec")})
"""Arguments that releases write only on request, and read (TF 2.12, 2.15 and tf_keras 2.21)."""


class Doubt(Struct, frozen=True, kw_only=True):
    """A possible reason for a release to fail."""

    cause: Cause
    loaders: frozenset[str] | None = None
    """The affected releases; None for all."""


def of(
    evidence: Evidence,
    origins: Sequence[Release],
    sites: Sequence[Site],
    groups: Sequence[ObjectGroup],
) -> tuple[Doubt, ...]:
    """Return the doubts about loading a model."""
    return (
        *_code(evidence.traits),
        *_untried_release(origins),
        *_unshaped_input(evidence),
        *_merge((*_about_groups(evidence, sites, groups), *_axes(evidence, sites))),
        *_deep(evidence.traits),
        *_operations(evidence.document, evidence.traits),
        *_op_layers(origins, sites),
        *_shared_layers(evidence),
        *_masked_queries(evidence, sites),
        *_variable_order(evidence),
        *_activations(origins, groups),
        *_masks(evidence, origins, sites),
        *_shape_in_layer(evidence),
        *_pickled_weights(evidence),
        *_mistaken_root(evidence),
        *_uncalled_kernels(evidence),
        *_lost_vocabularies(evidence),
    )


def _about_groups(
    evidence: Evidence, sites: Sequence[Site], groups: Sequence[ObjectGroup]
) -> Iterator[Doubt]:
    """Yield doubts about groups, except for releases that restore the layers from their traces."""
    is_traced = evidence.document.format == "savedmodel" and any(map(_lacks_code, groups))
    revived = frozenset(
        restored_objects.traced_paths(evidence.document, sites) if is_traced else ()
    )
    for group in groups:
        is_revived = _lacks_code(group) and revived.issuperset(group.layers)
        for doubt in _about(evidence, group):
            yield (
                replace(doubt, loaders=(doubt.loaders or _ALL) - _REVIVING) if is_revived else doubt
            )


def _lacks_code(group: ObjectGroup) -> bool:
    """Return whether releases do not find the class or the function of a group by its name."""
    return group.custom or (
        group.kind != known_arguments.LAYERS
        and not known_arguments.is_known(group.kind, group.class_name)
    )


def _code(traits: ConfigTraits) -> Iterator[Doubt]:
    """Yield doubts about harmful functions, and about bytecode in the arguments of layers."""
    reasons = [
        f"its config refers to {short(name)}, which does not belong in a model"
        for name in traits.harmful_references
    ]
    if traits.code_arguments or traits.bare_code:
        reasons.append("an argument is Python bytecode, which depends on the Python version")
    for reason in reasons:
        yield Doubt(cause=Cause(kind=Obstacle.CLASS, reason=reason))


def _deep(traits: ConfigTraits) -> Iterator[Doubt]:
    """Yield a doubt about a graph that may exceed the recursion limit of Python."""
    if traits.depth > _WALKED:
        reason = (
            f"its graph is {traits.depth:,} calls deep, which exceeds Python's default recursion "
            "limit of 1,000; raise it with sys.setrecursionlimit before loading"
        )
        yield Doubt(cause=Cause(kind=Obstacle.GRAPH, reason=reason))


def _operations(document: Document, traits: ConfigTraits) -> Iterator[Doubt]:
    """Yield doubts about unknown operations, and about functions that operations call."""
    if document.format == "h5" or not traits.operation_uses:
        return  # in HDF5, Keras 3 looks up operations as layers, by name
    from policytool.releases import keras_operations  # only for graphs with operations

    unknown = {
        use.class_name
        for use in traits.operation_uses
        if not keras_operations.is_known(use.module, use.class_name)
    }
    for loader in sorted(_KERAS3.intersection(LOADERS)):
        for use in traits.operation_uses:
            for objection in keras_operations.call_objections(loader, use):
                cause = Cause(
                    kind=Obstacle.KEY,
                    reason=objection.reason,
                    class_name=use.class_name,
                    keys=objection.arguments,
                )
                yield Doubt(cause=cause, loaders=frozenset({loader}))
    for name in sorted(unknown):
        reason = f"the operation {name} was not tested in any release"
        yield Doubt(
            cause=Cause(kind=Obstacle.GRAPH, reason=reason, class_name=name), loaders=_KERAS3
        )
    for name, function in sorted(traits.operation_functions):
        reason = f"the operation {name} calls the function {function}, which is not in the file"
        yield Doubt(
            cause=Cause(kind=Obstacle.GRAPH, reason=reason, class_name=name),
            loaders=frozenset(
                loader for loader in _KERAS3 if not _finds_function(loader, function)
            ),
        )


def _op_layers(origins: Sequence[Release], sites: Sequence[Site]) -> Iterator[Doubt]:
    """
    Yield doubts about what op layers of Keras 2 call: functions that a release does not find by
    name, and ops that may be later than the release.
    """
    layers = group_pairs(
        ((site.class_name, _called_operation(site)), path_of(site.names))
        for site in sites
        if layer_facts(site.class_name).is_op_layer
    )
    for (class_name, called), paths in layers.items():
        is_op = layer_facts(class_name).wrapped_op == "node_def"
        missing_functions = {
            loader
            for loader in _KERAS2.intersection(LOADERS)
            if not (_is_later(loader, origins) if is_op else _resolves(loader, called))
        }
        reason = f"{class_name} calls {called}, which was not tested"
        cause = Cause(
            kind=Obstacle.CLASS, reason=reason, layers=tuple(paths), class_name=class_name
        )
        if missing_functions:
            yield Doubt(cause=cause, loaders=frozenset(missing_functions))


def _called_operation(site: Site) -> str:
    """Return what an op layer calls: a function, an op, or a method."""
    config = site.config or {}
    node = config.get("node_def")
    if isinstance(node, dict):
        return f"the op {node.get('op')}"
    return str(config.get("function", "a method"))


def _is_later(loader: str, origins: Sequence[Release]) -> bool:
    """Return whether a release is one that may have written the model, or is later."""
    return any(is_since(loader, release.id) for release in origins)


def _resolves(loader: str, function: str) -> bool:
    from policytool.releases import keras_operations  # only for graphs with operations

    return keras_operations.resolves(loader, function)


def _finds_function(loader: str, name: str) -> bool:
    """Return whether a release has an activation of this name, so that it needs no custom code."""
    if not known_arguments.is_known("activations", name):
        return False
    return known_arguments.objection(loader, "activations", name, {}, module=False) is None


def _shared_layers(evidence: Evidence) -> Iterator[Doubt]:
    """Yield a doubt about layers that several models share, if it was not measured."""
    if evidence.shares_measured:
        return
    for layer in evidence.shared:
        reason = (
            f"{layer.name} is shared between a model and a nested model, which some releases of "
            "Keras 3 do not support"
        )
        paths = tuple(path_of((*model, layer.name)) for model in layer.models)
        yield Doubt(cause=Cause(kind=Obstacle.MODEL, reason=reason, layers=paths), loaders=_KERAS3)
        return


def _masked_queries(evidence: Evidence, sites: Sequence[Site]) -> Iterator[Doubt]:
    """
    Yield doubts about attention layers that may have a mask, because a layer before them was not
    measured: for Keras 3.6, a mask of the query is an error, and for TF 2.4 one in another dtype.
    """
    if evidence.traits.may_attend_to_mask and not evidence.is_written_in("keras3.6"):
        layers = tuple(
            path_of(site.names) for site in sites if site.class_name in inbound_nodes.ATTENTIONS
        )
        reason = "Keras 3.6 fails if a mask reaches the query of an attention layer"
        cause = Cause(kind=Obstacle.GRAPH, reason=reason, layers=layers)
        yield Doubt(cause=cause, loaders=releases_in("keras3.6"))
    if evidence.traits.masks_in_float32 is None:
        reason = f"{MASKS_IN_FLOAT32}, if a mask reaches it"
        cause = Cause(kind=Obstacle.DTYPE, reason=reason)
        yield Doubt(cause=cause, loaders=releases_in("tf2.1 to tf2.4"))


def _lost_vocabularies(evidence: Evidence) -> Iterator[Doubt]:
    """Yield a doubt about Keras 3, which loads HDF5 without the table of a vocabulary."""
    if evidence.document.format == "h5" and evidence.traits.tables:
        reason = "HDF5 does not contain the vocabulary of a layer, so that calling the model fails"
        cause = Cause(kind=Obstacle.RESULTS, reason=reason)
        yield Doubt(cause=cause, loaders=_KERAS3)


def _variable_order(evidence: Evidence) -> Iterator[Doubt]:
    """Yield a doubt about the results of releases that exchange variables of equal shapes."""
    layers = tuple(moved.layer for moved in evidence.moved_variables)
    if layers:
        reason, loaders = (
            ("Keras 3.6 wrote", _KERAS3 - releases_in(ORDERING_BY_CASTS))
            if evidence.has_order_of_casts
            else ("Keras 3.6 reads", releases_in("keras3.6"))
        )
        reason = f"{reason} the variables of layers in the order that it has because of its casts"
        cause = Cause(kind=Obstacle.RESULTS, reason=reason, layers=layers)
        yield Doubt(cause=cause, loaders=loaders)


def _activations(origins: Sequence[Release], groups: Sequence[ObjectGroup]) -> Iterator[Doubt]:
    """
    Yield a doubt about the results of releases that compute an activation with another formula than
    the release that wrote the file.
    """
    layers_by_name = group_pairs(
        (group.class_name, group.layers)
        for group in groups
        if group.kind == known_arguments.ACTIVATIONS
        and known_arguments.is_known(group.kind, group.class_name)
    )
    for name, layers in layers_by_name.items():
        written = known_arguments.activation_values(name, origins[-1].id)
        if written is None:
            continue
        computed = (
            (known_arguments.activation_values(name, loader), loader)
            for loader in _KERAS2 | _KERAS3
        )
        for values, loaders in group_pairs(computed).items():
            if values is not None and values != written:
                cause = Cause(
                    kind=Obstacle.RESULTS,
                    reason=f"another formula of {name}, which returns {values[_AT_MINUS_ONE]:g} "
                    f"for the input -1, not {written[_AT_MINUS_ONE]:g}",
                    layers=tuple(dict.fromkeys(chain.from_iterable(layers))),
                    class_name=name,
                    remedy="pass a custom function with the original formula in custom_objects",
                )
                yield Doubt(cause=cause, loaders=frozenset(loaders))


def _masks(
    evidence: Evidence, origins: Sequence[Release], sites: Sequence[Site]
) -> Iterator[Doubt]:
    """Yield a doubt about the results of releases in which layers get other masks."""
    changes = group_pairs(
        ((change.site.names, change.readers), change)
        for change in mask_changes(evidence, origins, sites)
    )
    for (names, readers), found in changes.items():
        class_name, writer = found[0].site.class_name, release_name(origins[-1].id)
        reason = (
            f"{class_name} {names[-1]} uses the masks of its inputs in another way than in {writer}"
            if path_of(names) in readers
            else f"{class_name} {names[-1]} passes on another mask than in {writer}, which "
            f"{short(readers[0])} uses"
        )
        cause = Cause(
            kind=Obstacle.RESULTS,
            reason=reason,
            layers=readers,
            class_name=class_name,
            remedy="pass the masks as arguments of the calls, and save the model again",
        )
        yield Doubt(cause=cause, loaders=frozenset(change.loader for change in found))


def _shape_in_layer(evidence: Evidence) -> Iterator[Doubt]:
    if (
        evidence.document.format == "h5"
        and evidence.traits.shape_in_layer
        and not evidence.is_keras3
    ):
        reason = (
            "Keras 3 reads the input shape of the first layer as a shape without the batch "
            "dimension and builds the model with an extra dimension"
        )
        yield Doubt(cause=Cause(kind=Obstacle.MODEL, reason=reason), loaders=_KERAS3)


def _pickled_weights(evidence: Evidence) -> Iterator[Doubt]:
    """
    Yield a doubt about weights that releases unpickle, as measured with Keras 3.0, 3.3 and 3.6: a
    dict of arrays loads; the code of any other pickle runs before loading fails.
    """
    if {"npz-weights", "pickled-weights"} <= {
        observation.code for observation in evidence.document.observations
    }:
        reason = "loading unpickles model.weights.npz, which can execute arbitrary code"
        yield Doubt(cause=Cause(kind=Obstacle.STORAGE, reason=reason), loaders=_UNPICKLING)


def _mistaken_root(evidence: Evidence) -> Iterator[Doubt]:
    """
    Yield a doubt about a subclassed model, which these releases restore from its traces if they do
    not find its class, and otherwise with the ``from_config`` of a functional model.
    """
    if evidence.document.format == "savedmodel" and is_mistaken_root(evidence):
        reason = (
            f"pass {evidence.traits.root_class} only if it defines from_config: these releases "
            "mistake its config for that of a functional model, and load it without its class"
        )
        cause = Cause(kind=Obstacle.MODEL, reason=reason)
        yield Doubt(cause=cause, loaders=releases_in("tf2.3 to tf2.5"))


def _uncalled_kernels(evidence: Evidence) -> Iterator[Doubt]:
    """
    Yield a doubt about the results of GPTQ and AWQ layers, which only ``load_own_variables`` marks
    as calibrated: Keras 3.12 and 3.15 load HDF5 without it, and the layer has no ``_kernel``.
    """
    modes = {mode.partition("/")[0] for mode in evidence.traits.quantization_modes}
    if evidence.document.format == "h5" and not modes.isdisjoint(CALIBRATED):
        cause = Cause(
            kind=Obstacle.RESULTS,
            reason="GPTQ and AWQ layers have no kernel if they are read from HDF5, so that calling "
            "the model fails",
            remedy="load the model that is not quantized, and quantize it again",
        )
        yield Doubt(cause=cause, loaders=_KERAS3)


def _axes(evidence: Evidence, sites: Sequence[Site]) -> Iterator[Doubt]:
    """
    Yield a doubt about axes that Keras 3 drops when it reads HDF5, so that it uses the last axis
    instead (``saving_utils.model_from_config``, 3.0 to 3.15).
    """
    if evidence.document.format != "h5":
        return
    for site in sites:
        if site.config is not None and site.parent is not None and sites[site.parent].is_model:
            axis, inner = (
                site.config.get("axis", _LAST),
                not layer_facts(site.class_name).is_op_layer,
            )
            yield from _axis(site.class_name, axis, _INNER if inner else (), (path_of(site.names),))
    for class_name, written in sorted(evidence.traits.operation_axes):
        axis = json.loads(written)
        yield from _axis(class_name, axis, (axis,), ())


def _axis(
    class_name: str, axis: Json, inner: Collection[Json], layers: tuple[str, ...]
) -> Iterator[Doubt]:
    """
    Yield the doubts about an axis.

    :param inner: the numbers of axes that are not the last axis
    """
    if axis == _LAST or (isinstance(axis, list) and len(axis) == 1):
        return
    is_list = not isinstance(axis, int)
    if is_list or axis in inner:
        reason = (
            f"the axis {json.dumps(axis)} of {class_name} is ignored when the model is "
            "read from HDF5, and the last axis is used instead"
        )
        facts = layer_facts(class_name)
        keeps_shape = facts.output_shape == ("*same",) or facts.adapts_statistics
        cause = Cause(
            kind=Obstacle.RESULTS if keeps_shape else Obstacle.KEY,
            reason=reason,
            layers=layers,
            class_name=class_name,
            keys=("axis",),
            remedy="save the model as .keras, which keeps the axis",
        )
        yield Doubt(cause=cause, loaders=_KERAS3 if is_list else _BEFORE_AXES)


def _merge(doubts: Sequence[Doubt]) -> Iterator[Doubt]:
    """Yield the doubts; merge doubts with the same reason, including their layers."""
    for members in group_pairs(
        ((doubt.cause.reason, doubt.loaders), doubt) for doubt in doubts
    ).values():
        layers = dict.fromkeys(layer for doubt in members for layer in doubt.cause.layers)
        yield replace(members[0], cause=replace(members[0].cause, layers=tuple(layers)))


def _untried_release(origins: Sequence[Release]) -> Iterator[Doubt]:
    if any(release.generation.id in UNTRIED for release in origins):
        yield Doubt(cause=Cause(kind=Obstacle.MODEL, reason="Keras 1 files were not tested"))


def _unshaped_input(evidence: Evidence) -> Iterator[Doubt]:
    """Yield a doubt about an input of an edited config; Keras 3 certainly fails."""
    inputs = evidence.traits.keys.get(INPUT_CLASS, ())
    is_edited = evidence.traits.unshaped_input and "type_spec" not in inputs
    if is_edited and evidence.document.format != "savedmodel":
        reason = "an InputLayer has no `batch_input_shape`, without which many layers are not built"
        yield Doubt(
            cause=Cause(kind=Obstacle.KEY, reason=reason, class_name=INPUT_CLASS), loaders=_KERAS2
        )


def _about_bytecode(document: Document, group: ObjectGroup) -> Iterator[Doubt]:
    """
    Yield the doubts about a Lambda. A release that checks the format for bytecode needs
    ``safe_mode=False`` to load it (measured with HDF5 files in Keras 3.0 to 3.15 and tf_keras 2.21,
    and with archives).
    """
    function = group.config.get("function")
    is_name = isinstance(function, str) and group.config.get("function_type") != "lambda"
    if is_name or keras_objects.class_of(function) == keras_objects.FUNCTION:
        yield _class(group, "a Lambda depends on a function whose code is not in the file")
        return
    checking, others = _CHECKING_BYTECODE.get(document.format, frozenset()), frozenset(LOADERS)
    for loaders, requirement in ((checking, "needs safe_mode=False and "), (others - checking, "")):
        if loaders:
            reason = f"a Lambda contains bytecode, which {requirement}depends on the Python version"
            yield replace(_class(group, reason), loaders=loaders)


def _about_custom_class(group: ObjectGroup) -> Iterator[Doubt]:
    """
    Yield the doubts about custom code. In Keras 2, a layer that a custom layer creates uses the
    global policy, so that a product with its result fails (measured in TF 2.4 to tf_keras 2.21).
    """
    reason = f"{group.class_name} is a custom class, so the result depends on its code"
    policy = keras_objects.policy_name(group.config.get("dtype"))
    if group.kind != known_arguments.LAYERS or policy not in _MIXED:
        yield _class(group, reason)
        return
    yield replace(_class(group, reason), loaders=_KERAS3)
    inner = f"; if it creates layers, call set_global_policy('{policy}') before loading"
    yield replace(_class(group, reason + inner), loaders=_KERAS2)


def _about(evidence: Evidence, group: ObjectGroup) -> Iterator[Doubt]:
    """Yield the doubts about a group of equal layers."""
    document, name = evidence.document, group.class_name
    if group.custom:
        yield from _about_custom_class(group)
    elif name == "Lambda":
        yield from _about_bytecode(document, group)
    elif layer_facts(name).is_op_layer:  # _op_layers has the doubts about what it calls
        yield from _unwritten_keys(group, tuple(sorted(group.config.keys() - _OP_LAYER_KEYS)))
    elif layer_facts(name).is_opaque:
        yield _class(group, f"{name} depends on code or data outside the file")
    elif not known_arguments.is_known(group.kind, name):
        yield _class(group, f"{name} was not tested in any release")
    elif document.format == "savedmodel" and layer_facts(name).is_lookup:
        reason = f"TF 2.5 and older do not all store the lookup table of {name} under the same path"
        writers = evidence.releases if len(evidence.releases) == 1 else frozenset()
        yield replace(_class(group, reason), loaders=_BEFORE_TABLES - writers)
    else:
        if layer_facts(name).is_lookup:
            yield replace(
                _class(
                    group,
                    f"up to TF 2.5, the layer class {name} may need a vocabulary that is not in "
                    "the file",
                ),
                loaders=_BEFORE_VOCABULARIES,
            )
        # TF 2.13 and later look up the names of an architecture as if modules were beside them
        looks_in_modules = group.module or document.format in WITHOUT_WEIGHTS
        failing = known_arguments.unreliable_loaders(group.kind, name, module=looks_in_modules)
        if failing:
            yield replace(
                _class(group, f"{name} could not be rebuilt from its own config in tests"),
                loaders=failing,
            )
        yield from _unmeasured_arguments(group)


def _unmeasured_arguments(group: ObjectGroup) -> Iterator[Doubt]:
    """
    Yield doubts about keys that no release writes, for the releases that have the argument. Null is
    the default of such arguments.
    """
    given = tuple(
        key
        for key, value in group.config.items()
        if value is not None and (group.class_name, key) not in _READ
    )
    keys = known_arguments.unknown_keys(group.kind, group.class_name, given)
    by_loaders = group_pairs(
        (known_arguments.accepting_loaders(group.kind, group.class_name, key), key) for key in keys
    )
    for loaders, accepted in by_loaders.items():
        for doubt in _unwritten_keys(group, tuple(accepted)) if loaders else ():
            yield replace(doubt, loaders=loaders)


def _unwritten_keys(group: ObjectGroup, keys: tuple[str, ...]) -> Iterator[Doubt]:
    """Yield a doubt about the keys of a config that no known release writes, if there are any."""
    if not keys:
        return
    further_count = len(keys) - _SHOWN
    further = f" and {further_count} more" if further_count > 0 else ""
    reason = (
        f"{group.class_name} has the key{'s' if len(keys) > 1 else ''} "
        f"{', '.join(keys[:_SHOWN])}{further}, which no known release writes"
    )
    yield _class(group, reason, keys)


def _class(group: ObjectGroup, reason: str, keys: tuple[str, ...] = ()) -> Doubt:
    """Return a doubt about a class, or about keys of its config."""
    return Doubt(
        cause=Cause(
            kind=Obstacle.KEY if keys else Obstacle.CLASS,
            reason=reason,
            layers=tuple(group.layers),
            class_name=group.class_name,
            keys=keys,
        )
    )
