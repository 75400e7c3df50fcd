"""What the loaders that are asked about make of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration import planning
from policytool.model.model import Obstacle
from policytool.releases.targets import generation_of
from policytool.rules.finding import Fix, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.document import Address
    from policytool.model.model import Cause, Verdict
    from policytool.rules.base import AuditOptions, RuleInput

_MENDED: Final = frozenset({Obstacle.POLICY, Obstacle.STORAGE})
"""What plain ``migrate`` changes."""

_SHOWN: Final = 3


def verdicts(case: RuleInput, options: AuditOptions) -> Iterator[Verdict]:
    """Yield the verdict of each target, in their order."""
    by_loader = {verdict.loader: verdict for verdict in case.model.loaders}
    yield from (by_loader[target] for target in options.targets if target in by_loader)


def remedy(case: RuleInput, verdict: Verdict) -> Remedy | None:
    """
    Return what of ``migrate`` makes a loader take the file; None where nothing does.

    No plan is made where more than policies and storage refuse.
    """
    if case.loaded is None or not all(cause.kind in _MENDED for cause in verdict.causes):
        return None
    target = verdict.loader if generation_of(verdict.loader) is not None else None
    plan = planning.plan(case.loaded, planning.Options(target=target))
    after = next((found for found in plan.loaders_after if found.loader == verdict.loader), None)
    taken = plan.edits or plan.casts
    return (
        Remedy(fix=Fix.SAFE, target=target)
        if taken and not plan.refusals and after is not None and after.reason is None
        else None
    )


def detail(verdict: Verdict, cause: Cause) -> str:
    """Return what tells a cause from a target's others."""
    return f"{verdict.loader} {cause.kind} {cause.class_name or ''} {' '.join(cause.keys)}".rstrip()


def at(cause: Cause) -> str:
    """Return the layers of a cause in words."""
    return f" ({_join_layers(cause.layers)})" if cause.layers else ""


def also(cause: Cause) -> str:
    """Return the layers of a cause but the first, at which the finding about it stands."""
    return f" (also {_join_layers(cause.layers[1:])})" if cause.layers[1:] else ""


def _join_layers(layers: tuple[str, ...]) -> str:
    more = len(layers) - _SHOWN
    return f"{', '.join(layers[:_SHOWN])}{f' and {more} more' if more > 0 else ''}"


def address(case: RuleInput, cause: Cause) -> Address | None:
    """
    Return where the first layer of a cause has its policy, which is beside what the cause is about.
    """
    if not cause.layers:
        return None
    return next(
        (layer.address for layer in case.model.layers if layer.path == cause.layers[0]), None
    )
