"""
Planning: from a read model and what the user asks for to the list of everything that will change. Pure; nothing is written here.

``decisions`` says which policy each layer is to have, ``keep`` which layers stay in float32, ``propagation`` what the graph asks for, ``spelling`` how
it is written, ``training`` what becomes of the optimizer, ``storage`` which tensors are cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import policy, reading
from policytool.plan import ABSENT, Edit, Kept, Kind, Note, Plan, Refusal, Severity
from policytool.planning import buildable, propagation, spelling, storage, training
from policytool.planning.applied import applied
from policytool.planning.decisions import decide
from policytool.planning.keep import held
from policytool.planning.loss_scale import spells_scale
from policytool.planning.options import Options
from policytool.planning.subject import Subject
from policytool.planning.targets import generation_of
from policytool.tree import MODEL_CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.generations import Generation
    from policytool.model import Verdict
    from policytool.planning.decisions import Decisions
    from policytool.planning.training import Training
    from policytool.reading import Analysis

_NUMERIC: Final = frozenset({Kind.NUMERICS})


def plan(analysis: Analysis, options: Options) -> Plan:
    """
    Return what migrating the model as asked would change.

    Refusals are part of the plan: a file is migrated whole or not at all.

    :raises UsageError: for patterns that match no layer, or two that match one.
    """
    subject = Subject(analysis)
    target = generation_of(options.target)
    decisions = decide(subject, options)
    graph_edits = propagation.settle(subject, decisions)
    buildable.check(subject, decisions)
    edits = (*spelling.edits(subject, decisions, target), *graph_edits)
    casts = storage.casts(subject, decisions)
    trained = _training(subject, options, decisions, edits, target)
    everything = (*edits, *trained.edits)
    after = reading.analysed(applied(subject.document, everything, casts)).model.loaders
    return Plan(
        path=analysis.model.path,
        format=analysis.model.format,
        generation=analysis.model.generation,
        suffix=options.suffix,
        base_policy=decisions.base,
        edits=everything,
        casts=casts,
        state=trained.state,
        kept=_kept(subject, decisions),
        notes=(*trained.notes, *_about(subject, options, decisions)),
        refusals=(*decisions.refusals, *_still_refused(options, everything, after)),
        loaders_before=analysis.model.loaders,
        loaders_after=after,
    )


def _training(subject: Subject, options: Options, decisions: Decisions, edits: tuple[Edit, ...], target: Generation | None) -> Training:
    dropping = any(spells_scale(edit.before) and not spells_scale(edit.after) for edit in edits)
    changes = any(edit.kind in _NUMERIC for edit in edits)
    return training.plan(subject, options, decisions.base, changes=changes, respells=dropping, target=target.id if target else None)


def _kept(subject: Subject, decisions: Decisions) -> tuple[Kept, ...]:
    return tuple(
        Kept(path=subject.layers[index].path, policy=decision.policy.name, reason=decision.reason)
        for index, decision in sorted(decisions.by_site.items())
        if decision.kept
    )


def _about(subject: Subject, options: Options, decisions: Decisions) -> Iterator[Note]:
    """Yield what ``--to`` cannot know or say about the model."""
    if options.to is None:
        return
    kept = held(subject, policy.named(options.to), options.outputs)
    exceptions = [layer.path for index, layer in enumerate(subject.layers) if index not in kept and _is_exception(subject, decisions, index, options.to)]
    if exceptions:
        several = f"{', '.join(exceptions[:3])}{', ...' if len(exceptions) > 3 else ''}"  # noqa: PLR2004  # three examples
        message = f"{len(exceptions)} layers have a policy of their own and keep it ({several}); --include-exceptions changes them too"
        yield Note(severity=Severity.NOTE, code="exceptions-kept", message=message)
    root = subject.sites[0]
    if root.class_name not in MODEL_CLASSES and 0 not in subject.graphs:
        message = f"{subject.layers[0].path} is a subclassed model: which layers make its outputs is not in the file, so none is kept in float32 for that"
        yield Note(severity=Severity.NOTE, code="outputs-unknown", message=message, path=subject.layers[0].path)
    unsaid = [
        layer.path for index, layer in enumerate(subject.layers) if layer.policy is None and subject.has_weights(index) and not subject.sites[index].is_model
    ]
    if unsaid:
        several = f"{', '.join(unsaid[:3])}{', ...' if len(unsaid) > 3 else ''}"  # noqa: PLR2004  # three examples
        message = f"{len(unsaid)} layers with weights say no policy in the file ({several}): the loader's global policy decides for them, now and then"
        yield Note(severity=Severity.WARNING, code="policy-unsaid", message=message)


def _is_exception(subject: Subject, decisions: Decisions, index: int, to: str) -> bool:
    """Return whether the layer says a policy that is neither the base nor the target, and stays as it is."""
    if index in decisions.by_site or subject.is_input(index) or not subject.is_floating(index) or subject.sites[index].sub_policy is not None:
        return False
    return subject.policy_name(index) not in {decisions.base, to}


def _still_refused(options: Options, edits: tuple[Edit, ...], after: tuple[Verdict, ...]) -> Iterator[Refusal]:
    if options.target is None or not edits:
        return
    verdict = next((verdict for verdict in after if verdict.loader == options.target), None)
    if verdict is not None and verdict.reason is not None:
        message = f"{options.target} would refuse the file for more than its policies: {verdict.reason}; converting that is not part of migrate yet"
        yield Refusal(code="target-refuses", message=message)


__all__ = ["ABSENT", "Options", "Plan", "plan"]
