"""
The verdicts of all releases on a file, according to its container and config. A verdict is about
``load_model(path, compile=False)`` with the default global policy, and has a separate part for
``compile=True``.

There are three outcomes. A release fails to load a file for a measured cause: a row of
:mod:`policytool.model.compatibility.incompatibilities`, a class or a key of
:mod:`policytool.releases.known_arguments`, a dtype of :mod:`policytool.releases.dtype_support`. It
loads a file without doubts. Otherwise the outcome is unknown, and
:mod:`policytool.model.compatibility.open_questions` has the reason.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.model.compatibility import (
    file_names,
    training_incompatibilities,
    training_verdicts,
)
from policytool.model.compatibility import open_questions as doubts
from policytool.model.compatibility.evidence import Evidence
from policytool.model.compatibility.incompatibilities import EXPORTED, REFUSALS, Incompatibility
from policytool.model.model import Cause, Obstacle, Verdict, Verdicts
from policytool.model.tree import INPUT_CLASS, MODEL_CLASSES
from policytool.releases import dtype_support, known_arguments
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import mode_lifecycle
from policytool.releases.releases import (
    KERAS3,
    LOADERS,
    family_of,
    is_since,
    measured_neighbors,
    position,
    release_name,
    releases_in,
)
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from policytool.model.compatibility.evidence import CreatedLayer
    from policytool.model.compatibility.serialized_objects import ObjectGroup
    from policytool.model.compatibility.stored_variables import StoredVariables
    from policytool.model.compatibility.training_incompatibilities import TrainingEvidence

    _Objections = tuple[ObjectGroup, Mapping[str, known_arguments.Objection]]

_RAISING: Final = releases_in("tf2.3 to tf2.9")
"""The releases that raise the TypeError or KeyError of a layer in a SavedModel."""

_REVIVING: Final = releases_in("tf2.12 on")
"""The releases that restore a layer of a SavedModel from its traces after any error."""

_EVERYWHERE: Final = "float32"
"""
The dtype that all layers of all releases support. For models with only this dtype, the data is not
read, which saves milliseconds.
"""

_CLASS: Final = {"OrthogonalInitializer": "Orthogonal"}
"""The class names that Keras 3.0 to 3.6 write, and the names in other releases."""

NOT_LOADED: Final = frozenset({"keras-metadata", "tfjs"})
"""Formats that ``load_model`` never supports: part of a model, or the input of a converter."""


def verdicts(stored: StoredVariables) -> Sequence[Verdict]:
    """
    Return the verdicts on a document of :data:`LOADERS`, and of releases between them that fail for
    a cause of their own, in the order of the releases; empty for formats in :data:`NOT_LOADED`.
    Each is computed when it is used.
    """
    document, origins, placed = stored.document, stored.origins, stored.placed
    traits = stored.traits
    if document.format in NOT_LOADED:
        return ()
    evidence = Evidence(
        document=document,
        traits=traits,
        releases=frozenset(release.id for release in origins),
        shared=stored.shared,
        shapes=stored.shapes,
    )
    matching_rows = [
        row for row in REFUSALS if document.format in row.formats and row.shows(evidence)
    ]
    groups = stored.objects
    open_questions = doubts.of(evidence, origins, placed.sites, groups)
    compiled = training_incompatibilities.evidence(document, placed, keras3=evidence.is_keras3)
    layers = evidence.created_layers if document.format == "savedmodel" else ()
    built_in = [
        (group, _objections_to(group))
        for group in groups
        if not group.custom and known_arguments.is_known(group.kind, group.class_name)
    ]

    @cache
    def judge(loader: str) -> Verdict:
        verdict = _with_variables(
            _verdict(loader, evidence, matching_rows, built_in, open_questions, layers=layers),
            stored,
        )
        return verdict if compiled is None else _with_training(verdict, compiled)

    others = {
        verdict.loader: verdict
        for verdict in (
            *_with_other_operations(evidence, judge),
            *_unlike_neighbors(matching_rows),
        )
    }
    return file_names.under_name(
        Verdicts(
            sorted({*LOADERS, *others}, key=position),
            lambda loader: others[loader] if loader in others else judge(loader),
        ),
        document.format,
        document.local_path,
        is_directory=document.config_file is not None,
    )


def _unlike_neighbors(matching_rows: Sequence[Incompatibility]) -> Iterator[Verdict]:
    """Yield the verdicts of unmeasured releases that a row names without a measured neighbor."""
    causes = group_pairs(
        (loader, Cause(kind=row.kind, reason=row.reason))
        for row in matching_rows
        for loader in row.releases.difference(LOADERS)
        if row.releases.isdisjoint(measured_neighbors(loader))
    )
    for loader, found in causes.items():
        yield Verdict(loader=loader, reason=found[0].reason, causes=tuple(found))


def _with_other_operations(
    evidence: Evidence, judge: Callable[[str], Verdict]
) -> Iterator[Verdict]:
    """
    Yield the verdicts of releases in which operations, which are measured in all releases of Keras
    3, do not have the arguments that they have in both measured neighbors.
    """
    if not evidence.traits.operation_uses:
        return
    releases = releases_in("keras3.0 on")
    objections = {name: frozenset(_operation_objections(name, evidence)) for name in releases}
    for loader in releases.difference(LOADERS):
        own = objections[loader]
        neighbors = measured_neighbors(loader)
        theirs, others = (objections[name] for name in neighbors)
        if own == theirs or theirs != others:
            continue
        before, after = map(judge, neighbors)
        if before.reason == after.reason:
            causes = (*(cause for cause in before.causes if cause not in theirs), *own)
            reason = causes[0].reason if causes else None
            yield replace(before, loader=loader, reason=reason, causes=causes, training=None)


def _verdict(
    loader: str,
    evidence: Evidence,
    matching_rows: Sequence[Incompatibility],
    built_in: Sequence[_Objections],
    open_questions: Sequence[doubts.Doubt],
    *,
    layers: Sequence[CreatedLayer],
) -> Verdict:
    """Return the verdict of one release, from the rows, classes and doubts that concern it."""
    causes = [
        Cause(kind=row.kind, reason=row.reason) for row in matching_rows if loader in row.releases
    ]
    if family_of(loader) == KERAS3:
        causes += [
            Cause(kind=Obstacle.CLASS, reason=f"no release known to policytool has {part}")
            for part in sorted(evidence.traits.unknown_policies)
        ]
        causes += _later_modes(loader, evidence.traits.quantization_modes)
    unanswered = [
        doubt.cause for doubt in open_questions if doubt.loaders is None or loader in doubt.loaders
    ]
    if evidence.document.format == "savedmodel":
        certain, uncertain = _objections_to_metadata(loader, evidence, built_in)
        causes += certain
        unanswered += uncertain
    else:
        causes += (
            *_objections(loader, built_in),
            *_operation_objections(loader, evidence),
        )
    causes += _unbuildable_dtypes(loader, evidence, layers)
    causes = sorted(
        dict.fromkeys(causes), key=lambda cause: cause.kind is Obstacle.POLICY
    )  # which migrate fixes: the reason that it reports is what it cannot fix
    return Verdict(
        loader=loader,
        reason=causes[0].reason if causes else None,
        causes=tuple(causes),
        doubts=tuple(unanswered),
    )


def _objections_to_metadata(
    loader: str, evidence: Evidence, built_in: Sequence[_Objections]
) -> tuple[list[Cause], list[Cause]]:
    """
    Return the classes of a SavedModel and their keys that a release does not support, and those
    that it may replace by the traces of the layer.

    A release always builds models from the config itself, and inputs from the arguments that it
    knows. It restores other layers from their traces if their configs raise a ValueError, and
    since TF 2.12 if they raise any error, unless the metadata excludes it
    (``_revive_layer_or_model_from_config`` in keras/saving/saved_model/load.py).
    """
    without_traces = evidence.classes_without_traces
    certain: list[Cause] = []
    uncertain: list[Cause] = []
    for group, objections in built_in:
        objection = objections.get(loader)
        if objection is None or group.class_name in (*MODEL_CLASSES, INPUT_CLASS):
            continue
        causes = _objections(loader, [(group, objections)])
        is_type_error = bool(objection.refused or objection.lacking) and loader in _RAISING
        if is_type_error or (group.class_name in without_traces and loader in _RAISING | _REVIVING):
            certain += causes
        elif evidence.has_no_traces or loader not in _REVIVING:
            uncertain += (
                replace(cause, reason=f"{cause.reason}, but may be restored from its traces")
                for cause in causes
            )
    return certain, uncertain


def _later_modes(loader: str, modes: Iterable[str]) -> Iterator[Cause]:
    """Yield the quantization modes that were introduced after a Keras 3 release."""
    for mode in sorted(modes):
        introduced = mode_lifecycle(mode).introduced
        if not is_since(loader, introduced.lower().replace(" ", "")):
            reason = f"the quantization mode {mode} needs {introduced} or later"
            yield Cause(kind=Obstacle.CLASS, reason=reason)


def _with_variables(verdict: Verdict, stored: StoredVariables) -> Verdict:
    """
    Return the verdict with the defect of the stored variables, if the release would read them. It
    would if policies, which fixes rewrite in place, are the only cause of a failure, and it reads
    the checkpoint of an exported model before it looks for a Keras model.
    """
    if not all(
        cause.kind is Obstacle.POLICY or cause.reason == EXPORTED for cause in verdict.causes
    ):
        return verdict
    cause = stored.cause(verdict.loader)
    if cause is None:
        return verdict
    return replace(verdict, reason=cause.reason, causes=(cause, *verdict.causes))


def _with_training(verdict: Verdict, compiled: TrainingEvidence) -> Verdict:
    """
    Return a verdict with that on the training configuration, if the release reads it: the policies,
    which fixes rewrite in place, are its only cause of a failure.
    """
    if not all(cause.kind is Obstacle.POLICY for cause in verdict.causes):
        return verdict
    training = training_verdicts.verdict(compiled, verdict.loader)
    if not training_verdicts.is_always_read(compiled, verdict.loader):
        return replace(verdict, training=training)
    text = training.reason or training.doubt
    if text is None:
        return replace(verdict, training=training)
    cause = Cause(
        kind=Obstacle.STORAGE,
        reason=f"{release_name(verdict.loader)} "
        + (
            "always reads the training configuration in JSON"
            if compiled.document.format == "json"
            else "reads the training configuration even with compile=False"
        )
        + f": {text}",
    )
    if training.reason is None:
        return replace(verdict, training=training, doubts=(*verdict.doubts, cause))
    return replace(verdict, reason=cause.reason, causes=(cause, *verdict.causes))


def _operation_objections(loader: str, evidence: Evidence) -> Iterator[Cause]:
    """
    Yield the operations, and the arguments of their calls, that a release does not support.

    HDF5 cannot represent operations; :data:`REFUSALS` has a row for that.
    """
    uses = evidence.traits.operation_uses
    if family_of(loader) != KERAS3 or evidence.document.format == "h5" or not uses:
        return
    from policytool.releases import keras_operations  # only for graphs with operations

    class_by_objection = {
        objection: use.class_name
        for use in uses
        if keras_operations.is_known(use.module, use.class_name)
        for objection in keras_operations.objections(loader, use)
    }
    for objection, name in sorted(class_by_objection.items(), key=lambda item: item[0].reason):
        yield Cause(
            kind=Obstacle.KEY if objection.arguments else Obstacle.CLASS,
            reason=objection.reason,
            class_name=name,
            keys=objection.arguments,
        )


def _objections_to(group: ObjectGroup) -> Mapping[str, known_arguments.Objection]:
    return known_arguments.objections(
        LOADERS, group.kind, group.class_name, group.config, module=group.module
    )


def _objections(loader: str, built_in: Sequence[_Objections]) -> Iterator[Cause]:
    """Yield the classes of the libraries and their keys that a release does not support."""
    gathered: dict[tuple[Obstacle, str, str, tuple[str, ...]], list[str]] = {}
    for group, objections in built_in:
        objection = objections.get(loader)
        if objection is not None:
            for obstacle, reason, keys in _objection_parts(group, objection):
                gathered.setdefault((obstacle, reason, group.class_name, keys), []).extend(
                    group.layers
                )
    for (obstacle, reason, class_name, keys), layers in gathered.items():
        yield Cause(
            kind=obstacle,
            reason=reason,
            layers=tuple(dict.fromkeys(layers)),
            class_name=class_name,
            keys=keys,
        )


def _objection_parts(
    group: ObjectGroup, objection: known_arguments.Objection
) -> Iterator[tuple[Obstacle, str, tuple[str, ...]]]:
    """Yield the parts of an objection, each with a reason and the keys."""
    name = group.class_name
    if objection.missing:
        yield Obstacle.CLASS, f"{_WORDS[group.kind]} {name} does not exist", ()
    if objection.broken:
        yield (
            Obstacle.CLASS,
            f"{name} cannot be rebuilt, even in the release that wrote it",
            (),
        )
    if objection.refused:
        yield (
            Obstacle.KEY,
            f"{name} has no {_arguments(objection.refused)}",
            objection.refused,
        )
    for key, value in objection.values:
        yield Obstacle.KEY, f"{name} does not support {value} as `{key}`", (key,)
    if objection.lacking:
        yield (
            Obstacle.KEY,
            f"{name} requires the {_arguments(objection.lacking)}",
            objection.lacking,
        )


def _arguments(names: Sequence[str]) -> str:
    """Return the description of a list of argument names."""
    return f"argument{'s' * (len(names) > 1)} {', '.join(f'`{name}`' for name in names)}"


_WORDS: Final = {
    "layers": "layer class",
    "initializers": "initializer",
    "regularizers": "regularizer",
    "constraints": "constraint",
    "activations": "activation",
}


def _unbuildable_dtypes(
    loader: str, evidence: Evidence, layers: Sequence[CreatedLayer]
) -> Iterator[Cause]:
    """
    Yield a cause for each layer class and initializer that a release cannot build under its
    policy.

    :param layers: the layers of a SavedModel
    """
    traits = evidence.traits
    if evidence.document.format == "savedmodel":
        policies = {
            (layer.class_name, layer.policy)
            for layer in layers
            if layer.policy != _EVERYWHERE and _fails_in_saved_model(loader, layer)
        }
    else:
        policies = {
            pair
            for pair in traits.layer_policies
            if pair[1] != _EVERYWHERE
            and dtype_support.build_failure(loader, *pair, is_fused=pair in traits.fused)
        }
    for class_name, policy in sorted(policies):
        if not layer_facts(class_name).is_opaque:
            yield Cause(
                kind=Obstacle.DTYPE,
                reason=f"{class_name} cannot be built under {policy}",
                class_name=class_name,
            )
    for initializer, policy in sorted(pair for pair in traits.drawn if pair[1] != _EVERYWHERE):
        dtype = "float32" if policy.startswith("mixed_") else policy
        name = _CLASS.get(initializer, initializer)
        if dtype_support.initializer_failure(loader, name, dtype) is not None:
            yield Cause(
                kind=Obstacle.DTYPE,
                reason=f"the initializer {initializer} cannot create {dtype} variables",
                class_name=initializer,
            )


def _fails_in_saved_model(loader: str, layer: CreatedLayer) -> bool:
    """
    Return whether a release fails to load a SavedModel because of the dtype of a layer.

    A release calls only the layers of graphs, and restores others that it cannot create from their
    traces, as :func:`_objections_to_metadata` describes (measured with 12 classes in graphs and in
    subclassed models in TF 2.5, 2.9, 2.12, 2.15 and tf_keras 2.21).
    """
    name, policy = layer.class_name, layer.policy
    if not dtype_support.build_failure(loader, name, policy, is_fused=layer.is_fused):
        return False
    stage, message = dtype_support.failing_stage(loader, name, layer.output_mode, policy)
    if stage == "build" or layer.is_fused:
        return layer.is_called
    return not layer.has_traces or (message.startswith("TypeError") and loader in _RAISING)
