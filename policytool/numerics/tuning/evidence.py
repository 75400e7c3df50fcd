"""
What a diagnosis says about the candidates of a search: which to keep first, and what goes wrong in
each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policytool.numerics.tuning.results import Preference
from policytool.numerics.verdicts import origins
from policytool.numerics.verdicts.origins import Choices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall

_FLOAT32_BYTES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerEvidence:
    """What was measured of a layer in 16 bits."""

    error: float | None
    is_finite: bool
    largest: float | None
    headroom: float | None
    flushed: float | None
    memory: float
    """Bytes of its outputs in float32."""


def evidence(check: Check, paths: Iterable[str]) -> dict[str, LayerEvidence]:
    """Return what was measured of each layer; nothing for layers that were not called."""
    calls: dict[str, list[LayerCall]] = {}
    for call in check.runs[0].calls:
        calls.setdefault(call.path, []).append(call)
    return {path: _of_calls(calls[path]) for path in paths if path in calls}


def losses(check: Check, paths: tuple[str, ...]) -> dict[str, float]:
    """
    Return the loss of each layer: the error of its calls, or the share of values that become zero;
    infinity if it computes NaN or infinity. The losses of ops and inner layers count for the layer
    that determines their dtype.
    """
    run, choices = check.runs[0], Choices(paths=paths)
    loss_by_path = dict.fromkeys(paths, 0.0)
    for place, call in enumerate(run.calls):
        if call.is_model:
            continue
        lost = max(
            origins.own_error(call),
            *(output.accumulated.flushed or 0.0 for output in call.outputs if output.accumulated),
            0.0,
        )
        for path in origins.units(run, place, choices):
            loss_by_path[path] = max(loss_by_path[path], lost)
    return loss_by_path


def proposals(
    check: Check, paths: tuple[str, ...], rules: Iterable[str]
) -> Iterator[frozenset[str]]:
    """
    Yield sets to try first: the layers that the diagnosis blames, these with their neighbours, and
    those that ``migrate`` keeps in float32 by default.
    """
    run, choices = _failed(check), Choices(paths=paths)
    blamed = origins.propose(run, choices)
    by_rule = frozenset(rules)
    more = blamed | origins.neighbours(run, blamed, choices) if blamed else blamed
    yield from dict.fromkeys(
        proposal for proposal in (blamed, by_rule, blamed | by_rule, more) if proposal
    )


def decided(check: Check, paths: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """
    Return, for each layer, the blamed calls whose dtype the layer determines because their own
    policy is not in the file: ops that use its outputs, and layers inside it.
    """
    run, choices = _failed(check), Choices(paths=paths)
    calls_by_path: dict[str, list[str]] = {}
    for charge in origins.charges(run):
        call = run.calls[charge.call]
        for path in origins.units(run, charge.call, choices):
            if call.path not in paths:
                calls_by_path.setdefault(path, []).append(call.place)
    return {path: tuple(places) for path, places in calls_by_path.items()}


def groups(paths: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    """Return the layers that contain others of them, each with those."""
    choices = Choices(paths=paths)
    outer: list[frozenset[str]] = []
    for path in paths:
        group = choices.unit(path)
        if len(group) > 1 and not any(group <= other for other in outer):
            outer.append(group)
    return tuple(outer)


def costs(
    layer_evidence: Mapping[str, LayerEvidence],
    times: Mapping[str, float],
    paths: Iterable[str],
    preference: Preference,
) -> dict[str, float]:
    """Return the cost of each layer in float32 under a preference; empty without a preference."""
    match preference:
        case Preference.MEMORY:
            return {
                path: layer_evidence[path].memory if path in layer_evidence else 0.0
                for path in paths
            }
        case Preference.SPEED:
            return {path: times.get(path, 0.0) for path in paths}
    return {}


def _of_calls(calls: list[LayerCall]) -> LayerEvidence:
    outputs = [output for call in calls for output in call.outputs]
    measured = [output.accumulated for output in outputs if output.accumulated is not None]
    errors = [origins.own_error(call) for call in calls]
    error = max(errors, default=math.inf)
    return LayerEvidence(
        error=error if math.isfinite(error) and any(map(_is_measured, outputs)) else None,
        is_finite=not any(metrics.overflow for metrics in measured) and math.isfinite(error),
        largest=_largest(metrics.largest_reference for metrics in measured),
        headroom=min(
            (metrics.headroom for metrics in measured if metrics.headroom is not None), default=None
        ),
        flushed=_largest(metrics.flushed for metrics in measured),
        memory=float(_FLOAT32_BYTES * sum(metrics.elements for metrics in measured)),
    )


def _is_measured(output: CheckedOutput) -> bool:
    return output.own is not None or output.isolated is not None


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _failed(check: Check) -> CheckRun:
    return next((run for run in check.runs if not run.verdict.passed), check.runs[0])
