"""
Where the error of a failed check comes from: the call that makes it, as opposed to those that only
pass it on or show it.

A call that gets NaN or infinity does not make it: the call that made it does, or the code between.
An error that a call shows because its inputs were rounded belongs to what made these inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from policytool.numerics.check_results.verdicts import (
    JudgementSubject,
    NotComparable,
    Origin,
    Ruling,
)
from policytool.numerics.verdicts import tolerances

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.layers import CallTrace, LayerCall
    from policytool.numerics.check_results.metrics import Metrics


class Blame(StrEnum):
    """What a call does to its results."""

    NONFINITE = "nonfinite"
    """It makes NaN or infinity."""

    ERROR = "error"
    """It makes an error above its tolerance, of inputs that are given."""

    ROUNDING = "rounding"
    """It rounds its outputs, and a later call loses more than its tolerance by that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """One call that is to blame."""

    call: int
    """Its place in the run."""

    blame: Blame
    in_code: bool = False
    """Whether the code of a layer that calls others is to blame, and not one of these."""

    seen_in: int | None = None
    """For :attr:`Blame.ROUNDING`, the call that shows it."""


def charges(run: CheckRun) -> tuple[Charge, ...]:
    """
    Return the calls to blame in a diagnosis, in the order in which the model makes them: what makes
    NaN or infinity if that reaches an output, and every error above its tolerance.
    """
    if not run.calls or any(call.trace is None for call in run.calls):
        return ()
    found = [*_nonfinite(run), *_errors(run)]
    first = {one.call: one for one in reversed(found)}
    return tuple(sorted(first.values(), key=lambda one: _begun(run.calls[one.call])))


def with_traces(run: CheckRun, diagnosis: CheckRun) -> CheckRun:
    """
    Return the calls of a run that a diagnosis has too, with their places in the candidate: which
    calls make the inputs of which is the same whatever they compute in.
    """
    if all(call.trace is not None for call in run.calls):
        return run
    places = {call.place: number for number, call in enumerate(diagnosis.calls)}
    calls = [call for call in run.calls if call.place in places]
    now = {places[call.place]: number for number, call in enumerate(calls)}
    return replace(
        run,
        calls=tuple(replace(call, trace=_moved(diagnosis, call, places, now)) for call in calls),
    )


def _moved(
    diagnosis: CheckRun, call: LayerCall, places: Mapping[str, int], now: Mapping[int, int]
) -> CallTrace | None:
    trace = diagnosis.calls[places[call.place]].trace
    if trace is None:
        return None
    return replace(
        trace,
        within=now.get(trace.within) if trace.within is not None else None,
        producers=tuple(now[number] for number in trace.producers if number in now),
        gets_nonfinite=False,
    )


def origin(run: CheckRun, charge: Charge) -> Origin:
    """Return the place of a charge, as reports show it."""
    call = run.calls[charge.call]
    return Origin(
        path=call.place,
        class_name=call.class_name,
        in_code=charge.in_code,
        seen_in=run.calls[charge.seen_in].place if charge.seen_in is not None else None,
        nonfinite=charge.blame is Blame.NONFINITE,
    )


def with_nan_of_reference(run: CheckRun) -> CheckRun:
    """
    Return a run whose outputs show nothing because the reference makes NaN, with the layer that
    makes it as its origin.
    """
    path = run.verdict.nonfinite_reference
    blind = any(one.not_comparable is NotComparable.NOT_FINITE for one in run.verdict.judgements)
    call = next((call for call in run.calls if call.place == path), None)
    if call is None or not blind:
        return run
    found = Origin(
        path=call.place,
        class_name=call.class_name,
        in_code=call.children > 0,
        seen_in=None,
        nonfinite=True,
        in_reference=True,
    )
    return replace(run, origin=found)


def _begun(call: LayerCall) -> int:
    return call.trace.begun if call.trace is not None else 0


def _nonfinite(run: CheckRun) -> Iterator[Charge]:
    """Yield the first place where the candidate makes NaN or infinity, if an output shows it."""
    shown = any(
        one.ruling is Ruling.NOT_FINITE and one.about is JudgementSubject.OUTPUT
        for one in run.verdict.judgements
    )
    if not shown:
        return
    for place, enters in _events(run.calls):
        call = run.calls[place]
        if enters and call.trace is not None and call.trace.gets_nonfinite:
            within = call.trace.within
            if within is not None:  # else an input of the model itself has it
                yield Charge(call=within, blame=Blame.NONFINITE, in_code=True)
            return
        if not enters and any(_is_spoiled(one.accumulated) for one in call.outputs):
            yield Charge(call=place, blame=Blame.NONFINITE, in_code=call.children > 0)
            return


def _events(calls: Sequence[LayerCall]) -> Iterator[tuple[int, bool]]:
    """Yield each call twice, in the order of the model: where it begins (True) and ends (False)."""
    inner: dict[int | None, list[int]] = {}
    for place, call in enumerate(calls):
        within = call.trace.within if call.trace is not None else None
        inner.setdefault(within, []).append(place)
    pending = [(place, True) for place in reversed(_in_order(calls, inner.get(None, [])))]
    while pending:
        place, enters = pending.pop()
        yield place, enters
        if enters:
            pending.append((place, False))
            pending += [(one, True) for one in reversed(_in_order(calls, inner.get(place, [])))]


def _in_order(calls: Sequence[LayerCall], places: Sequence[int]) -> list[int]:
    return sorted(places, key=lambda place: _begun(calls[place]))


def _errors(run: CheckRun) -> Iterator[Charge]:
    """Yield the calls whose own error is above its tolerance, and those that round too much."""
    judged = {
        one.path: one.tolerance
        for one in run.verdict.judgements
        if one.about is JudgementSubject.LAYER
    }
    own = {
        place
        for place, call in enumerate(run.calls)
        if not call.is_model and own_error(call) > _tolerance(call, judged)
    }
    holders = {outer for place in own for outer in _around(run.calls, place)}
    for place, call in enumerate(run.calls):
        if place in holders or call.is_model:
            continue
        if place in own:
            yield Charge(call=place, blame=Blame.ERROR, in_code=call.children > 0)
        elif _rounding_error(call) > _tolerance(call, judged):
            for producer in rounding_producers(run.calls, place):
                yield Charge(call=producer, blame=Blame.ROUNDING, seen_in=place)


def _tolerance(call: LayerCall, judged: dict[str, float]) -> float:
    found = judged.get(call.place)
    return found if found is not None else tolerances.layer_tolerance(call)


def _around(calls: Sequence[LayerCall], place: int) -> Iterator[int]:
    """Yield the calls that a call was made in."""
    trace = calls[place].trace
    while trace is not None and trace.within is not None:
        yield trace.within
        trace = calls[trace.within].trace


def own_error(call: LayerCall) -> float:
    """Return the error that a call makes of inputs that are already rounded; 0 if unmeasured."""
    return max((_error(one.own or one.isolated) for one in call.outputs), default=0.0)


def _rounding_error(call: LayerCall) -> float:
    return max((_error(one.rounding) for one in call.outputs), default=0.0)


def _error(found: Metrics | None) -> float:
    if found is None:
        return 0.0
    if found.overflow:
        return float("inf")
    return found.relative or 0.0


def _is_spoiled(found: Metrics | None) -> bool:
    return found is not None and bool(found.overflow)


def rounding_producers(calls: Sequence[LayerCall], place: int) -> list[int]:
    """
    Return the calls that rounded what a call gets: its producers, or what these pass on unchanged.
    """
    found: set[int] = set()
    seen: set[int] = set()
    pending = list(_producers(calls[place]))
    while pending:
        producer = pending.pop()
        if producer in seen:  # of a residual stream, each block doubles the paths
            continue
        seen.add(producer)
        call = calls[producer]
        if own_error(call) == 0 and _producers(call):
            pending += _producers(call)
        else:
            found.add(producer)
    return sorted(found)


def _producers(call: LayerCall) -> tuple[int, ...]:
    return call.trace.producers if call.trace is not None else ()
