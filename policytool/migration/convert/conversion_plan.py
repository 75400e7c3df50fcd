"""
The plan of a migration with a target: edit the file if that is enough, or else convert the model.

If the target loads a file after a change of policy formats, the file is edited and keeps everything
else. If the file is of the other library, has other incompatibilities, or needs another container,
it is converted.

The proof of a conversion is the measurement of each class (:mod:`policytool.releases.behaviour`).
Releases of one library differ in the results of some layers (the same module), and in the calls
that masks reach (:mod:`policytool.migration.convert.masks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats import REWRITTEN, TITLES, WITHOUT_WEIGHTS
from policytool.formats.edits import Content, EditKind
from policytool.formats.tfjs import INCOMPLETE, QUANTIZED
from policytool.migration import planning
from policytool.migration.convert import decoding, encoding, ordering
from policytool.migration.convert.architecture import Role, count_calls, walk
from policytool.migration.convert.compiled import compile_config
from policytool.migration.convert.masks import MaskTable, plain_config
from policytool.migration.convert.masks.flow import MaskFlow, has_masks
from policytool.migration.convert.masks.fully_masked import differing_attentions
from policytool.migration.convert.rewrites import REWRITES, ConversionContext
from policytool.migration.convert.rewrites.lambdas import REPLACED
from policytool.migration.convert.target import Log, Target
from policytool.migration.convert.tensor_facts import compute_dtype
from policytool.migration.convert.variables import place_variables
from policytool.migration.plan import (
    Conversion,
    Note,
    NoteSeverity,
    Plan,
    Refusal,
    planned_model,
)
from policytool.migration.planning import notes as remarks
from policytool.migration.planning.rebuilt_layers import REVIVING
from policytool.model import reading, tfjs_objections
from policytool.model.compatibility import file_names
from policytool.model.compatibility.stored_variables import DEFECTS
from policytool.model.hazards import LAMBDA
from policytool.model.loaded_model import once_per_model
from policytool.model.model import Obstacle, verdict_of
from policytool.model.tree import INPUT_CLASS
from policytool.releases import behaviour, layer_classes
from policytool.releases.behaviour import Proof
from policytool.releases.releases import KERAS3, TFJS, family_of, get
from policytool.support import limits
from policytool.support.errors import LimitError, SpellingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from policytool.formats.document import Document
    from policytool.formats.edits import Cast
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Verdict


def proofs(root: Unit, context: ConversionContext) -> tuple[tuple[str, Proof], ...]:
    """
    Return the proof of the conversion for each layer class, by its name in the file; empty if the
    model stays in its library.

    :param root: the model of the file, before the conversion, whose changes are in the log
    """
    if not context.crosses or context.target.is_tfjs:  # only Keras 2 and 3 were measured
        return ()
    proof_by_class: dict[str, Proof] = {}
    for unit in _measurable_layers(root, context):
        is_measured = _unmeasured_arguments(unit, context) == ()
        known = proof_by_class.get(unit.class_name, Proof.PROVEN)
        proof_by_class[unit.class_name] = known if is_measured else Proof.UNTESTED
    return tuple(sorted(proof_by_class.items()))


def unmeasured_classes(root: Unit, context: ConversionContext) -> tuple[str, ...]:
    """
    Return the layer classes of a file whose conversion was not measured, each with its arguments if
    it was measured with other arguments.

    :param root: as for :func:`proofs`
    """
    unmeasured: dict[str, dict[str, None]] = {}
    for unit in _measurable_layers(root, context):
        arguments = _unmeasured_arguments(unit, context)
        if arguments != ():
            name = f"the custom class {unit.class_name}" if unit.custom else unit.class_name
            unmeasured.setdefault(name, {}).update(dict.fromkeys(arguments or ()))
    return tuple(
        f"{name} with {' and '.join(arguments)}" if arguments else name
        for name, arguments in sorted(unmeasured.items())
    )


def _measurable_layers(root: Unit, context: ConversionContext) -> Iterator[Unit]:
    """
    Yield the layers of a model whose class and arguments may be measured: not a Lambda that became
    a Rescaling.
    """
    replaced = {change.path for change in context.log.changes if change.code == REPLACED}
    return (unit for unit in _layers(root) if unit.path not in replaced)


def _layers(root: Unit) -> Iterator[Unit]:
    """Yield the layers of a model except its inputs."""
    for unit in walk(root):
        if unit.role is Role.LAYER and unit.class_name != INPUT_CLASS:
            yield unit


def _unmeasured_arguments(unit: Unit, context: ConversionContext) -> tuple[str, ...] | None:
    """
    Return the arguments with which no layer of a class was measured; None if no layer of the class
    was. All functions of op layers that have a conversion were measured.
    """
    if unit.custom or unit.site is None:
        return None
    if layer_classes.layer_facts(unit.class_name).is_op_layer:
        return ()
    return behaviour.unmeasured_arguments(
        unit.class_name, context.loaded.config(unit.site), to_keras3=context.to_keras3
    )


def agreeing_releases(root: Unit, release: str) -> tuple[str, ...]:
    """
    Return the releases of a release's family, oldest first, whose measured predictions equal those
    of the release; empty if a layer was not measured. Some may fail to load the model.

    :param root: the model in the release's form
    """
    releases = behaviour.measured_releases(family_of(release))
    changes = _changes(root, family_of(release))
    if release not in releases or changes is None:
        return ()
    others = _equal_releases_around(releases, releases.index(release), changes)
    return tuple(_with_equal_masks(root, release, _with_equal_orders(root, release, others)))


def _with_equal_orders(root: Unit, release: str, others: Sequence[str]) -> Sequence[str]:
    """
    Return the releases in which the layers of all networks have the same order as in a given
    release, so that they read the same variables. Only casts and masks change it.
    """
    computed = {compute_dtype(unit) for unit in walk(root) if unit.role is Role.LAYER}
    if family_of(release) != KERAS3 or (len(computed) == 1 and not has_masks(root)):
        return others
    target = Target(loader=release, container="keras")
    names_by_rules: dict[tuple[bool, ...], list[str]] = {}
    for name in (release, *others):
        rules = ordering.edge_rules(name)
        if rules not in names_by_rules:
            ordered = ordering.order_layers(root, replace(target, running=name))
            names_by_rules[rules] = [unit.name for unit in walk(ordered)]
    expected = names_by_rules[ordering.edge_rules(release)]
    return [name for name in others if names_by_rules[ordering.edge_rules(name)] == expected]


def _changes(root: Unit, family: str) -> frozenset[str] | None:
    """
    Return the releases in which a layer's results change; None if a layer was not measured.
    """
    releases: set[str] = set()
    for unit in walk(root):
        if unit.role is Role.LAYER and unit.class_name != INPUT_CLASS and not unit.custom:
            changes = behaviour.changing_releases(unit.class_name, plain_config(unit), family)
            if changes is None:
                return None
            releases |= changes
    return frozenset(releases)


def _equal_releases_around(
    releases: Sequence[str], place: int, changes: Collection[str]
) -> Sequence[str]:
    """Return the consecutive releases around a place in the list with the same results."""
    starts = [index for index, name in enumerate(releases) if name in changes]
    first = max((index for index in starts if index <= place), default=0)
    end = min((index for index in starts if index > place), default=len(releases))
    return releases[first:end]


def _with_equal_masks(root: Unit, release: str, others: Sequence[str]) -> Iterator[str]:
    """
    Yield the releases in which each call gets the same masks as in a given release, and returns the
    same results for fully masked steps.
    """
    if root.network is None or not has_masks(root):
        yield from others
        return
    table = MaskTable()
    masks = MaskFlow(root.network, release, table).used
    for name in others:
        if name == release or (
            MaskFlow(root.network, name, table).used == masks
            and not any(differing_attentions(root.network, masks, (release, name), table))
        ):
            yield name


_CONTAINERS: Final = {"h5": "h5", "keras": "keras"}
"""The container for each format that a conversion keeps; other formats change to one of these."""

_NEEDED: Final = "incompatible-with-target"
_OF_EDITS: Final = frozenset({"wrapper-lost", remarks.YAML_REWRITTEN})
"""The codes of notes that apply to edited files, but not to converted files."""

_MISCOUNTING: Final = "keras3.0"
"""The release that writes wrong call numbers for shared layers, which no release can read."""


class _Planned(Struct, frozen=True, kw_only=True):
    """The plan for a model, and the model that it writes."""

    plan: Plan
    result: LoadedModel | None = None
    """The model as the target will read it; None if the plan does not convert the model."""


def plan(loaded: LoadedModel, options: Options, container: str | None) -> Plan:
    """
    Return the plan for migrating a model to a target.

    :param container: ``h5``, ``keras`` or ``json``, if the name of the output determines it
    :raises UsageError: if a pattern matches no layer, or two patterns match the same layer.
    """
    return _planned(loaded, options, container).plan


def result(loaded: LoadedModel, options: Options, container: str | None) -> LoadedModel | None:
    """
    Return the model that a plan of :func:`plan` writes, as it will be read; None if the plan does
    not convert the model, or cannot be applied.

    :raises UsageError: as :func:`plan` does.
    """
    return _planned(loaded, options, container).result


@once_per_model
def _planned(loaded: LoadedModel, options: Options, container: str | None) -> _Planned:
    target = options.target
    if target is None:
        return _Planned(plan=planning.plan(loaded, options))
    document_format = loaded.document.format
    is_separate = loaded.document.weights is not None
    elsewhere = (
        is_separate
        or document_format == TFJS  # no release of Keras reads it
        or document_format not in REWRITTEN
        or (container is not None and container != document_format)
        or (container is None and (_is_unread(loaded, options) or options.containers == (TFJS,)))
    )
    if options.containers == (TFJS,):
        _check_tfjs(options, container)
    if is_separate and container == "json":
        raise UsageError(
            "--weights writes a model with weights, which architecture JSON cannot contain; use "
            "an output with the file extension .h5 or .keras"
        )
    if container is not None and options.containers and container not in options.containers:
        raise UsageError(
            f"migrate cannot write {container} files for this target; choose "
            f"{' or '.join(options.containers)}"
        )
    edited = _edit_plan(loaded, options, target) if not elsewhere else None
    if edited is not None and not _may_fail_to_load(edited, loaded, target):
        return _Planned(plan=edited)
    converted = _conversion_plan(
        loaded,
        options,
        target,
        (container,) if container is not None else _containers(loaded, target, options.containers),
    )
    refused = bool(converted.plan.refusals)
    return _Planned(plan=edited) if edited is not None and refused else converted


def _check_tfjs(options: Options, container: str | None) -> None:
    """
    Check that TensorFlow.js supports the options.

    :raises UsageError: if it does not.
    """
    if container is not None:
        raise UsageError(
            "migrate writes a TensorFlow.js model as a directory; specify -o DIRECTORY, without "
            "a file extension"
        )
    policies = (options.to, *(assignment.policy for assignment in options.assignments))
    other = next((name for name in policies if name not in {None, "float32"}), None)
    if other is not None:
        raise UsageError(f"TensorFlow.js computes in float32, so --target tfjs has no {other}")


def _is_unread(loaded: LoadedModel, options: Options) -> bool:
    """Return whether the target does not read the model's container and the plan cannot keep it."""
    container = _CONTAINERS.get(loaded.document.format)
    written_there = {release.id for release in loaded.origins} == {options.running}
    return (
        bool(options.containers and container)
        and container not in options.containers
        and not written_there
    )


def _may_fail_to_load(edited: Plan, loaded: LoadedModel, target: str) -> bool:
    """
    Return whether the target may fail to load the edited file, although a conversion would
    certainly load.

    A SavedModel may depend on its traces for some layers. Keras 3 stores only one of the places of
    a layer that two models share. A Lambda contains code of one Python version.
    """
    verdict = verdict_of(edited.loaders_after, target)
    doubts = verdict.doubts if verdict is not None and verdict.reason is None else ()
    if edited.refusals:
        return False
    if any(doubt.class_name == LAMBDA for doubt in doubts):
        return True
    if loaded.is_saved_object:
        return any(doubt.class_name in layer_classes.builtin_classes() for doubt in doubts)
    may_be_misread = any(loaded.document.tensors or ()) or loaded.origins[-1].id == _MISCOUNTING
    return (
        loaded.is_keras3
        and may_be_misread
        and any(doubt.kind is Obstacle.MODEL and doubt.layers for doubt in doubts)
    )


def _edit_plan(loaded: LoadedModel, options: Options, target: str) -> Plan | None:
    """
    Return the plan that edits the file, if the target can then load the file and continue training;
    otherwise None.
    """
    revived = (
        loaded.is_saved_object
        and target in REVIVING
        and all(release.id != target for release in loaded.origins)
    )
    if get(target).family != loaded.family or revived:
        return None
    edited = planning.plan(loaded, options)
    if any(refusal.code != _NEEDED for refusal in edited.refusals):
        return edited
    verdict = verdict_of(edited.loaders_after, target)
    if verdict is None:
        return edited
    can_train = verdict.training is None or verdict.training.reason is None
    return edited if verdict.reason is None and can_train else None


def _containers(loaded: LoadedModel, target: str, readable: tuple[str, ...]) -> tuple[str, ...]:
    """
    Return the containers to try, in order of preference: for Keras 3 the ``.keras`` archive, which
    it writes by default, and for Keras 2 the container of the file.
    """
    if readable == (TFJS,):
        return readable
    if loaded.document.format in WITHOUT_WEIGHTS:
        return ("json",)
    source_container = _CONTAINERS.get(loaded.document.format, "h5")
    order = dict.fromkeys(
        ("keras" if get(target).family == KERAS3 else source_container, "h5", "keras")
    )
    known = {
        container
        for container in order
        if container != "keras" or Target(loader=target, container=container).reads_archives
    }
    return tuple(
        container
        for container in order
        if container in known and (not readable or container in readable)
    )


def _conversion_plan(
    loaded: LoadedModel, options: Options, target: str, containers: Sequence[str]
) -> _Planned:
    """Return the plan that writes a new file, in the first container that the target supports."""
    # the target builds a SavedModel's layers from their configs, as a re-export does
    default_options = replace(
        options, target=None, retrace=loaded.is_saved_object, allow_weight_rewrite=False
    )
    if containers == (TFJS,):  # it computes in float32 with any policy
        default_options = replace(default_options, to="float32", include_exceptions=True)
    base = planning.draft(loaded, default_options)
    targets = [
        Target(loader=target, container=container, running=options.running)
        for container in containers
    ]
    # a target that reads policy names gets names: the old policy format makes no difference
    is_edited = any(
        edit.kind is not EditKind.FORMAT or not targets[0].reads_bare_names for edit in base.edits
    )
    after = _load_edited(loaded, default_options) if is_edited else loaded
    attempts = (_attempt(after, options, each, base.casts) for each in targets)
    first = next(attempts)
    chosen = (
        first
        if not first.refusals
        else next((attempt for attempt in attempts if not attempt.refusals), first)
    )
    weights = loaded.document.weights
    plan = replace(
        base,
        format=base.format if weights is None else weights.architecture,
        suffix=options.suffix,
        edits=tuple(edit for edit in base.edits if edit.kind is not EditKind.FORMAT),
        state=None,
        notes=tuple(
            dict.fromkeys(
                (
                    *(note for note in base.notes if note.code not in _OF_EDITS),
                    *_notes_on_names(loaded.document),
                    *_about_needed_name(verdict_of(loaded.loaders, target)),
                    *chosen.log.notes,
                )
            )
        ),
        refusals=tuple(dict.fromkeys((*base.refusals, *chosen.refusals))),
        loaders_before=loaded.loaders,
        loaders_after=chosen.result.loaders if chosen.result is not None else (),
        conversion=chosen.conversion,
        retrace=False,
    )
    return _Planned(plan=plan, result=chosen.result)


def _about_needed_name(verdict: Verdict | None) -> Iterator[Note]:
    """Yield a note if the target loads the file under another name."""
    if (command := file_names.needed_name(verdict)) is not None:
        yield Note(
            severity=NoteSeverity.NOTE,
            code="needed-name",
            message=f"the file needs no conversion, only another name: {command}",
        )


def _notes_on_names(document: Document) -> Iterator[Note]:
    """Yield a note if separate weights belong to layers with other names."""
    renamed = document.weights.renamed if document.weights is not None else {}
    if renamed:
        name, stored = next(iter(renamed.items()))
        yield Note(
            severity=NoteSeverity.WARNING,
            code="weights-by-position",
            message=f"the weights name layers differently ({stored} instead of {name}), so they "
            "were matched by position, as load_weights does",
        )


@once_per_model
def _load_edited(loaded: LoadedModel, options: Options) -> LoadedModel:
    """Return the model with a plan's edits, which are the same for all targets."""
    return planned_model(loaded, replace(planning.draft(loaded, options), casts=()))


class _Attempt(Struct, frozen=True, kw_only=True):
    """The conversion of a model to one container."""

    log: Log
    conversion: Conversion
    refusals: tuple[Refusal, ...]
    result: LoadedModel | None = None
    """The model as the target will read it; None if the conversion was refused before."""


def _lacking_weights(loaded: LoadedModel, target: Target) -> str | None:
    """Return the reason why a file has no weights to convert; None if it has all weights."""
    source_format = loaded.document.format
    if source_format in WITHOUT_WEIGHTS:
        return (
            f"contains no weights ({TITLES[source_format]}), but {TITLES[target.container]} "
            "requires them; use -o NAME.json, or convert a model with weights"
        )
    lost = (entry.message for entry in loaded.document.observations if entry.code == INCOMPLETE)
    if (defect := next(lost, None)) is not None:
        return f"has no values for its variables: {defect}; copy the files again"
    if source_format == TFJS and any(
        entry.code == QUANTIZED for entry in loaded.document.observations
    ):
        return (
            "contains quantized weights, which migrate does not convert; convert the model with "
            "tensorflowjs_converter --input_format=tfjs_layers_model --output_format=keras"
        )
    return None


def _attempt(
    loaded: LoadedModel, options: Options, target: Target, casts: Sequence[Cast]
) -> _Attempt:
    """
    Return the result of converting a model to a target: the content, the log, and what still fails
    to load.
    """
    log = Log()
    context = ConversionContext(
        loaded=loaded, target=target, log=log, allow_weight_rewrite=options.allow_weight_rewrite
    )
    content = Content(container=target.container, config=None)
    class_proofs: tuple[tuple[str, Proof], ...] = ()
    unmeasured: tuple[str, ...] = ()
    if (
        target.container != "json"
        and (missing_reason := _lacking_weights(loaded, target)) is not None
    ):
        log.refuse("no-weights", None, missing_reason)
    else:  # JSON has no variables
        kinds = DEFECTS if target.container != "json" else {Obstacle.CONFIG}
        for refusal in planning.unloadable(loaded.loaders, kinds):
            log.refuse(refusal.code, None, refusal.message)
    if log.refusals:
        conversion = Conversion(target=target.id, content=content)
        return _Attempt(log=log, conversion=conversion, refusals=tuple(log.refusals))
    try:
        source = decoding.decode(loaded)
        root = rewrite_model(source, context)
        class_proofs = proofs(source, context)
        unmeasured = unmeasured_classes(source, context) if class_proofs else ()
        content = _content(root, context, casts)
    except LimitError as error:
        log.refuse(reading.BEYOND, None, str(error))
    except SpellingError as error:
        log.refuse("config", None, str(error))
    conversion = Conversion(
        target=target.id,
        content=content,
        changes=tuple(log.changes),
        functions=tuple(log.functions.items()),
        unknown_functions=tuple(log.unknown_functions),
        proofs=class_proofs,
        unmeasured=unmeasured,
    )
    if log.refusals:
        return _Attempt(log=log, conversion=conversion, refusals=tuple(log.refusals))
    from policytool.formats import creating

    document = creating.document(content, loaded.document.path)
    after = reading.load_model(document)
    if target.is_tfjs:
        refusals = tuple(_refused_by_tfjs(after))
        return _Attempt(log=log, conversion=conversion, refusals=refusals, result=after)
    agreeing = agreeing_releases(root, target.release)
    return _Attempt(
        log=log,
        conversion=replace(conversion, agreeing=agreeing),
        refusals=tuple(_still_refused(after.loaders, target)),
        result=after,
    )


def rewrite_model(root: Unit, context: ConversionContext) -> Unit:
    """
    Return the model in the target's form. Parts that the target does not support are logged as
    refusals.

    :raises LimitError: if nested models that are called several times lead to too many calls.
    """
    if exceeded := limits.LAYER_CALLS.exceeded_message(count_calls(root)):
        raise LimitError(f"if every call of a nested model is counted, the model has {exceeded}")
    for rewrite in REWRITES:
        if rewrite.applies(context):
            root = rewrite.apply(root, context)
    return ordering.order_layers(
        encoding.keep_known(root, context.target, context.log), context.target
    )


def _content(root: Unit, context: ConversionContext, casts: Sequence[Cast]) -> Content:
    """Return the content of the converted file: config, variables and training configuration."""
    target = context.target
    config = encoding.encode(root, target, context.log)
    stores = target.container != "json"
    groups, placements = place_variables(root, context, casts) if stores else ((), ())
    trained = compile_config(root, context, placements) if stores and not target.is_tfjs else None
    if (
        trained is not None
        and target.container == "keras"
        and isinstance(config, dict)
        and trained.config is not None
    ):
        config["compile_config"] = trained.config
    return Content(
        container=target.container,
        config=config,
        training=trained.config if trained is not None and target.container == "h5" else None,
        keras_version=target.keras_version,
        groups=groups,
        placements=placements,
        state=trained.state if trained is not None else (),
        state_names=trained.state_names if trained is not None else (),
    )


def _refused_by_tfjs(after: LoadedModel) -> Iterator[Refusal]:
    """Yield the reasons why TensorFlow.js fails on the converted file or predicts differently."""
    for cause in tfjs_objections.objections(after):
        path = cause.layers[0] if cause.layers else None
        yield Refusal(
            code="tfjs",
            path=path,
            message=f"{path or after.document.path} cannot be converted: {cause.reason}",
        )


def _still_refused(loaders: Sequence[Verdict], target: Target) -> Iterator[Refusal]:
    """Yield the reasons why the target fails to load the converted file, as ``audit`` reports."""
    verdict = verdict_of(loaders, target.loader)
    if verdict is not None and verdict.reason is not None:
        yield Refusal(
            code=_NEEDED,
            message=f"the converted file would fail to load in {target.name} "
            f"({target.container}): {verdict.reason}",
        )
