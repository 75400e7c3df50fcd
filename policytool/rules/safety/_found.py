"""What the configs hold, as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.hazards import Harm
    from policytool.rules.base import Rule, RuleInput
    from policytool.rules.finding import Finding


def findings(rule: Rule, case: RuleInput, harm: Harm, *, advice: str) -> Iterator[Finding]:
    """Yield each thing of a kind, at the layer that it stands in."""
    for hazard in case.loaded.hazards if case.loaded is not None else ():
        if hazard.harm is harm:
            layer = case.model.layers[hazard.site] if hazard.site is not None else None
            who = (
                layer.path
                if layer is not None
                else f"{hazard.address.part}{hazard.address.pointer}"
            )
            yield rule.finding(
                f"{who} {hazard.what}",
                path=layer.path if layer is not None else None,
                address=hazard.address,
                detail=hazard.name,
                advice=advice,
            )
