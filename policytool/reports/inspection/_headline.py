"""A model in a line: how many layers it has, their policies, and which current releases load it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.releases import CURRENT
from policytool.reports._words import OUTCOMES, loader_ranges

if TYPE_CHECKING:
    from policytool.model.model import Model

_SHOWN: Final = 3
"""Policies that the line names."""


def headline(model: Model) -> str:
    """Return the line, without the path of the model."""
    current = [verdict for verdict in model.loaders if verdict.loader in CURRENT]
    outcomes = {
        label: [verdict.loader for verdict in current if verdict.outcome is outcome]
        for outcome, label in OUTCOMES.items()
    }
    loading = [
        f"{label} {loader_ranges(releases)}" for label, releases in outcomes.items() if releases
    ]
    return "; ".join([_layers(model), *loading])


def _layers(model: Model) -> str:
    total = len(model.layers)
    layers = f"{total:,} layer{'s' if total != 1 else ''}"
    counts = sorted(model.summary.policies.items(), key=lambda item: (-item[1], item[0]))
    if not counts:
        return f"{layers}, no policy" if total else layers
    if len(counts) == 1:
        return f"{layers}, {counts[0][0]}"
    named = ", ".join(f"{count} {policy}" for policy, count in counts[:_SHOWN])
    more = len(counts) - _SHOWN
    return f"{layers}: {named}" + (f" and {more} more policies" if more > 0 else "")
