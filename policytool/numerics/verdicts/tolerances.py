"""
The tolerances for the errors of a candidate, and the verdict on a run. If the user sets no
tolerance, it is the error that rounding in the dtypes explains.

A layer rounds its inputs, its weights and its result, each by up to the unit roundoff u of its
dtype. A sum rounds at each term. Accurate kernels add in blocks, in float32 or pairwise, so that
their error grows with the logarithm of the number of terms (N. Higham, Accuracy and Stability of
Numerical Algorithms, 4.2). Therefore, the expected error of a layer is
``u (1 + log2(1 + depth) / 4)``, in the L2 norm and relative to the norm of the reference.

Matrix products and convolutions of TensorFlow 2.21 on a CPU had errors of 0.4 u to 5.5 u, for any
depth up to 16,384. A sum in 16 bits, such as that of AveragePooling2D, had an error of 4.5 u for
256 terms and 1,700 u for 4,096 terms: the tolerance must detect such errors.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.numerics.check_results.verdicts import (
    CheckVerdict,
    Judgement,
    JudgementSubject,
    NotComparable,
    Ruling,
)
from policytool.numerics.predictions import UNIT_ROUNDOFF
from policytool.support.errors import UsageError
from policytool.support.patterns.matching import Matcher, StepsExceededError, check_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall, Metrics


_SLACK: Final = 4.0
"""
The tolerance of a layer or an output, as a multiple of its expected error.

Of 12,226 layer calls in 1,093 models of seven releases, under mixed_float16 and mixed_bfloat16,
half have errors within 0.5 times the expected error, and 99.9 % within 1.2 times. The outputs of
deep image classifiers with random weights have errors of up to 4 times the expected error.
"""

_GROWTH: Final = 8.0
"""
The factor by which layers may increase an error of narrow dtypes that a recorded run shows.
"""

_FLOAT8: Final = 2.0**-4
"""
The unit roundoff of the inputs and weights of a float8 product. Sums are in the compute dtype of
the layer, so that the depth does not count.
"""

_QUANTISED: Final = {"int8": 2.0**-8, "int4": 2.0**-8}
"""
The unit roundoff of the inputs of a quantized layer in Keras 3: half the distance between two
quantized values, relative to the largest. The rounding of stored weights depends on the weights
(:attr:`LayerCall.weight_rounding`).
"""


class ToleranceOption(Struct, frozen=True, kw_only=True):
    """The value of one ``--tolerance``: a number for all names, or for those of a pattern."""

    pattern: str | None
    value: float


def parse_tolerance(text: str) -> ToleranceOption:
    """
    Return the tolerance of ``NUMBER`` or ``PATTERN=NUMBER``.

    :raises UsageError: if the text has another form, or the number is negative or not finite.
    """
    pattern, equals, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not (value >= 0 and math.isfinite(value)) or (equals and not pattern):
        raise UsageError(
            f"--tolerance {text!r} must be a non-negative number, or PATTERN=NUMBER, where "
            "PATTERN is an output name, a layer path or a regular expression"
        )
    return ToleranceOption(pattern=pattern if equals else None, value=value)


class Tolerances(Struct, frozen=True, kw_only=True):
    """Every ``--tolerance`` of a call."""

    given: tuple[ToleranceOption, ...] = ()
    explained: float | None = None
    """The error of outputs that rounding explains; None if the layers of the run show it."""

    def of(self, name: str) -> float | None:
        """
        Return the tolerance for the name of an output or the path of a layer: the tolerance for the
        exact name, or else for a matching pattern, or else for all names. None if there is none.

        :raises UsageError: if several patterns match the name.
        """
        exact = [tolerance.value for tolerance in self.given if tolerance.pattern == name]
        if exact:
            return exact[-1]
        matching = [
            tolerance
            for tolerance in self.given
            if tolerance.pattern is not None and _matches(tolerance.pattern, (name,))
        ]
        if len(matching) > 1:
            raise UsageError(
                f"--tolerance {matching[0].pattern} and {matching[1].pattern} both match "
                f"{name}; make one of them more specific"
            )
        default_values = [tolerance.value for tolerance in self.given if tolerance.pattern is None]
        return next(
            (tolerance.value for tolerance in matching),
            default_values[-1] if default_values else None,
        )

    def check(self, names: Iterable[str]) -> None:
        """
        Check that every pattern is valid and matches a name.

        :raises UsageError: if a pattern is not a regular expression, or matches nothing.
        """
        listed = list(names)
        for tolerance in self.given:
            if tolerance.pattern is None or tolerance.pattern in listed:
                continue
            check_pattern(tolerance.pattern, f"--tolerance {tolerance.pattern!r} is not a name and")
            if not _matches(tolerance.pattern, listed):
                raise UsageError(
                    f"--tolerance {tolerance.pattern!r} matches no output and no layer; run "
                    "`policytool inspect` to list the layer paths"
                )


def _matches(pattern: str, names: Iterable[str]) -> bool:
    matcher = Matcher()
    try:
        return any(matcher.fullmatch(pattern, name) for name in names)
    except StepsExceededError as error:
        raise UsageError(f"--tolerance {pattern!r} {error}") from error


def layer_tolerance(call: LayerCall) -> float:
    """Return the tolerance for the relative error of a call: four times the expected error."""
    return _SLACK * _expected_error(call)


def outputs_tolerance(calls: Sequence[LayerCall]) -> float:
    """
    Return the tolerance for the relative error of a model's outputs.

    It is four times the root of the sum of the squared errors that are expected of the layers,
    because these errors add up like random errors.
    """
    return (accumulated_tolerances(calls) or [0.0])[-1]


def accumulated_tolerances(calls: Sequence[LayerCall]) -> list[float]:
    """Return, for each call, the tolerance for its error if all calls up to it add to the error."""
    squares = accumulate(_expected_error(call) ** 2 if not call.children else 0.0 for call in calls)
    return [_SLACK * math.sqrt(total) for total in squares]


def grown_tolerances(calls: Sequence[LayerCall]) -> list[float]:
    """
    Return, for each call, the tolerance for its error if errors of its inputs can grow.

    A layer can increase the relative error of its inputs: batch normalization subtracts the mean,
    but not the error. In deep networks, this is more than the sum of the errors of all layers. If a
    call gets values with an error, or calls within it return such values, its tolerance is at least
    four times this error. More than the root of the unit roundoff, which is half of the digits, is
    only explained by the sum of the errors.
    """
    return _grown(calls, accumulated_tolerances(calls))


def recorded_tolerances(calls: Sequence[LayerCall]) -> list[float]:
    """
    Return, for each call, the tolerance for its error against a recorded run.

    As in :func:`grown_tolerances`, errors of its inputs can grow. But rounding to a narrow dtype in
    earlier calls explains an error only if they show one: the same kernels round equal values to
    equal values. Therefore, they count with eight times their error, and at least as if they
    computed in float32, but never with more than what is expected of them. The dtypes of inputs do
    not count, because the calls that computed these inputs show how they were rounded.
    """
    before = [0.0, *accumulate(_shown_squares(calls))]
    tolerances = [
        _SLACK * math.sqrt(squares + _expected_error(call, _own_dtypes(call)) ** 2)
        for squares, call in zip(before, calls, strict=False)
    ]
    return _grown(calls, tolerances)


def recorded_outputs_tolerance(calls: Sequence[LayerCall]) -> float:
    """Return the tolerance for outputs against a recorded run in which a layer departs."""
    return _SLACK * math.sqrt(sum(_shown_squares(calls)))


def _shown_squares(calls: Sequence[LayerCall]) -> list[float]:
    """Return the square of the error that each call adds to those of later calls."""
    return [
        min(_expected_error(call, _own_dtypes(call)), _float32_error(call) + _GROWTH * error) ** 2
        if not call.children
        else 0.0
        for call, error in zip(calls, _accumulated_errors(calls), strict=True)
    ]


def float32_tolerance(calls: Sequence[LayerCall]) -> float:
    """Return the tolerance for outputs if the calls computed in float32."""
    return _SLACK * math.sqrt(sum(_float32_error(call) ** 2 for call in calls if not call.children))


class RoundingOperations(Struct, frozen=True, kw_only=True):
    """Operations of a graph that round floats in the same way."""

    dtype: str
    depth: int
    """The number of terms that each adds up; 0 without a sum."""

    count: int


def operations_tolerance(groups: Iterable[RoundingOperations]) -> float:
    """
    Return the tolerance for the outputs of a graph. Its sums count like layers; other operations of
    the same dtype count together like one layer.
    """
    return _SLACK * math.sqrt(
        sum(
            (group.count if group.depth else 1)
            * _rounding_error(UNIT_ROUNDOFF.get(group.dtype, 0.0), group.depth) ** 2
            for group in groups
        )
    )


def _grown(calls: Sequence[LayerCall], tolerances: Sequence[float]) -> list[float]:
    """Return the tolerances, or more for calls whose inputs have errors."""
    sources = [set(call.trace.producers) if call.trace is not None else set() for call in calls]
    for number, call in enumerate(calls):
        if call.trace is not None and call.trace.within is not None:
            sources[call.trace.within].add(number)
    errors = _accumulated_errors(calls)
    return [
        max(
            tolerance,
            min(
                _SLACK * max((errors[source] for source in found), default=0.0),
                math.sqrt(_roundoff(_dtypes(call))),
            ),
        )
        for call, found, tolerance in zip(calls, sources, tolerances, strict=True)
    ]


def _accumulated_errors(calls: Sequence[LayerCall]) -> list[float]:
    """Return the largest relative error of the outputs of each call."""
    return [
        max(
            (output.accumulated.relative or 0.0 for output in call.outputs if output.accumulated),
            default=0.0,
        )
        for call in calls
    ]


def _expected_error(call: LayerCall, dtypes: Sequence[str] | None = None) -> float:
    """
    Return the relative error that rounding explains: the largest unit roundoff, with a factor for
    the depth of reductions, combined with the rounding of the weights.

    :param dtypes: those in which the call rounds; None for all its dtypes
    """
    dtypes = _dtypes(call) if dtypes is None else dtypes
    return math.hypot(
        _rounding_error(_roundoff(dtypes), call.depth),
        _FLOAT8 if "float8" in dtypes else 0.0,
        call.weight_rounding,
    )


def _float32_error(call: LayerCall) -> float:
    """Return the relative error that rounding in float32 explains."""
    return _rounding_error(UNIT_ROUNDOFF["float32"], call.depth)


def _rounding_error(roundoff: float, depth: int) -> float:
    """Return the relative error that a unit roundoff explains for the depth of reductions."""
    return roundoff * (1 + math.log2(1 + depth) / 4)


def _roundoff(dtypes: Iterable[str]) -> float:
    """Return the largest unit roundoff of some dtypes."""
    known = {**UNIT_ROUNDOFF, **_QUANTISED}
    return max((known.get(dtype, 0.0) for dtype in dtypes), default=0.0)


def _dtypes(call: LayerCall) -> list[str]:
    """Return the dtypes of inputs, outputs and computations."""
    return [*call.inputs, *_own_dtypes(call)]


def _own_dtypes(call: LayerCall) -> list[str]:
    """Return the dtypes of outputs and computations, to which a call itself rounds."""
    return [
        *(output.dtype_candidate for output in call.outputs),
        *(output.dtype_reference for output in call.outputs),
        *call.within,
        *(dtype for dtype in (call.compute_candidate, call.compute_reference) if dtype is not None),
    ]


def judge_run(
    calls: Sequence[LayerCall],
    outputs: Sequence[CheckedOutput],
    given_tolerances: Tolerances,
) -> CheckVerdict:
    """
    Return the verdict on a run: outputs are judged by their accumulated error, layer calls by their
    isolated error.

    :raises UsageError: if two tolerances match the same name.
    """
    first = next(
        (
            call
            for call in calls
            if any(is_newly_nonfinite(output.accumulated) for output in call.outputs)
        ),
        None,
    )
    return CheckVerdict(
        judgements=(
            *_outputs(calls, outputs, given_tolerances),
            *_layers(calls, first, given_tolerances),
        ),
        first_not_finite=first.place if first is not None else None,
        nonfinite_reference=_nonfinite_reference(calls),
    )


def _outputs(
    calls: Sequence[LayerCall], outputs: Sequence[CheckedOutput], given_tolerances: Tolerances
) -> Iterator[Judgement]:
    """Yield the judgement of each output whose error was measured."""
    explained = given_tolerances.explained
    default = explained if explained is not None else outputs_tolerance(calls)
    for output in outputs:
        if output.accumulated is not None:
            name = output.name or ""
            judgement = _judgement(
                JudgementSubject.OUTPUT,
                name,
                [output.accumulated],
                given_tolerances.of(name),
                default,
            )
            yield _with_comparability(judgement, output)


def _with_comparability(judgement: Judgement, output: CheckedOutput) -> Judgement:
    """Return the judgement of an output, with the reason if the output is not comparable."""
    reason = _not_comparable(output)
    is_nothing = reason is NotComparable.NOT_FINITE
    return replace(
        judgement, ruling=Ruling.NOTHING if is_nothing else judgement.ruling, not_comparable=reason
    )


def _not_comparable(output: CheckedOutput) -> NotComparable | None:
    """Return why an output does not show the candidate's precision; None if it does."""
    if output.accumulated is not None and _has_no_finite_values(output.accumulated):
        return NotComparable.NOT_FINITE
    ends = output.changes.range if output.changes is not None else None
    if ends is None or ends[0] != ends[1]:
        return None
    return NotComparable.CONSTANT if ends[0] else NotComparable.ZERO


def _nonfinite_reference(calls: Sequence[LayerCall]) -> str | None:
    """Return the first call in which the reference computes NaN, or else infinity."""
    return next(
        (
            call.place
            for kind in ("nan", "infinite")
            for call in calls
            for output in call.outputs
            if (getattr(output.accumulated, kind, None) or (0, 0))[0]
        ),
        None,
    )


def _layers(
    calls: Sequence[LayerCall], first: LayerCall | None, given_tolerances: Tolerances
) -> Iterator[Judgement]:
    """
    Yield the judgement of each layer call that was run on the reference's inputs; for ``first``,
    its accumulated error is enough.
    """
    for call in calls:
        isolated_errors = [
            output.isolated for output in call.outputs if output.isolated is not None
        ]
        if call is first:
            isolated_errors = isolated_errors or [
                output.accumulated for output in call.outputs if output.accumulated is not None
            ]
        if isolated_errors:
            judgement = _judgement(
                JudgementSubject.LAYER,
                call.place,
                isolated_errors,
                given_tolerances.of(call.path),
                layer_tolerance(call),
            )
            differs = not (judgement.given or call.inputs) and any(
                metrics.differing for metrics in isolated_errors
            )
            yield replace(judgement, ruling=Ruling.DIFFERING) if differs else judgement


def _judgement(
    subject: JudgementSubject,
    path: str,
    all_metrics: Sequence[Metrics],
    given_tolerance: float | None,
    default: float,
) -> Judgement:
    """
    Return the judgement of the largest of some errors; a tolerance of the user replaces the
    default.
    """
    tolerance = default if given_tolerance is None else given_tolerance
    errors = [
        error
        for metrics in all_metrics
        if (error := _error(metrics, is_given=given_tolerance is not None)) is not None
    ]
    error = max(errors, default=None)
    is_missed = error is not None and error > tolerance
    ruling = Ruling.MISSED if is_missed else Ruling.PASSED
    return Judgement(
        about=subject,
        path=path,
        ruling=Ruling.NOT_FINITE if any(map(is_newly_nonfinite, all_metrics)) else ruling,
        error=error,
        tolerance=tolerance,
        given=given_tolerance is not None,
    )


def _error(metrics: Metrics, *, is_given: bool) -> float | None:
    """
    Return the error to compare with the tolerance. For integers, this is the share of differing
    values, but only if the user set a tolerance, because rounding explains no such share.
    """
    if metrics.differing is not None and metrics.elements and is_given:
        return metrics.differing / metrics.elements
    return metrics.relative


def _has_no_finite_values(metrics: Metrics) -> bool:
    """Return whether the reference has values, and none of them is finite."""
    reference = (metrics.nan or (0, 0))[0] + (metrics.infinite or (0, 0))[0]
    return bool(metrics.elements) and reference == metrics.elements


def is_newly_nonfinite(metrics: Metrics | None) -> bool:
    """Return whether an element is finite in the reference, but not in the candidate."""
    return metrics is not None and bool(metrics.overflow)
