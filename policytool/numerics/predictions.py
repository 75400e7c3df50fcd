"""
What a model and its conversion predict, each loaded in a process of its own by the library that
reads it; and how far apart they may be.

The first process draws the inputs and saves them, the second takes the same. Each output may be off
by ``8 u sqrt(n)`` of its largest value: u is the largest unit roundoff among the layers, and n is
how many have weights, whose roundings add up as random ones do. Where any layer computes or stores
in 16 bits it is at least ``32 u``, 16 eps: libraries choose for themselves what they compute in
float32 inside. Where the conversion also changes what layers compute in,
:func:`policytool.numerics.verification.tolerance` counts if it is larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policytool.numerics import verification
from policytool.numerics.verification import UNIT_ROUNDOFF, Call, Comparison, Output
from policytool.support.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from policytool.model.model import Model

    Arrays = Sequence[NDArray[Any]]

_ULPS: Final = 8.0
_EPS: Final = 32.0
_INPUTS: Final = "inputs.npz"


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two files."""

    which: str
    """``the source`` or ``the result``, as sentences name it."""

    path: Path
    family: str
    """
    ``keras2`` or ``keras3``, as :mod:`policytool.model.loaded_model` names them, whose library
    loads it.
    """

    model: Model

    def job(self, folder: Path, like: Sequence[Mapping[str, str]] | None = None) -> dict[str, Any]:
        """
        Return the job that predicts with the file, the arrays going through ``folder``.

        :param like: the answer of the other side as to its inputs, where it has drawn them.
        :raises ModelFileError: for a file that holds no weights to predict with.
        """
        verification.check_weights(self.model)
        return {
            "job": "predict",
            "family": self.family,
            "which": self.which,
            "model": str(
                self.path.absolute()
            ),  # not resolved: a draft without a name has a link for its path
            "policy": self.model.layers[0].policy,
            "inputs": str(folder / _INPUTS),
            "outputs": str(self.outputs(folder)),
            "like": None if like is None else [dict(one) for one in like],
        }

    def outputs(self, folder: Path) -> Path:
        """Return where its predictions are."""
        return folder / f"{self.which.rpartition(' ')[2]}.npz"


def comparison(
    sides: tuple[Side, Side],
    answers: tuple[Mapping[str, Any], Mapping[str, Any]],
    folder: Path,
    *,
    numerics: bool,
) -> Comparison:
    """
    Return how far the predictions of two sides are apart; ``numerics`` where the conversion was
    asked to change what layers compute in.

    :raises ModelFileError: where the result gives other outputs: their number, or their shapes.
    """
    import numpy as np  # takes 70 ms, which only verifying is worth

    source, result = sides
    before, after = answers
    outputs = []
    with (
        np.load(source.outputs(folder), allow_pickle=False) as first,
        np.load(result.outputs(folder), allow_pickle=False) as second,
    ):
        for place, other in _pairs(before["outputs"], after["outputs"], result.model.path):
            names = (
                before["outputs"][place]["name"],
                before["outputs"][place]["dtype"],
                after["outputs"][other]["dtype"],
            )
            arrays = [
                [held[f"{one}.{batch}"] for batch in range(answer["batches"])]
                for held, one, answer in ((first, place, before), (second, other, after))
            ]
            if [array.shape for array in arrays[0]] != [array.shape for array in arrays[1]]:
                text = (
                    f"gives output {names[0]} the shape {arrays[1][0].shape}, and the source "
                    f"{arrays[0][0].shape}; nothing was written"
                )
                raise ModelFileError(result.model.path, "outputs", text)
            outputs.append(_output(names, arrays[0], arrays[1]))
    return Comparison(
        tolerance=tolerance(source.model, result.model, numerics=numerics),
        samples=before["samples"],
        versions=before["versions"],
        versions_after=after["versions"],
        keeps_dtypes=not numerics,
        calls=(Call(signature=None, outputs=tuple(outputs)),),
    )


def tolerance(before: Model, after: Model, *, numerics: bool) -> float:
    """Return how far an output may be from the source's, relative to its largest value."""
    found = {
        dtype
        for model in (before, after)
        for layer in model.layers
        for dtype in (layer.compute_dtype, layer.variable_dtype)
    }
    roundoffs = {dtype: UNIT_ROUNDOFF[dtype] for dtype in found if dtype in UNIT_ROUNDOFF} or {
        "float32": UNIT_ROUNDOFF["float32"]
    }
    coarsest = max(roundoffs.values())
    weighted = sum(1 for layer in after.layers if layer.variables)
    deep = _ULPS * coarsest * math.sqrt(max(weighted, 1))
    own = max(_EPS * coarsest, deep) if coarsest > UNIT_ROUNDOFF["float32"] else deep
    return max(own, verification.tolerance(before, after)) if numerics else own


def _pairs(
    before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]], path: str
) -> Iterator[tuple[int, int]]:
    """Yield which output is which: by name where all names are the same, else in their order."""
    if len(before) != len(after):
        raise ModelFileError(
            path,
            "outputs",
            f"gives {len(after)} outputs, and the source {len(before)}; nothing was written",
        )
    names, others = ([one["name"] for one in outputs] for outputs in (before, after))
    by_name = set(names) == set(others) and len(set(names)) == len(names)
    yield from (
        (place, others.index(name) if by_name else place) for place, name in enumerate(names)
    )


def _output(told: tuple[str, str, str], before: Arrays, after: Arrays) -> Output:
    """
    Return how far two outputs are apart, ``told`` their name and dtypes: the largest difference,
    and that relative to the source's largest value.
    """
    import numpy as np

    first, second = (_flat(arrays) for arrays in (before, after))
    name, dtype_before, dtype_after = told
    floating = first.dtype.kind == "f" and second.dtype.kind == "f"
    same = (first == second) | (np.isnan(first) & np.isnan(second)) if floating else first == second
    finite = (
        np.isfinite(first) & np.isfinite(second) if floating else np.zeros(first.shape, dtype=bool)
    )
    largest = float(np.abs(first[finite]).max(initial=0.0)) if floating else 0.0
    distance = float(np.abs(first[finite] - second[finite]).max(initial=0.0)) if floating else 0.0
    infinite = (
        (int(np.count_nonzero(~np.isfinite(first))), int(np.count_nonzero(~np.isfinite(second))))
        if floating
        else (0, 0)
    )
    return Output(
        name=name,
        dtype_before=dtype_before,
        dtype_after=dtype_after,
        values=int(first.size),
        equal=bool(same.all()) and dtype_before == dtype_after,
        max_abs=distance if floating else None,
        relative=(distance / largest if largest else distance) if floating else None,
        differing=int(np.count_nonzero(~same)),
        not_finite=infinite,
    )


def _flat(arrays: Arrays) -> NDArray[Any]:
    """
    Return all values of an output in a row: floats as float64, which holds them all, and texts as
    bytes.
    """
    import numpy as np

    values = np.concatenate([array.reshape(-1) for array in arrays])
    if values.dtype.kind == "U":
        return np.char.encode(values, "utf-8")
    return values.astype("float64") if values.dtype.kind == "f" else values
