"""
Planning: from a read model and what the user asks for to the list of everything that will change.
Pure; nothing is written here.

``decisions`` says which policy each layer is to have, ``keep`` which layers stay in float32,
``propagation`` what the graph asks for, ``spelling`` how it is written, ``training`` what becomes
of the optimizer, ``storage`` which tensors are cast.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.formats.edits import Cast, Edit, Kind
from policytool.migration.plan import Kept, Plan, Refusal
from policytool.migration.planning import (
    buildable,
    policy_formats,
    propagation,
    savedmodel_revival,
    stored_dtypes,
    traced_notes,
    training,
)
from policytool.migration.planning import notes as remarks
from policytool.migration.planning.decisions import decide
from policytool.migration.planning.loss_scale import spells_scale
from policytool.migration.planning.options import Options
from policytool.migration.planning.planned_document import applied
from policytool.model import reading
from policytool.model.loaded_model import Subject
from policytool.releases.generations import keras1
from policytool.releases.targets import generation_of
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.planning.decisions import Decisions
    from policytool.migration.planning.training import Training
    from policytool.model.model import Verdict
    from policytool.model.reading import Analysis
    from policytool.releases.generations import Generation

_NUMERIC: Final = frozenset({Kind.NUMERICS})
_PICKLED: Final = "pickled-weights"
"""What readers observe of weights that are a Python pickle."""


def plan(analysis: Analysis, options: Options) -> Plan:
    """
    Return what migrating the model as asked would change.

    Refusals are part of the plan: a file is migrated whole or not at all.

    :raises UsageError: for patterns that match no layer, or two that match one.
    """
    return planned(Subject(analysis), options)


def planned(subject: Subject, options: Options) -> Plan:
    """
    Return what :func:`plan` does, of a model that much is asked of: each plan is made once.

    :raises UsageError: as there.
    """
    if options not in subject.plans:
        subject.plans[options] = plan_with_result(subject, options)[0]
    return subject.plans[options]


def plan_with_result(subject: Subject, options: Options) -> tuple[Plan, Analysis]:
    """
    Return the plan, and the model as its edits and casts leave it, without traced dtypes: nothing
    has to read that model a second time.

    :raises UsageError: as :func:`plan`.
    """
    analysis = subject.analysis
    target = generation_of(options.target)
    decisions = decide(subject, options)
    graph_edits = propagation.settle(subject, decisions)
    buildable.check(subject, decisions)
    retrace = options.retrace and subject.document.format == "savedmodel"
    if not retrace:
        savedmodel_revival.check(subject, decisions)
    edits = (*policy_formats.edits(subject, decisions, target), *graph_edits)
    casts = stored_dtypes.casts(subject, decisions, retrace=retrace)
    trained = _training(subject, options, decisions, edits, target)
    everything = (*edits, *trained.edits)
    result = _result(analysis, everything, casts)
    after = savedmodel_revival.loaders(subject.document, everything, result.model.loaders)
    refusals = (
        *_before_policies(subject, options),
        *decisions.refusals,
        *_still_refused(options, everything, after),
    )
    made = Plan(
        path=analysis.model.path,
        format=analysis.model.format,
        generation=analysis.model.generation,
        suffix=options.suffix,
        base_policy=decisions.base,
        edits=everything,
        casts=casts,
        state=trained.state,
        kept=_kept(subject, decisions),
        notes=(
            *trained.notes,
            *remarks.about(subject, options, decisions),
            *(() if retrace else traced_notes.notes(subject, everything)),
            *(() if refusals else remarks.about_layout(subject, everything)),
        ),
        refusals=refusals,
        loaders_before=analysis.model.loaders,
        loaders_after=after,
        retrace=retrace,
    )
    return made, result


def _result(analysis: Analysis, edits: tuple[Edit, ...], casts: tuple[Cast, ...]) -> Analysis:
    """Return the model after the edits; no release judges its graph, which stays as it is."""
    if not (edits or casts):
        return analysis
    return reading.analysed(replace(applied(analysis.document, edits, casts), traces=()))


def _training(
    subject: Subject,
    options: Options,
    decisions: Decisions,
    edits: tuple[Edit, ...],
    target: Generation | None,
) -> Training:
    dropping = any(spells_scale(edit.before) and not spells_scale(edit.after) for edit in edits)
    changes = any(edit.kind in _NUMERIC for edit in edits)
    return training.plan(
        subject,
        options,
        decisions.base,
        changes=changes,
        respells=dropping,
        target=target.id if target else None,
    )


def _kept(subject: Subject, decisions: Decisions) -> tuple[Kept, ...]:
    return tuple(
        Kept(path=subject.layers[index].path, policy=decision.policy.name, reason=decision.reason)
        for index, decision in sorted(decisions.by_site.items())
        if decision.kept
    )


def _before_policies(subject: Subject, options: Options) -> Iterator[Refusal]:
    for observation in subject.document.observations:
        if observation.code == _PICKLED:
            message = (
                f"{observation.message}; migrate writes no copy of them: load the model where you "
                "trust it, and save it with its weights in HDF5"
            )
            yield Refusal(code=_PICKLED, message=message)
    if subject.generation is keras1.GENERATION and (options.to or options.assignments):
        path = subject.layers[0].path
        message = (
            f"{path} is a model of Keras 1, whose layers take no dtype, and nothing that has "
            "policies loads its config; convert it to Keras 2 first"
        )
        yield Refusal(code="no-policies", message=message, path=path)


def _still_refused(
    options: Options, edits: tuple[Edit, ...], after: tuple[Verdict, ...]
) -> Iterator[Refusal]:
    if options.target is None or not edits:
        return
    verdict = next((verdict for verdict in after if verdict.loader == options.target), None)
    if verdict is not None and verdict.reason is not None:
        message = (
            f"{options.target} would refuse the edited file for more than its policies: "
            f"{verdict.reason}"
        )
        yield Refusal(code="target-refuses", message=message)


__all__ = ["ABSENT", "Options", "Plan", "plan", "plan_with_result", "planned"]
