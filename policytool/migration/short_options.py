"""The policies of many layers in few ``--set`` options, which plan the same as one for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.migration import planning
from policytool.migration.plan import apply_edits
from policytool.migration.planning import decisions
from policytool.migration.planning.options import Assignment
from policytool.model import reading
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.patterns.selection import selecting_patterns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.migration.plan import Plan
    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel


def with_layers(loaded: LoadedModel, options: Options, policies: Mapping[str, str]) -> Options:
    """
    Return options that also set the policies of layers, with few patterns.

    Patterns may match layers that have the policy anyway. They are used only if they change the
    same values in the file as one ``--set`` per path; otherwise each layer gets its own ``--set``.

    :param policies: the policy of each layer, by its path
    """
    each = (Assignment(pattern=path, policy=policy) for path, policy in policies.items())
    exact = replace(options, assignments=(*options.assignments, *each))
    exact_plan = _plan(loaded, exact)
    planned = reading.load_model(apply_edits(loaded.document, exact_plan.edits, exact_plan.casts))
    for harmless in (
        {index: layer.policy for index, layer in enumerate(planned.layers)},
        {},
    ):
        assignments = tuple(_assignments(loaded, options, policies, harmless))
        short = replace(options, assignments=(*options.assignments, *assignments))
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
    by_user = decisions.matches(loaded, options.assignments)
    names = {
        index: (layer.path, *layer.also_at)
        for index, layer in enumerate(loaded.layers)
        if decisions.is_settable(loaded, index)
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
    return planning.draft(loaded, replace(options, retrace=loaded.document.format == "savedmodel"))


def _plans_same(loaded: LoadedModel, options: Options, expected_plan: Plan) -> bool:
    """Return whether options change the same values in the file."""
    try:
        plan = _plan(loaded, options)
    except (UsageError, ModelFileError):  # two patterns match one layer; the limit of steps
        return False
    return _changes(plan) == _changes(expected_plan)


def _changes(plan: Plan) -> tuple[object, ...]:
    """Return what a plan changes, without the reasons."""
    return (
        {(edit.address, repr(edit.after)) for edit in plan.edits},
        {(cast.tensor, cast.after, cast.through) for cast in plan.casts},
        plan.state,
        [refusal.code for refusal in plan.refusals],
    )
