"""
The changes to the values of an output, row by row: counts and sums over all batches, from which the
command derives whether predictions changed.

A sample is a row of a batch. Outputs of more than two dimensions have several rows of values for
each sample, such as one for each pixel, which are not independent; their shares are therefore
summed up by sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

CHANNELS = 8
"""The maximum number of channels that are compared separately."""

KEPT_BYTES = 64 << 20
"""The maximum number of bytes of vectors that are kept for the search of nearest neighbours."""

KEPT_ROWS = 4096
_LEAST_DIMENSIONS = 4
"""The minimum number of dimensions of an embedding; shorter vectors are scores."""

_VECTORS = 2
"""The number of axes of an output with one vector for each sample."""

_LEAST_ROWS = 3
"""The minimum number of rows for neighbors: of two rows, each is the neighbor of the other."""

_HALF = 0.5
_ALMOST = 0.01
"""The tolerance of sums of probabilities and of norms, which should be 1."""

_OPEN = (0.1, 0.9)
"""Values between these are rare in masks."""

_CHUNK = 512


@dataclass(eq=False)
class OutputChanges:
    """The counts and sums of one output."""

    samples: int = 0
    rows: int = 0
    """Rows of values along the last axis; without such an axis, each value is a row."""

    compared: int = 0
    """Samples that are finite in the reference."""

    spoiled: int = 0
    """Samples that are finite in the reference, and have NaN or infinity in the candidate."""

    first_spoiled: int | None = None
    """The index of the first spoiled sample of the last batch; None if it has none."""

    range: list[float] | None = None
    """The lowest and the highest finite value of the reference."""

    varies: bool = False
    """Whether two samples of the reference differ."""

    is_probability: bool = True
    """Whether all finite values of the reference are from 0 to 1."""

    sums_to_one: bool = True
    """Whether the values of each row of the reference add up to 1."""

    has_unit_norm: bool = True
    """Whether each row of the reference has norm 1."""

    open_values: int = 0
    """Values of the reference that are far from 0 and from 1."""

    values: int = 0
    class_changes: Shares | None = None
    """Rows whose largest value is at another index."""

    width: int = 0
    """The size of the last axis; that of the largest batch if it is open."""

    side_changes: dict[float, Shares | None] = field(
        default_factory=lambda: {0.0: None, _HALF: None}
    )
    """Values on the other side of 0, and of 0.5."""

    value_changes: Shares | None = None
    """Integers, strings and booleans that differ."""

    unmatched_masks: Shares | None = None
    """1 minus the intersection over the union of the values above 0.5."""

    probability_error: float = 0.0
    """The sum of absolute differences of values from 0 to 1."""

    probability_squares: float = 0.0
    """The sum of the squares of the sums of samples."""

    worst_probability_error: float = 0.0
    """The largest sum of a sample."""

    probability_sum: float = 0.0
    class_error: float = 0.0
    """
    The sum of absolute differences of the logarithms of the largest probability, over rows that
    keep their class.
    """

    moments: Moments | None = None
    _first: Any = None
    _first_class: int | None = None
    _has_one_class: bool = True
    _kept: list[tuple[Any, Any]] = field(default_factory=list)
    _kept_bytes: int = 0

    def update(self, reference: Any, candidate: Any) -> None:
        """Add the output of both models for one batch, as arrays of one shape."""
        if reference.ndim == 0:
            reference, candidate = reference.reshape(1), candidate.reshape(1)
        samples = len(reference)
        self.samples += samples
        self.first_spoiled = None
        if not samples or not reference.size:
            return
        self.width = max(self.width, reference.shape[-1] if reference.ndim > 1 else 1)
        if reference.dtype.kind != "f":
            self._note_variation(reference)
            self.compared += samples
            self.values += reference.size
            self.rows += reference.size
            self.value_changes = _add(self.value_changes, reference != candidate)
            return
        finite = _all_of_sample(np.isfinite(reference))
        has_new_nonfinite = ~_all_of_sample(np.isfinite(candidate) | ~np.isfinite(reference))
        self.spoiled += int(has_new_nonfinite.sum())
        self.first_spoiled = int(has_new_nonfinite.argmax()) if has_new_nonfinite.any() else None
        usable = finite & _all_of_sample(np.isfinite(candidate))
        self._note_variation(reference[finite])
        self._describe(reference[finite])
        self.compared += int(usable.sum())
        if usable.any():
            self._compare(reference[usable].astype("float64"), candidate[usable].astype("float64"))

    def to_json(self) -> dict[str, Any]:
        """Return all counts by name."""
        return {
            "samples": self.samples,
            "compared": self.compared,
            "spoiled": self.spoiled,
            "rows": self.rows,
            "range": self.range,
            "varies": self.varies,
            "is_probability": self.range is not None and self.is_probability,
            "sums_to_one": self.range is not None and self.sums_to_one,
            "has_unit_norm": self.range is not None and self.has_unit_norm,
            "open_share": self.open_values / self.values if self.values else None,
            "class_changes": _json(self.class_changes),
            "has_one_class": self._has_one_class if self.class_changes is not None else None,
            "width": self.width,
            "side_changes": _json(self.side_changes[_HALF if self.is_probability else 0.0]),
            "value_changes": _json(self.value_changes),
            "neighbor_changes": self._neighbours(),
            "unmatched_masks": _json(self.unmatched_masks) if self.is_probability else None,
            "probability": {
                "error": self.probability_error,
                "squares": self.probability_squares,
                "worst": self.worst_probability_error,
                "sum": self.probability_sum,
            }
            if self.range is not None and self.is_probability
            else None,
            "class_error": self.class_error if self.class_changes is not None else None,
            "channels": self.moments.to_json() if self.moments is not None else [],
        }

    def _note_variation(self, reference: Any) -> None:
        """Record whether samples of the reference differ."""
        if self.varies or not len(reference):
            return
        if self._first is None:
            self._first = np.array(reference[0])
        self.varies = reference.shape[1:] != self._first.shape or bool(
            (reference != self._first).any()
        )

    def _describe(self, reference: Any) -> None:
        """Record properties of the reference's values, all of which are finite."""
        if not reference.size:
            return
        ends = [float(reference.min()), float(reference.max())]
        if self.range is not None:
            ends = [min(ends[0], self.range[0]), max(ends[1], self.range[1])]
        self.range = ends
        self.values += reference.size
        self.is_probability = self.is_probability and ends[0] >= 0 and ends[1] <= 1 + _ALMOST
        rows = _rows(reference)
        has_several = rows.shape[-1] > 1
        sums = rows.sum(-1, dtype="float64")
        self.sums_to_one = (
            self.sums_to_one
            and has_several
            and ends[0] >= 0
            and bool((np.abs(sums - 1) <= _ALMOST).all())
        )
        norms = np.sqrt(np.square(rows, dtype="float64").sum(-1))
        self.has_unit_norm = (
            self.has_unit_norm and has_several and bool((np.abs(norms - 1) <= _ALMOST).all())
        )
        self.open_values += int(((reference > _OPEN[0]) & (reference < _OPEN[1])).sum())

    def _compare(self, reference: Any, candidate: Any) -> None:
        """Count the changes of one batch for each kind of output that the values allow."""
        rows = _rows(reference), _rows(candidate)
        self.rows += rows[0].size // rows[0].shape[-1]
        if self.moments is None:
            self.moments = Moments(reference)
        self.moments.update(reference, candidate)
        for end, shares in self.side_changes.items():
            self.side_changes[end] = _add(shares, (reference > end) != (candidate > end))
        if self.is_probability:
            errors = np.abs(reference - candidate).reshape(len(reference), -1).sum(1)
            self.probability_error += float(errors.sum())
            self.probability_squares += float(np.square(errors).sum())
            self.worst_probability_error = max(self.worst_probability_error, float(errors.max()))
            self.probability_sum += float(reference.sum())
            masks = _unmatched_share(reference > _HALF, candidate > _HALF)
            self.unmatched_masks = _add(self.unmatched_masks, masks)
        if rows[0].shape[-1] > 1:
            best = rows[0].argmax(-1)
            if self._first_class is None:
                self._first_class = int(best.flat[0])
            self._has_one_class = self._has_one_class and bool((best == self._first_class).all())
            self.class_changes = _add(self.class_changes, best != rows[1].argmax(-1))
            if self.is_probability:
                likely = [
                    np.log(np.maximum(np.take_along_axis(side, best[..., None], -1), 1e-9))
                    for side in rows
                ]
                is_same_class = best[..., None] == rows[1].argmax(-1)[..., None]
                self.class_error += float((np.abs(likely[0] - likely[1]) * is_same_class).sum())
        self._keep(reference, candidate)

    def _keep(self, reference: Any, candidate: Any) -> None:
        """Keep vectors to find their nearest neighbours, within bounds."""
        is_vector = reference.ndim == _VECTORS and reference.shape[1] >= _LEAST_DIMENSIONS
        room = KEPT_ROWS - sum(len(pair[0]) for pair in self._kept)
        row_bytes = 8 * reference[0].size
        room = min(room, (KEPT_BYTES - self._kept_bytes) // row_bytes) if is_vector else 0
        if self._kept and self._kept[0][0].shape[1:] != reference.shape[1:]:
            room = 0
        if room > 0:
            self._kept.append(
                (reference[:room].astype("float32"), candidate[:room].astype("float32"))
            )
            self._kept_bytes += row_bytes * len(reference[:room])

    def _neighbours(self) -> dict[str, Any] | None:
        """Return the number of vectors with a changed nearest neighbour, by angle."""
        if not self._kept or self.sums_to_one:
            return None
        sides = [
            _directions(np.concatenate([pair[side] for pair in self._kept])) for side in (0, 1)
        ]
        count = len(sides[0])
        if count < _LEAST_ROWS:
            return None
        changed = np.zeros(count, "bool")
        for start in range(0, count, _CHUNK):
            nearest = []
            for side in sides:
                chunk = side[start : start + _CHUNK] @ side.T
                place = np.arange(len(chunk))
                chunk[place, start + place] = -np.inf
                nearest.append(chunk.argmax(1))
            changed[start : start + _CHUNK] = nearest[0] != nearest[1]
        return _json(_add(None, changed))


@dataclass(eq=False)
class Shares:
    """How many of the rows of each sample changed."""

    samples: int = 0
    changed: int = 0
    """Samples in which any row did."""

    total: float = 0.0
    """The sum of the shares of the rows of each sample."""

    squares: float = 0.0
    """The sum of the squares of these shares."""

    worst: float = 0.0
    """The largest share."""

    def update(self, changed: Any) -> None:
        """Add a batch, with the changed rows of each sample, or their share."""
        shares = changed.reshape(len(changed), -1).mean(1, dtype="float64")
        self.samples += len(shares)
        self.changed += int((shares > 0).sum())
        self.total += float(shares.sum())
        self.squares += float(np.square(shares).sum())
        self.worst = max(self.worst, float(shares.max()))


class Moments:
    """The errors of the channels of an output, and how far their values spread."""

    def __init__(self, first: Any) -> None:
        """``first`` is the first batch of the reference, whose mean the sums are relative to."""
        self.channels = first.shape[-1] if first.ndim > 1 else 1
        self.has_separate_channels = self.channels <= CHANNELS
        self._reference_mean = self._flat(first).mean((0, 1))
        self._count = 0
        self._sum: Any = np.zeros(self.channels)
        self._squares: Any = np.zeros(self.channels)
        self._errors: Any = np.zeros(self.channels)
        self._worst: Any = np.zeros(self.channels if self.has_separate_channels else 1)
        self._squared_errors: Any = np.zeros(self.channels if self.has_separate_channels else 1)

    def update(self, reference: Any, candidate: Any) -> None:
        """Add a batch; if its number of channels differs, all channels are joined from then on."""
        if self.channels != 1 and self.channels != reference.shape[-1]:
            self._join()
        first, second = self._flat(reference), self._flat(candidate)
        self._count += first.shape[0] * first.shape[1]
        centred = first - self._reference_mean
        self._sum += centred.sum((0, 1))
        self._squares += np.square(centred).sum((0, 1))
        errors = np.square(second - first).sum(1)
        self._errors += errors.sum(0)
        if not self.has_separate_channels:
            errors = errors.sum(1, keepdims=True)
        self._worst = np.maximum(self._worst, errors.max(0))
        self._squared_errors += np.square(errors).sum(0)

    def to_json(self) -> list[dict[str, float]]:
        """
        Return four sums for each channel, or for all channels together: the squared errors of all
        samples, those of the worst sample, the squares of each sample's sum, and the squared
        distances of the reference's values from their mean.
        """
        squared_distances = np.maximum(self._squares - np.square(self._sum) / self._count, 0)
        size = np.abs(self._reference_mean + self._sum / self._count)
        errors = self._errors
        if not self.has_separate_channels:
            errors, squared_distances, size = (
                errors.sum(keepdims=True),
                squared_distances.sum(keepdims=True),
                size.max(keepdims=True),
            )
        return [
            {
                "error": float(errors[place]),
                "worst": float(self._worst[place]),
                "squares": float(self._squared_errors[place]),
                "spread": float(squared_distances[place]),
                "mean": float(size[place]),
                "values": self._count,
            }
            for place in range(len(errors))
        ]

    def _join(self) -> None:
        """
        Combine all channels into one. The sum of the squares of the samples' sums is then an upper
        bound.
        """
        origin = self._reference_mean.mean()
        shift = self._reference_mean - origin
        squares = self._squares + 2 * shift * self._sum + self._count * np.square(shift)
        self._squares = squares.sum(keepdims=True)
        self._sum = (self._sum + self._count * shift).sum(keepdims=True)
        self._reference_mean = np.full(1, origin)
        self._errors = self._errors.sum(keepdims=True)
        self._worst = self._worst.sum(keepdims=True)
        self._squared_errors = np.square(np.sqrt(self._squared_errors).sum(keepdims=True))
        self._count *= self.channels
        self.channels, self.has_separate_channels = 1, True

    def _flat(self, array: Any) -> Any:
        """Return values as samples, positions and channels."""
        return array.reshape(len(array), -1, self.channels)


def _unmatched_share(reference: Any, candidate: Any) -> Any:
    """Return 1 minus the intersection over union of each sample; 0 for two empty masks."""
    flat = [mask.reshape(len(mask), -1) for mask in (reference, candidate)]
    union = (flat[0] | flat[1]).sum(1)
    both = (flat[0] & flat[1]).sum(1)
    return (union - both) / np.maximum(union, 1)


def _directions(vectors: Any) -> Any:
    """Return vectors scaled to the length 1; vectors of zeros are unchanged."""
    norms = np.sqrt(np.square(vectors, dtype="float64").sum(1, keepdims=True))
    return (vectors / np.where(norms > 0, norms, 1)).astype("float32")


def _rows(array: Any) -> Any:
    """Return values with an axis of at least one value at the end."""
    return array[..., None] if array.ndim == 1 else array


def _all_of_sample(flags: Any) -> Any:
    return flags.reshape(len(flags), -1).all(axis=1)


def _add(shares: Shares | None, changed: Any) -> Shares:
    shares = shares or Shares()
    shares.update(changed)
    return shares


def _json(shares: Shares | None) -> dict[str, Any] | None:
    return None if shares is None else dict(vars(shares))
