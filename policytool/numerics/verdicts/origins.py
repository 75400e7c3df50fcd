"""
Finds the cause of the error of a failed check, and the layers of the file to keep in float32
because of it. :mod:`policytool.commands.check_trials` runs the trials with these layers.

The cause is the call that computes the error, and not a later call that passes it on. If the inputs
of a call contain NaN or infinity, the cause is an earlier call or the code in between. If a call
has an error only because its inputs were rounded, the cause is the calls that compute these inputs.
"""

from __future__ import annotations

import math
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from policytool.numerics.check_results.verdicts import (
    JudgementSubject,
    NotComparable,
    Origin,
    Ruling,
)
from policytool.numerics.verdicts import tolerances
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.support.grouping import EachOnce, group_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from policytool.model.loaded_model import LoadedModel
    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall, Metrics


class Blame(StrEnum):
    """How a call causes an error."""

    NONFINITE = "nonfinite"
    """The call computes NaN or infinity."""

    ERROR = "error"
    """The call has an error above its tolerance, with the inputs of the reference."""

    ROUNDING = "rounding"
    """The call rounds its outputs, which causes an error above the tolerance in a later call."""


class Charge(Struct, frozen=True, kw_only=True):
    """A call that causes an error."""

    call: int
    """The index of the call in the run."""

    blame: Blame
    in_code: bool = False
    """Whether the code of the layer is the cause, and not one of the layers that it calls."""

    seen_in: int | None = None
    """For :attr:`Blame.ROUNDING`, the index of the later call that has the error."""


def charges(run: CheckRun) -> tuple[Charge, ...]:
    """
    Return the calls that cause errors in a diagnosis, in the order of the model: the call that
    computes NaN or infinity if an output contains it, and all calls with an error above their
    tolerance. Return nothing if the run is not a diagnosis.
    """
    if not run.calls or any(call.trace is None for call in run.calls):
        return ()
    first = {charge.call: charge for charge in reversed([*_nonfinite(run), *_errors(run)])}
    return tuple(sorted(first.values(), key=lambda charge: _start_order(run.calls[charge.call])))


def origin(run: CheckRun, charge: Charge) -> Origin:
    """Return the origin of a charge, for reports."""
    call = run.calls[charge.call]
    return Origin(
        path=call.place,
        class_name=call.class_name,
        in_code=charge.in_code,
        seen_in=run.calls[charge.seen_in].place if charge.seen_in is not None else None,
        nonfinite=charge.blame is Blame.NONFINITE,
    )


def with_reference_nan_origin(run: CheckRun) -> CheckRun:
    """
    Return a run with the first NaN of the reference as its origin, if an output is not comparable
    because of it. Return other runs unchanged.
    """
    path = run.verdict.nonfinite_reference
    call = next((call for call in run.calls if call.place == path), None)
    if call is None or not any(
        judgement.not_comparable is NotComparable.NOT_FINITE for judgement in run.verdict.judgements
    ):
        return run
    return replace(
        run,
        origin=Origin(
            path=call.place,
            class_name=call.class_name,
            in_code=call.children > 0,
            seen_in=None,
            nonfinite=True,
            in_reference=True,
        ),
    )


def _start_order(call: LayerCall) -> int:
    return call.trace.begun if call.trace is not None else 0


def _nonfinite(run: CheckRun) -> Iterator[Charge]:
    """Yield the first call that computes NaN or infinity, if an output of the model contains it."""
    if not any(
        judgement.ruling is Ruling.NOT_FINITE and judgement.about is JudgementSubject.OUTPUT
        for judgement in run.verdict.judgements
    ):
        return
    for place, enters in _events(run.calls):
        call = run.calls[place]
        if enters and call.trace is not None and call.trace.gets_nonfinite:
            enclosing = call.trace.within
            if enclosing is not None:  # otherwise, an input of the model contains it
                yield Charge(call=enclosing, blame=Blame.NONFINITE, in_code=True)
            return
        if not enters and any(
            tolerances.is_newly_nonfinite(output.accumulated) for output in call.outputs
        ):
            yield Charge(call=place, blame=Blame.NONFINITE, in_code=call.children > 0)
            return


def _events(calls: Sequence[LayerCall]) -> Iterator[tuple[int, bool]]:
    """Yield the beginning (True) and the end (False) of each call, in the order of the model."""
    inner = group_pairs(
        (call.trace.within if call.trace is not None else None, place)
        for place, call in enumerate(calls)
    )
    pending = [(place, True) for place in reversed(_by_start(calls, inner.get(None, [])))]
    while pending:
        place, enters = pending.pop()
        yield place, enters
        if enters:
            pending.append((place, False))
            pending += [
                (inner_place, True)
                for inner_place in reversed(_by_start(calls, inner.get(place, [])))
            ]


def _by_start(calls: Sequence[LayerCall], places: Sequence[int]) -> list[int]:
    return sorted(places, key=lambda place: _start_order(calls[place]))


def _errors(run: CheckRun) -> Iterator[Charge]:
    """
    Yield the calls whose own error is above their tolerance, and the calls whose rounding causes
    such an error in a later call.
    """
    tolerance_by_place = {
        judgement.path: judgement.tolerance
        for judgement in run.verdict.judgements
        if judgement.about is JudgementSubject.LAYER
    }
    own_errors = {
        place
        for place, call in enumerate(run.calls)
        if not call.is_model and own_error(call) > _tolerance(call, tolerance_by_place)
    }
    holders = {outer for place in own_errors for outer in _enclosing_calls(run.calls, place)}
    for place, call in enumerate(run.calls):
        if place in holders or call.is_model:
            continue
        if place in own_errors:
            yield Charge(call=place, blame=Blame.ERROR, in_code=call.children > 0)
        elif _rounding_error(call) > _tolerance(call, tolerance_by_place):
            for producer in rounding_producers(run.calls, place):
                yield Charge(call=producer, blame=Blame.ROUNDING, seen_in=place)


def _tolerance(call: LayerCall, tolerance_by_place: dict[str, float]) -> float:
    """Return the tolerance of a call: that of the verdict, or else the default for its layer."""
    return (
        tolerance_by_place[call.place]
        if call.place in tolerance_by_place
        else tolerances.layer_tolerance(call)
    )


def _enclosing_calls(calls: Sequence[LayerCall], place: int) -> Iterator[int]:
    """Yield the calls that contain a call, innermost first."""
    trace = calls[place].trace
    while trace is not None and trace.within is not None:
        yield trace.within
        trace = calls[trace.within].trace


def own_error(call: LayerCall) -> float:
    """Return the error of a call without the errors of its inputs; 0 if it was not measured."""
    return max((_error(output.own or output.isolated) for output in call.outputs), default=0.0)


def _rounding_error(call: LayerCall) -> float:
    return max((_error(output.rounding) for output in call.outputs), default=0.0)


def _error(metrics: Metrics | None) -> float:
    """Return the relative error; infinity for an overflow, and 0 without a measurement."""
    if metrics is None:
        return 0.0
    return math.inf if metrics.overflow else metrics.relative or 0.0


def rounding_producers(calls: Sequence[LayerCall], place: int) -> list[int]:
    """
    Return the calls that rounded the inputs of a call: its producers, or their producers if these
    pass their inputs on unchanged.
    """
    rounding_calls: set[int] = set()
    walk = EachOnce(_producers(calls[place]))  # each residual block doubles the number of paths
    for producer in walk:
        call = calls[producer]
        if own_error(call) == 0 and _producers(call):
            walk.add(_producers(call))
        else:
            rounding_calls.add(producer)
    return sorted(rounding_calls)


def _producers(call: LayerCall) -> tuple[int, ...]:
    return call.trace.producers if call.trace is not None else ()


class Choices(Struct, frozen=True, kw_only=True):
    """The layers that can be kept in float32: they compute in 16 bits, by a policy in the file."""

    paths: tuple[str, ...]

    @classmethod
    def of(cls, loaded: LoadedModel) -> Choices:
        """Return the choices in a model."""
        return cls(
            paths=tuple(
                layer.path
                for index, layer in enumerate(loaded.layers)
                if layer.compute_dtype in HALVES
                and loaded.can_say(index)
                and not loaded.is_input(index)
                and not layer_facts(layer.class_name).is_op_layer
            )
        )

    def unit(self, path: str) -> frozenset[str]:
        """Return the choices among a layer and all layers below it."""
        below = f"{path}/"
        return frozenset(
            candidate
            for candidate in self.paths
            if candidate == path or candidate.startswith(below)
        )


def propose(run: CheckRun, choices: Choices) -> frozenset[str]:
    """
    Return the layers to keep in float32 according to the diagnosis. These are layers that cause
    errors, with all layers below them (for ops, the layers that compute their inputs), layers with
    errors from rounded inputs, and layers that cast outputs of these layers to infinity.
    """
    layers: set[str] = set()
    charged_calls = charges(run)
    receivers = _overflow_receivers(run, {charge.call for charge in charged_calls})
    for charge in charged_calls:
        layers |= deciding_layers(run, charge.call, choices)
    for place in (
        *receivers,
        *(charge.seen_in for charge in charged_calls if charge.seen_in is not None),
    ):
        layers |= deciding_layers(run, place, choices, producers=False)
    return frozenset(layers)


def _overflow_receivers(run: CheckRun, charged_calls: set[int]) -> Iterator[int]:
    """Yield the calls whose dtype cannot represent the inputs that blamed calls compute."""
    for place, call in enumerate(run.calls):
        if (
            not call.is_model
            and math.isinf(_rounding_error(call))
            and not charged_calls.isdisjoint(rounding_producers(run.calls, place))
        ):
            yield place


def deciding_layers(
    run: CheckRun, place: int, choices: Choices, *, producers: bool = True
) -> frozenset[str]:
    """
    Return the layers of the file that determine the dtype of a call: the outermost layer, other
    than a model, that contains the call; for an op, the layers that compute its inputs.

    :param producers: whether to follow the inputs of ops
    """
    layers: set[str] = set()
    walk = EachOnce([place])
    for number in walk:
        call, owner = run.calls[number], _owner(run.calls, number)
        chosen = choices.unit(owner.path)
        if chosen and not owner.is_model:
            layers |= chosen
        elif producers and call.trace is not None:
            walk.add(call.trace.producers)
    return frozenset(layers)


def _owner(calls: Sequence[LayerCall], place: int) -> LayerCall:
    """Return the outermost layer call, other than a model, that contains a call or is the call."""
    enclosing_layers = takewhile(
        lambda outer: not calls[outer].is_model, _enclosing_calls(calls, place)
    )
    return calls[[place, *enclosing_layers][-1]]


def call_loss(call: LayerCall) -> float:
    """Return the own error of a call, or the share of its values that underflow."""
    return max(
        own_error(call),
        *(output.accumulated.flushed or 0.0 for output in call.outputs if output.accumulated),
        0.0,
    )


def call_effect(call: LayerCall) -> float:
    """
    Return the effect of the error of a call on the outputs of the model, by their sensitivity to
    it; infinity for NaN or infinity, and 0 if it was not measured.
    """
    return _effect(call, lambda output: output.isolated)


def rounding_effect(call: LayerCall) -> float:
    """Return the part of the effect of a call that is due to the rounding of its inputs."""
    return _effect(call, lambda output: output.rounding)


def _effect(call: LayerCall, metrics: Callable[[CheckedOutput], Metrics | None]) -> float:
    """
    Return the largest effect of an error of a call on the outputs of the model.

    :param metrics: returns the error of an output of the call; None if it was not measured
    """
    return max(
        (
            error if math.isinf(error) else error * output.sensitivity
            for output in call.outputs
            if output.sensitivity is not None
            for error in [_error(metrics(output))]
        ),
        default=0.0,
    )
