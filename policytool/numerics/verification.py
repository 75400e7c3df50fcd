"""
What two files of one model predict on the same inputs, compared in a child process; and how far
apart they may be.

Where nothing but spelling changed, the predictions are the same bit for bit. Where a dtype changed,
each output may be off by ``8 * u * sqrt(n)`` of its largest value: u is the largest unit roundoff
of what the changed layers compute and store in, before or after, and n is how many layers have
weights, whose roundings add up as random ones do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import dtypes
from policytool.support.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policytool.model.model import Layer, Model

UNIT_ROUNDOFF: Final = {
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}
"""Half the distance from 1 to the next number."""

_SLACK: Final = 8.0
"""Several times what the fixtures of every release and policy were measured to need."""

_WITHOUT_WEIGHTS: Final = frozenset({"json", "yaml", "keras-metadata", "tfjs"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """One output of the model, or of a signature, before and after."""

    name: str
    dtype_before: str
    dtype_after: str
    values: int
    equal: bool
    """Bit for bit, the dtype included."""

    max_abs: float | None
    """The largest difference of two finite values; None where the values are no floats."""

    relative: float | None
    """The same, over the largest value of the original."""

    differing: int
    not_finite: tuple[int, int]
    """How many values are NaN or infinite, before and after."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """The model's own call, or a signature."""

    signature: str | None
    outputs: tuple[Output, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What a verification found."""

    tolerance: float
    """Relative to each output's largest value; 0 where it has to be the same bit for bit."""

    samples: int
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of what loaded the original, or both files."""

    calls: tuple[Call, ...] = ()
    versions_after: Mapping[str, str] | None = None
    """Of what loaded the result, where that was a process of its own."""

    keeps_dtypes: bool = False
    """
    Whether a float output that has another dtype than before is a miss, whatever its values are.
    """

    @property
    def missed(self) -> tuple[str, ...]:
        """What is farther apart than it may be, as sentences' parts."""
        every = [(call, output) for call in self.calls for output in call.outputs]
        retyped = [
            f"{_place(call, output)} is {output.dtype_after}, and was {output.dtype_before}"
            for call, output in every
            if self._is_retyped(output)
        ]
        return (
            *retyped,
            *(
                text
                for call, output in every
                if (text := _missed(call, output, self.tolerance)) is not None
            ),
        )

    def _is_retyped(self, output: Output) -> bool:
        return (
            self.keeps_dtypes
            and output.relative is not None
            and output.dtype_after != output.dtype_before
        )


def job(before: Path, after: Path, models: tuple[Model, Model], *, family: str) -> dict[str, Any]:
    """
    Return the job that compares two files, of which ``models`` are the reports.

    Each is loaded under the policy that its own model has: that is what the layers get that a
    class's own code makes.

    :raises ModelFileError: for a file that holds no weights to predict with.
    """
    model, other = models
    check_weights(model)
    return {
        "job": "compare",
        "family": family,
        "before": str(before.resolve()),
        "after": str(after),
        "policy_before": model.layers[0].policy,
        "policy_after": other.layers[0].policy,
        "signatures": bool(model.signatures),
    }


def check_weights(model: Model) -> None:
    """
    Check that a file has something to predict with.

    :raises ModelFileError: where it holds no weights.
    """
    if model.format in _WITHOUT_WEIGHTS:
        raise ModelFileError(
            model.path,
            "no-weights",
            f"holds no weights ({model.format}): there is nothing that --verify could predict with",
        )


def comparison(
    result: Mapping[str, Any], before: Model, after: Model, *, exact: bool, retraced: bool = False
) -> Comparison:
    """
    Return the child's answer as a value, with the tolerance that applies; ``exact`` where nothing
    is computed differently.
    """
    calls = tuple(
        Call(
            signature=call["signature"],
            outputs=tuple(_output(output) for output in call["outputs"]),
        )
        for call in result["calls"]
    )
    return Comparison(
        tolerance=0.0 if exact else tolerance(before, after, retraced=retraced),
        samples=result["samples"],
        versions=result["versions"],
        calls=calls,
    )


def tolerance(before: Model, after: Model, *, retraced: bool = False) -> float:
    """
    Return how far an output may be from the original's, relative to its largest value.

    A graph that is traced anew may have computed in anything before, so every layer counts as
    changed.
    """
    old = {layer.path: _dtypes(layer) for layer in before.layers}
    changed = [
        old.get(layer.path, frozenset()) | _dtypes(layer)
        for layer in after.layers
        if retraced or old.get(layer.path, _dtypes(layer)) != _dtypes(layer)
    ]
    roundoff = max(
        (UNIT_ROUNDOFF.get(dtype, 0.0) for found in changed for dtype in found),
        default=UNIT_ROUNDOFF["float32"],
    )
    weighted = sum(1 for layer in after.layers if layer.variables)
    return _SLACK * roundoff * math.sqrt(max(weighted, 1))


def _dtypes(layer: Layer) -> frozenset[str]:
    return frozenset(
        dtype
        for dtype in (layer.compute_dtype, layer.variable_dtype)
        if dtypes.is_float(dtype) and dtype is not None
    )


def _output(found: Mapping[str, Any]) -> Output:
    return Output(
        name=found["name"],
        dtype_before=found["dtype_before"],
        dtype_after=found["dtype_after"],
        values=found["values"],
        equal=found["equal"],
        max_abs=found["max_abs"],
        relative=found["relative"],
        differing=found["differing"],
        not_finite=(found["not_finite"][0], found["not_finite"][1]),
    )


def _missed(call: Call, output: Output, bound: float) -> str | None:
    where = _place(call, output)
    if output.not_finite[1] > output.not_finite[0]:
        return (
            f"{where} has {output.not_finite[1]} values that are not finite, "
            f"{output.not_finite[0]} before"
        )
    if not bound or output.relative is None:
        return (
            None
            if output.equal or (bound and not output.differing)
            else f"{where} differs in {output.differing} of {output.values} values"
        )
    return (
        f"{where} is off by {output.relative:.2g} of its largest value, and {bound:.2g} is allowed"
        if output.relative > bound
        else None
    )


def _place(call: Call, output: Output) -> str:
    return f"{call.signature}: {output.name}" if call.signature is not None else output.name
