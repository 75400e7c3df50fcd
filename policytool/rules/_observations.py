"""What readers observed of a file, as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.document import Observation
    from policytool.rules.base import Rule, RuleInput
    from policytool.rules.finding import Finding, Remedy, Severity


def select(case: RuleInput, *codes: str) -> Iterator[Observation]:
    """Yield the observations of these codes."""
    yield from (observation for observation in case.model.observations if observation.code in codes)


def finding(
    rule: Rule,
    case: RuleInput,
    observation: Observation,
    *,
    severity: Severity | None = None,
    remedy: Remedy | None = None,
    advice: str | None = None,
) -> Finding:
    """
    Return what was observed as a finding of a rule: at the layer where it is about one, else told
    apart by where it is.
    """
    where = observation.where or ""
    layer = next((layer for layer in case.model.layers if layer.path == where), None)
    return rule.finding(
        observation.message,
        path=layer.path if layer is not None else None,
        address=layer.address if layer is not None else None,
        detail="" if layer is not None else f"{observation.code}:{where}",
        severity=severity,
        remedy=remedy,
        advice=advice,
    )
