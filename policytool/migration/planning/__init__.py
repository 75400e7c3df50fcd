"""
Plan the changes of a loaded model for the user's options. Pure: nothing is written here.

``decisions`` chooses the policy of each layer, ``keep`` the layers that stay in float32, and
``propagation`` follows dtypes through the graph. ``policy_formats`` writes policies as the target
reads them, ``training`` changes the optimizer, and ``stored_dtypes`` lists the tensors to cast.
:func:`with_layers` writes the policies of many layers as few ``--set`` options, which plan the same
as one for each layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from policytool.formats.edits import Edit, EditKind
from policytool.migration.plan import Kept, Plan, Refusal, apply_edits, planned_model
from policytool.migration.planning import (
    notes,
    policy_formats,
    propagation,
    rebuilt_layers,
    training,
)
from policytool.migration.planning import notes as remarks
from policytool.migration.planning.decisions import decide, is_settable, matches
from policytool.migration.planning.options import Assignment, Options
from policytool.migration.planning.training import has_explicit_scale
from policytool.model import compatibility, reading
from policytool.model.compatibility import stored_variables
from policytool.model.loaded_model import once_per_model
from policytool.model.model import verdict_of
from policytool.releases.generations import KERAS_1
from policytool.releases.releases import generation_of, release_name
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.patterns.selection import selecting_patterns

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from policytool.migration.planning.decisions import Decisions
    from policytool.migration.planning.training import Training
    from policytool.model.compatibility import StoredVariables
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Obstacle, Verdict
    from policytool.releases.generations import Generation


_PICKLED: Final = "pickled-weights"
"""The code of the observation that the weights are a Python pickle."""


UNLOADABLE: Final = "unloadable"
"""The code of a refusal to write a copy of a file whose config or variables no release loads."""


@once_per_model
def plan(loaded: LoadedModel, options: Options) -> Plan:
    """
    Return the plan for migrating the model with these options.

    Refusals are part of the plan. If there is any, nothing in the file is migrated.

    :raises UsageError: if a pattern matches no layer, or two patterns match the same layer.
    """
    draft_plan = draft(loaded, options)
    after = rebuilt_layers.loaders(
        loaded.document, draft_plan.edits, compatibility.verdicts(_edited(loaded, options))
    )
    changes = bool(draft_plan.edits or draft_plan.casts)
    refusals = (
        *draft_plan.refusals,
        *(unloadable(after) if changes else ()),
        *_still_refused(options, draft_plan.edits, after),
    )
    return structs.replace(
        draft_plan,
        notes=(
            *draft_plan.notes,
            *(() if refusals else remarks.about_layout(loaded, draft_plan.edits)),
            *remarks.about_keras3(loaded, after),
        ),
        refusals=refusals,
        loaders_before=loaded.loaders,
        loaders_after=after,
    )


def edited_model(loaded: LoadedModel, options: Options) -> LoadedModel:
    """
    Return the model with the edits and casts of the plan with these options.

    :raises UsageError: as :func:`plan` does.
    """
    stored = _edited(loaded, options)
    document = replace(stored.document, traces=loaded.document.traces)
    return reading.describe(replace(stored, document=document))


@once_per_model
def _edited(loaded: LoadedModel, options: Options) -> StoredVariables:
    """Return the edited file without its graph, which does not affect verdicts."""
    draft_plan, document = draft(loaded, options), loaded.document
    if not (draft_plan.edits or draft_plan.casts or document.traces):
        return loaded.stored
    edited = apply_edits(document, draft_plan.edits, draft_plan.casts)
    return reading.stored_variables(replace(edited, traces=()))


@once_per_model
def draft(loaded: LoadedModel, options: Options) -> Plan:
    """
    Return the plan without the verdicts of releases on the edited file, for callers that need only
    the changes.

    :raises UsageError: as :func:`plan` does.
    """
    target = generation_of(options.target)
    decisions, edits = _decide(loaded, options)
    trained = _training(loaded, options, decisions, edits, target)
    everything = (*edits, *trained.edits)
    retrace = _retraces(loaded, options)
    return Plan(
        path=loaded.document.path,
        format=loaded.document.format,
        generation=loaded.description.generation,
        suffix=options.suffix,
        base_policy=decisions.base,
        weights=weights.document.path if (weights := loaded.document.weights) else None,
        edits=everything,
        casts=notes.casts(loaded, decisions, retrace=retrace),
        state=trained.state,
        kept=tuple(
            Kept(
                path=loaded.layers[index].path, policy=decision.policy.name, reason=decision.reason
            )
            for index, decision in sorted(decisions.by_site.items())
            if decision.kept
        ),
        notes=(
            *trained.notes,
            *remarks.about(loaded, options, decisions),
            *(() if retrace else remarks.about_traces(loaded, everything)),
        ),
        refusals=(*_before_policies(loaded, options), *decisions.refusals),
        retrace=retrace,
    )


def refusals(loaded: LoadedModel, options: Options) -> tuple[Refusal, ...]:
    """
    Return the refusals of :func:`draft` without computing the rest of the plan.

    :raises UsageError: as :func:`draft` does.
    """
    decisions, _ = _decide(loaded, options)
    return (*_before_policies(loaded, options), *decisions.refusals)


def _decide(loaded: LoadedModel, options: Options) -> tuple[Decisions, tuple[Edit, ...]]:
    """Return the decision for each layer, with all refusals, and the edits of policies."""
    decisions = decide(loaded, options)
    graph_edits = propagation.settle_conflicts(loaded, decisions)
    rebuilt_layers.check_buildable(loaded, decisions)
    if not _retraces(loaded, options):
        rebuilt_layers.check_revived(loaded, decisions)
    target = generation_of(options.target)
    return decisions, (*policy_formats.edits(loaded, decisions, target), *graph_edits)


def _retraces(loaded: LoadedModel, options: Options) -> bool:
    return options.retrace and loaded.document.format == "savedmodel"


def _training(
    loaded: LoadedModel,
    options: Options,
    decisions: Decisions,
    edits: tuple[Edit, ...],
    target: Generation | None,
) -> Training:
    return training.plan(
        loaded,
        options,
        decisions.base,
        changes=any(edit.kind is EditKind.NUMERICS for edit in edits),
        respells=any(
            has_explicit_scale(edit.before) and not has_explicit_scale(edit.after) for edit in edits
        ),
        target=target.id if target else None,
    )


def _before_policies(loaded: LoadedModel, options: Options) -> Iterator[Refusal]:
    """
    Yield refusals that do not depend on policies: pickled weights, and Keras 1 layers without
    dtypes.
    """
    for observation in loaded.document.observations:
        if observation.code == _PICKLED:
            yield Refusal(
                code=_PICKLED,
                message=(
                    f"{observation.message}; migrate does not copy such weights. If you trust the "
                    "file, load it in Keras and save it again with HDF5 weights"
                ),
            )
    if loaded.generation is KERAS_1 and (options.to or options.assignments):
        path = loaded.layers[0].path
        yield Refusal(
            code="no-policies",
            message=(
                f"{path} is a Keras 1 model, and Keras 1 layers have no dtype; convert the model "
                "to Keras 2 first, with migrate --target tf_keras"
            ),
            path=path,
        )


def unloadable(
    verdicts: Sequence[Verdict], kinds: Container[Obstacle] = stored_variables.DEFECTS
) -> Iterator[Refusal]:
    """Yield a refusal for a file that no release loads because of its config or its variables."""
    cause = stored_variables.damage(verdicts, kinds)
    if cause is not None:
        yield Refusal(
            code=UNLOADABLE,
            message=f"no release loads the file: {cause.reason}; {cause.remedy}",
            path=cause.layers[0] if cause.layers else None,
        )


def _still_refused(
    options: Options, edits: tuple[Edit, ...], after: Sequence[Verdict]
) -> Iterator[Refusal]:
    """Yield a refusal if the target still fails to load the edited file."""
    if options.target is None or not edits:
        return
    verdict = verdict_of(after, options.target)
    if verdict is not None and verdict.reason is not None:
        yield Refusal(
            code="incompatible-with-target",
            message=(
                f"{release_name(options.target)} fails to load the edited file for another reason: "
                f"{verdict.reason}"
            ),
        )


def with_layers(loaded: LoadedModel, options: Options, policies: Mapping[str, str]) -> Options:
    """
    Return options that also set the policies of layers, with few patterns.

    Patterns may match layers that already have the policy. They are used only if they change the
    same values in the file as one ``--set`` per path; otherwise each layer gets a ``--set``.

    :param policies: the policy of each layer, by its path
    """
    each = (Assignment(pattern=path, policy=policy) for path, policy in policies.items())
    exact = structs.replace(options, assignments=(*options.assignments, *each))
    exact_plan = _plan(loaded, exact)
    planned = planned_model(loaded, exact_plan)
    for harmless in (
        {index: layer.policy for index, layer in enumerate(planned.layers)},
        {},
    ):
        assignments = tuple(_assignments(loaded, options, policies, harmless))
        short = structs.replace(options, assignments=(*options.assignments, *assignments))
        if len(assignments) < len(policies) and _plans_same(loaded, short, exact_plan):
            return short
    return exact


def _assignments(
    loaded: LoadedModel,
    options: Options,
    policies: Mapping[str, str],
    harmless: Mapping[int, str | None],
) -> Iterator[Assignment]:
    """
    Yield an assignment for each pattern.

    :param harmless: layers that patterns for the same policy may match
    """
    by_user = matches(loaded, options.assignments)
    names = {
        index: (layer.path, *layer.also_at)
        for index, layer in enumerate(loaded.layers)
        if is_settable(loaded, index)
    }
    for policy in dict.fromkeys(policies.values()):
        group = [path for path, layer_policy in policies.items() if layer_policy == policy]
        # A user's pattern for the same layer would be an error; an exact path takes precedence
        chosen = {
            index: names[index]
            for index, layer in enumerate(loaded.layers)
            if layer.path in group and index not in by_user and index in names
        }
        others = [
            names[index]
            for index in names
            if index not in chosen and (index in by_user or harmless.get(index) != policy)
        ]
        patterns = selecting_patterns(list(chosen.values()), others)
        inside = {loaded.layers[index].path for index in chosen}
        yield from (Assignment(pattern=pattern, policy=policy) for pattern in patterns)
        yield from (Assignment(pattern=path, policy=policy) for path in group if path not in inside)


def _plan(loaded: LoadedModel, options: Options) -> Plan:
    return draft(loaded, structs.replace(options, retrace=loaded.document.format == "savedmodel"))


def _plans_same(loaded: LoadedModel, options: Options, expected_plan: Plan) -> bool:
    """Return whether options change the same values in the file."""
    try:
        plan = _plan(loaded, options)
    except (UsageError, ModelFileError):  # two patterns match one layer; the limit of steps
        return False
    return _changes(plan) == _changes(expected_plan)


def _changes(plan: Plan) -> tuple[object, ...]:
    """Return the changes of a plan, without the reasons."""
    return (
        {(edit.address, repr(edit.after)) for edit in plan.edits},
        {(cast.tensor, cast.after, cast.through) for cast in plan.casts},
        plan.state,
        [refusal.code for refusal in plan.refusals],
    )


__all__ = ["Options", "Plan", "draft", "plan", "refusals", "unloadable", "with_layers"]
