"""
Compares the predictions of two files of a model for the same inputs. The tolerance is relative to
the largest value of each output.

A child process loads the first file, draws the inputs at random, and saves them. The same process
loads the second file and predicts for the saved inputs. A converted result is loaded in a process
of the other library instead. If only policy formats changed, predictions must be identical.

If a dtype changed, the tolerance is ``8 u sqrt(n)``. u is the largest unit roundoff of the dtypes
in which the changed layers compute and store, before or after. n is the number of layers with
weights: their rounding errors add up like random errors. If another library loads the result, every
layer counts as changed. If any of them computes or stores in 16 bits, the tolerance is at least
``32 u``, which is 16 eps, because libraries differ in the steps that they compute in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003  # for the codec
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from policytool.formats import WITHOUT_WEIGHTS, keras_hub
from policytool.model.model import Source
from policytool.releases import dtypes
from policytool.support.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.lib.npyio import NpzFile
    from numpy.typing import NDArray

    from policytool.model.model import Layer, Model
    from policytool.numerics.hand_over import PrivateCopy
    from policytool.numerics.workers import MemoryLimit
    from policytool.support.text.jsontext import Json


_ROWS: Final = 3
"""Rows of a batch if one library loads both files; converted models use the usual number."""


_BLOCK: Final = 2**20
"""Number of values that are compared together."""


class PredictedOutput(Struct, frozen=True, kw_only=True):
    """One output of the model, or of a signature, before and after."""

    name: str
    dtype_before: str
    dtype_after: str
    values: int
    equal: bool
    """Whether all values and the dtype are identical."""

    max_abs: float | None
    """The largest absolute difference of two finite values; None if the values are not floats."""

    relative: float | None
    """``max_abs`` divided by the largest absolute value of the original."""

    differing: int
    not_finite: tuple[int, int]
    """The number of values that are NaN or infinite, before and after."""


class PredictedCall(Struct, frozen=True, kw_only=True):
    """The model's own call, or a signature."""

    signature: str | None
    outputs: tuple[PredictedOutput, ...]


class PredictionComparison(Struct, frozen=True, kw_only=True):
    """The result of ``--verify``."""

    tolerance: float
    """Relative to the largest value of each output; 0 if outputs must be identical."""

    samples: int
    versions: Mapping[str, str] = field(default_factory=dict)
    """The releases of the library that loaded the original, or both files."""

    calls: tuple[PredictedCall, ...] = ()
    versions_after: Mapping[str, str] | None = None
    """The releases of the library that loaded the result; None if it is the same library."""

    keeps_dtypes: bool = False
    """
    Whether float outputs must keep their dtype and their number of NaN and infinite values.
    """

    @property
    def retyped(self) -> tuple[str, ...]:
        """The outputs that have to keep their dtypes and do not, as sentences' parts."""
        return tuple(
            f"{_place(call, output)} is {output.dtype_after} instead of {output.dtype_before}"
            for call in self.calls
            for output in call.outputs
            if self.keeps_dtypes
            and output.relative is not None
            and output.dtype_after != output.dtype_before
        )

    @property
    def missed(self) -> tuple[str, ...]:
        """What is farther apart than it may be, as sentences' parts."""
        missed = (
            _excess(_place(call, output), output, self.tolerance, exact=self.keeps_dtypes)
            for call in self.calls
            for output in call.outputs
        )
        return (*self.retyped, *(text for text in missed if text is not None))


class PredictionSide(Struct, frozen=True, kw_only=True):
    """One of the two files."""

    which: str
    """The name in messages: ``the original``, ``the source`` or ``the result``."""

    copy: PrivateCopy
    family: str
    """
    :data:`~policytool.releases.releases.KERAS2` or :data:`~policytool.releases.releases.KERAS3`:
    the library that loads the file.
    """

    model: Model
    is_converted: bool = False
    """
    Whether the two sides need different libraries. Each library then loads its file without
    workarounds, and no signature is called.
    """

    config: Json = None
    """The config of an architecture with separate weights."""

    weights: PrivateCopy | None = None
    """The weights of an architecture; None if the file contains its weights."""

    def job(
        self,
        folder: Path,
        like: Sequence[Mapping[str, Any]] | None = None,
        *,
        rows: int | None = None,
        memory: MemoryLimit | None = None,
    ) -> dict[str, Any]:
        """
        Return the job that predicts with the file.

        :param folder: the directory for the arrays of inputs and outputs
        :param like: the ``calls`` of the other side's answer, to predict for the same inputs
        :param rows: the number of rows in a batch; None for the usual number
        :param memory: the memory limit; None for no limit
        :raises ModelFileError: if the file contains no weights.
        """
        if self.model.format in WITHOUT_WEIGHTS:
            raise ModelFileError(
                self.model.path,
                "no-weights",
                f"contains no weights ({self.model.format}), so --verify cannot compare "
                "predictions",
            )
        is_preset = self.model.format == keras_hub.FORMAT.document_format
        return {
            "job": "predict",
            "family": self.family,
            "which": self.which,
            "model": self.copy,
            "config": self.copy.document.config if is_preset else self.config,
            "weights": self.weights,
            "functions": str(self.copy.functions) if self.copy.functions is not None else None,
            "preset": keras_hub.weights_path(self.copy.path).name if is_preset else None,
            "policy": self._global_policy,
            "as_is": self.is_converted,
            "signatures": bool(self.model.signatures) and not self.is_converted,
            "batch_size": rows or (None if self.is_converted else _ROWS),
            "memory": {"bytes": memory.bytes, "most": memory.most} if memory is not None else None,
            "inputs": str(folder),
            "outputs": str(self.outputs(folder)),
            "like": like,
        }

    @property
    def _global_policy(self) -> str | None:
        """
        The global policy while loading: the policy of the model, which layers get that the code of
        a class creates, or the policy of layers in files of Keras 2.2, which do not store it.
        """
        defaults = (layer.policy for layer in self.model.layers if layer.source is Source.DEFAULT)
        return self.model.layers[0].policy or next(defaults, None)

    def outputs(self, folder: Path) -> Path:
        """Return the path of the file with the predictions."""
        return folder / f"{self.which.rpartition(' ')[2]}.npz"


def compare_predictions(
    sides: tuple[PredictionSide, PredictionSide],
    answers: tuple[Mapping[str, Any], Mapping[str, Any]],
    folder: Path,
    tolerance: float,
    *,
    keeps_dtypes: bool = False,
) -> PredictionComparison:
    """
    Return the comparison of the predictions of two sides.

    :raises ModelFileError: if the number or the shapes of the outputs differ.
    """
    import numpy as np  # the import takes 70 ms, and only this comparison needs it

    before, after = answers
    with (
        np.load(sides[0].outputs(folder), allow_pickle=False) as first,
        np.load(sides[1].outputs(folder), allow_pickle=False) as second,
    ):
        pair = _Pair(sides=sides, stored=(first, second))
        calls = tuple(
            PredictedCall(signature=call["signature"], outputs=tuple(pair.outputs(call, other)))
            for call in before["calls"]
            for other in after["calls"]
            if other["signature"] == call["signature"]
        )
    return PredictionComparison(
        tolerance=tolerance,
        samples=before["samples"],
        versions=before["versions"],
        versions_after=after["versions"] if sides[1].is_converted else None,
        keeps_dtypes=keeps_dtypes,
        calls=calls,
    )


class _Pair(Struct, frozen=True, kw_only=True):
    """The predictions of both sides."""

    sides: tuple[PredictionSide, PredictionSide]
    stored: tuple[NpzFile, NpzFile]

    def outputs(
        self, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> Iterator[PredictedOutput]:
        """Yield the comparison of each output of one call."""
        for place, other in self._matching_outputs(before["outputs"], after["outputs"]):
            output_before, output_after = before["outputs"][place], after["outputs"][other]
            first, second = self._arrays(0, before, place), self._arrays(1, after, other)
            if [array.shape for array in first] != [array.shape for array in second]:
                raise self._outputs_error(
                    f"returns output {output_before['name']} with the shape {second[0].shape}, but "
                    f"{self.sides[0].which} returns {first[0].shape}"
                )
            yield _output(
                output_before["name"],
                (output_before["dtype"], output_after["dtype"]),
                first,
                second,
            )

    def _arrays(self, side: int, call: Mapping[str, Any], place: int) -> list[NDArray[Any]]:
        """Return the batches of one tensor of a call."""
        return [
            self.stored[side][f"{call['number']}.{place}.{batch}"]
            for batch in range(call["batches"])
        ]

    def _matching_outputs(
        self, before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]
    ) -> Iterator[tuple[int, int]]:
        """Yield pairs of output positions: by name if all names are equal, or else in order."""
        if len(before) != len(after):
            raise self._outputs_error(
                f"returns {len(after)} outputs, but {self.sides[0].which} returns {len(before)}"
            )
        names, others = ([output["name"] for output in outputs] for outputs in (before, after))
        by_name = set(names) == set(others) and len(set(names)) == len(names)
        yield from (
            (place, others.index(name) if by_name else place) for place, name in enumerate(names)
        )

    def _outputs_error(self, problem: str) -> ModelFileError:
        return ModelFileError(
            self.sides[1].model.path, "outputs", f"{problem}; nothing was written"
        )


def _output(
    name: str,
    dtypes: tuple[str, str],
    first: Sequence[NDArray[Any]],
    second: Sequence[NDArray[Any]],
) -> PredictedOutput:
    """
    Return the comparison of two outputs: the largest difference, absolute and relative to the
    largest value of the first output.
    """
    import numpy as np

    is_float = {array.dtype.kind for array in (*first, *second)} <= {"f"}
    distance = largest = 0.0
    differing, not_finite = 0, [0, 0]
    for block, other_block in _blocks(first, second):
        is_equal = block == other_block
        if is_float:
            is_equal |= np.isnan(block) & np.isnan(other_block)
            finite = np.isfinite(block) & np.isfinite(other_block)
            largest = max(largest, float(np.abs(block[finite]).max(initial=0.0)))
            distance = max(
                distance, float(np.abs(block[finite] - other_block[finite]).max(initial=0.0))
            )
            not_finite[0] += int(np.count_nonzero(~np.isfinite(block)))
            not_finite[1] += int(np.count_nonzero(~np.isfinite(other_block)))
        differing += int(np.count_nonzero(~is_equal))
    return PredictedOutput(
        name=name,
        dtype_before=dtypes[0],
        dtype_after=dtypes[1],
        values=sum(array.size for array in first),
        equal=not differing and dtypes[0] == dtypes[1],
        max_abs=distance if is_float else None,
        relative=(distance / largest if largest else distance) if is_float else None,
        differing=differing,
        not_finite=(not_finite[0], not_finite[1]),
    )


def _blocks(
    first: Sequence[NDArray[Any]], second: Sequence[NDArray[Any]]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the values of two outputs in pairs of blocks, which need less memory."""
    for array, other_array in zip(first, second, strict=True):
        values, others = array.reshape(-1), other_array.reshape(-1)
        for start in range(0, values.size, _BLOCK):
            yield (
                _comparable(values[start : start + _BLOCK]),
                _comparable(others[start : start + _BLOCK]),
            )


def _comparable(values: NDArray[Any]) -> NDArray[Any]:
    """Return floats as float64, which is exact, and texts as bytes."""
    import numpy as np

    if values.dtype.kind == "U":
        return np.char.encode(values, "utf-8")
    return values.astype("float64") if values.dtype.kind == "f" else values


def _excess(place: str, output: PredictedOutput, bound: float, *, exact: bool) -> str | None:
    """Return a sentence part if an output differs by more than the tolerance; otherwise None."""
    before, after = output.not_finite
    if after > before or (exact and after != before):
        return f"{place} contains {after} NaN or infinite values ({before} before)"
    if not bound or output.relative is None:
        return (
            None
            if output.equal or (bound and not output.differing)
            else f"{place} differs in {output.differing} of {output.values} values"
        )
    return (
        (
            f"{place} differs by up to {output.relative:.2g} of its largest value; the tolerance "
            f"is {bound:.2g}"
        )
        if output.relative > bound
        else None
    )


def _place(call: PredictedCall, output: PredictedOutput) -> str:
    return f"{call.signature}: {output.name}" if call.signature is not None else output.name


UNIT_ROUNDOFF: Final = {
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}
"""Half the distance from 1 to the next number."""

_SLACK: Final = 8.0
"""Factor of the tolerance: several times the measured need of the fixtures of all releases."""

_EPS: Final = 32.0


def rewritten_tolerance(before: Model, after: Model, *, reexported: bool = False) -> float:
    """
    Return the tolerance for outputs if the same library loads the original and the result.

    The original of a re-exported graph may have computed in any dtype, so every layer counts as
    changed.
    """
    old = {layer.path: _float_dtypes(layer) for layer in before.layers}
    changed = [
        old.get(layer.path, frozenset()) | _float_dtypes(layer)
        for layer in after.layers
        if reexported or old.get(layer.path, _float_dtypes(layer)) != _float_dtypes(layer)
    ]
    return _of_depth(after, _coarsest(dtype for layer_dtypes in changed for dtype in layer_dtypes))


def converted_tolerance(before: Model, after: Model, *, numerics: bool) -> float:
    """
    Return the tolerance for outputs if the target library loads the result.

    :param numerics: whether the conversion also changes the dtypes that layers compute in
    """
    coarsest = _coarsest(
        dtype
        for model in (before, after)
        for layer in model.layers
        for dtype in _float_dtypes(layer)
    )
    rounding_tolerance = _of_depth(after, coarsest)
    if coarsest > UNIT_ROUNDOFF["float32"]:
        rounding_tolerance = max(_EPS * coarsest, rounding_tolerance)
    return (
        max(rounding_tolerance, rewritten_tolerance(before, after))
        if numerics
        else rounding_tolerance
    )


def _of_depth(model: Model, roundoff: float) -> float:
    """
    Return a tolerance for a model: a multiple of the roundoff, which grows with the square root of
    the number of layers with variables.
    """
    weighted = sum(1 for layer in model.layers if layer.variables)
    return _SLACK * roundoff * math.sqrt(max(weighted, 1))


def _coarsest(dtype_names: Iterable[str]) -> float:
    """Return the largest unit roundoff of these dtypes; that of float32 if none is known."""
    return max(
        (UNIT_ROUNDOFF[dtype] for dtype in dtype_names if dtype in UNIT_ROUNDOFF),
        default=UNIT_ROUNDOFF["float32"],
    )


def _float_dtypes(layer: Layer) -> frozenset[str]:
    return frozenset(
        dtype
        for dtype in (layer.compute_dtype, layer.variable_dtype)
        if dtypes.is_float(dtype) and dtype is not None
    )
