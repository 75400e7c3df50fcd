"""
Batches of one call: seeded values, or the user's arrays, as tensors in the structure that the call
takes; with padded sequences in the values that a model masks, and with extra batches of constant
positive values and of the edges of the range of each input.

Random values cancel in long sums, and seldom come to the end of their range. Those of extra batches
do neither, so that sums and products come as close to an overflow as the range allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..library import Refused, sentence
from ..tensors import tensor_shape, values_of
from . import given_arrays, user_functions
from .given_arrays import Source, fitted_arrays
from .recipes import SIZES
from .slots import DENSE, RAGGED, SPARSE

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

    from ..library import Library
    from .recipes import Recipe
    from .slots import NestedSlots, Slot


CONSTANT, EDGES = "constant", "edges"
KINDS = (CONSTANT, EDGES)
LABELS = {CONSTANT: "constant values", EDGES: "the lowest and highest values"}
"""The name of each kind of batches in sentences."""

_CONSTANT, _HIGHEST, _LOWEST, _EVEN, _ODD = range(5)
_WAYS = {CONSTANT: (_CONSTANT,), EDGES: (_HIGHEST, _LOWEST, _EVEN, _ODD)}
"""The kinds of rows; in the last two, high and low values alternate."""


class ExtremeBatch:
    """One extra batch, which is created on request."""

    def __init__(
        self, kinds: Sequence[str], make: Callable[[Sequence[str], int], Any], first: int = 0
    ) -> None:
        """
        Set the kinds of values. ``make`` returns tensors for kinds, and receives the number of the
        first row of these kinds.
        """
        self.kinds = tuple(kinds)
        self._make = make
        self._first = first
        self._made: Any = None

    @property
    def tensors(self) -> Any:
        """The inputs, as the call takes them."""
        if self._made is None:
            self._made = self._make(self.kinds, self._first)
        return self._made

    def parts(self) -> list[ExtremeBatch]:
        """Return a batch for each kind; nothing for a batch of one kind."""
        if len(self.kinds) == 1:
            return []
        return [ExtremeBatch([kind], self._make) for kind in self.kinds]


WAYS = sum(len(ways) for ways in _WAYS.values())
"""The number of rows of a batch with one row of each kind."""


def extreme_batches(rows: int, make: Callable[[Sequence[str], int], Any]) -> list[ExtremeBatch]:
    """
    Return the extra batches: one of all kinds if it has enough rows, because each
    costs as much time as a random one.
    """
    if rows >= WAYS:
        return [ExtremeBatch(KINDS, make)]
    return [
        ExtremeBatch([kind], make, first)
        for kind in KINDS
        for first in range(0, len(_WAYS[kind]), rows)
    ]


def extreme_values(
    recipe: Recipe, kinds: Sequence[str], shape: Sequence[int], first: int = 0
) -> Any:
    """
    Return an array for one input; ``first`` is the number of its first row among those of its
    kinds.
    """
    lowest, highest = (_filled(edge, shape) for edge in recipe.edges)
    constant = _filled(recipe.constant, shape)
    fillings = [filling for kind in kinds for filling in _WAYS[kind]]
    if not shape:
        return constant if fillings[first % len(fillings)] == _CONSTANT else highest
    array = np.array(highest)
    for row in range(shape[0]):
        filling = fillings[(first + row) % len(fillings)]
        if filling == _CONSTANT:
            array[row] = constant[row]
        elif filling == _LOWEST:
            array[row] = _lowest_row(recipe, lowest[row], highest[row])
        elif filling in (_EVEN, _ODD):
            is_odd = filling == _ODD and not recipe.is_mask
            array[row] = np.where(_places(array[row]) % 2 == is_odd, highest[row], lowest[row])
    return array


def _lowest_row(recipe: Recipe, lowest: Any, highest: Any) -> Any:
    """
    Return the lowest values of a row; a mask keeps the first place of each sequence, because models
    do not expect completely masked sequences.
    """
    is_sequence = recipe.is_mask and np.ndim(lowest) and np.shape(lowest)[-1] > 1
    return np.where(_places(lowest) == 0, highest, lowest) if is_sequence else lowest


def _places(row: Any) -> Any:
    """Return the place of each value on the last axis."""
    shape = np.shape(row)
    return np.broadcast_to(np.arange(shape[-1] if shape else 1).reshape(shape[-1:]), shape)


def _filled(value: Any, shape: Sequence[int]) -> Any:
    """Return an array of a shape that repeats a value."""
    array = np.asarray(value)
    return np.broadcast_to(
        array.astype(object) if array.dtype.kind in "US" else array, tuple(shape)
    )


PADDING_WAYS = 4
"""The places of padding: nowhere, at the end, at the beginning, or everywhere."""

_NOWHERE, _END, _BEGINNING, _EVERYWHERE = range(PADDING_WAYS)
_SENTENCES_RANK = 3


def pad_tails(array: Any, parts: Any, padding: float) -> None:
    """End every other sequence early, but never before its first element."""
    for row in range(1, array.shape[0], 2):
        array[row, _kept(array, parts, row) :] = padding


def pad_every_way(array: Any, parts: Any, recipe: Recipe, *, first: int, place: int) -> None:
    """
    Pad the rows in the different ways in turn. In ``WAYS`` rows, all inputs have the same mask; in
    the next ``WAYS`` rows, each input has another mask.

    ``first`` is the number of the first row over all batches, ``place`` the number of the input
    among the padded inputs. In ids of several sentences, every other sentence also ends early.
    """
    for row in range(array.shape[0]):
        number = first + row
        padded_end = (
            number + (place if number % (2 * PADDING_WAYS) >= PADDING_WAYS else 0)
        ) % PADDING_WAYS
        kept = _kept(array, parts, row)
        if padded_end == _END:
            array[row, kept:] = recipe.padding
        elif padded_end == _BEGINNING:
            array[row, : array.shape[1] - kept] = recipe.padding
        elif padded_end == _EVERYWHERE:
            array[row] = recipe.padding
        if array.ndim == _SENTENCES_RANK and recipe.limit is not None:
            array[row, 1::2, array.shape[2] // 2 :] = recipe.padding


def _kept(array: Any, parts: Any, row: int) -> int:
    """Return the number of elements of a row's sequence that are kept."""
    return max(1, int(parts[row] * array.shape[1]))


BATCH = 8
"""The default number of rows in a batch."""

_SPARSE = 0.75
"""The share of zeros in a sparse input."""

_SEEDS = 2**32


class FedInputs:
    """The inputs of one model or signature."""

    def __init__(
        self, batches: Sequence[Any], specs: Any, batch_size: int, report: Mapping[str, Any]
    ) -> None:
        self.batches = list(batches)
        """Nested structures of tensors, as the call takes them."""

        self.specs = specs
        """
        One structure of TensorSpecs for all batches; a dimension is None in it where they differ.
        """

        self.batch_size = batch_size
        self.rows: list[int] = []
        """The number of rows of each batch."""

        self.has_fixed_rows = False
        """Whether the model accepts only one batch size."""

        self.size = SIZES[0]
        """The size used for open dimensions."""

        self.recipes: list[Recipe] = []
        """How each input was drawn; empty for the user's inputs."""

        self.report = dict(report)
        """The entry in the report, as JSON."""

        self.extremes: list[ExtremeBatch] = []
        """The extra batches."""

        self.joined: Callable[[], dict[str, Any]] = dict
        """Returns the arrays of all batches by the names of the inputs, without the extra ones."""

    def add_extremes(self, beside: Sequence[ExtremeBatch]) -> None:
        """Add extra batches; the reference may fail on some of them."""
        self.extremes = list(beside)
        self.report["batches"] = len(self.batches) + len(self.extremes)
        self.report["extra"] = [
            kind for kind in KINDS if any(kind in batch.kinds for batch in self.extremes)
        ]

    def keep_extremes(self, kept: Sequence[ExtremeBatch], dropped: Sequence[ExtremeBatch]) -> None:
        """
        Keep some of the extra batches, and add notes about the dropped ones, for which the
        reference itself returns NaN or infinity.
        """
        self.add_extremes(kept)
        for kind in KINDS:
            if any(kind in batch.kinds for batch in dropped):
                self.report["notes"].append(
                    "the batch of {} was left out because the reference returns NaN or infinity "
                    "for it".format(LABELS[kind])
                )

    @property
    def all(self) -> list[Any]:
        """The random batches and the extra ones."""
        return [*self.batches, *(batch.tensors for batch in self.extremes)]


class Feeder:
    """Creates the batches of one call."""

    def __init__(self, library: Library, inputs: NestedSlots, options: Mapping[str, Any]) -> None:
        self.library = library
        self.inputs = inputs
        self.slots = inputs.slots
        self.options = options
        self.notes: list[str] = []
        self.fixed = next(
            (slot.shape[0] for slot in self.slots if slot.shape and slot.shape[0] is not None), None
        )
        requested_size = options["batch_size"]
        self.batch_size = int(self.fixed or requested_size or BATCH)
        if self.fixed is not None and requested_size not in (None, self.fixed):
            self.notes.append(
                "the model accepts only batch size {}, not {}".format(self.fixed, requested_size)
            )

    def first(
        self, choices: Sequence[tuple[Sequence[Recipe], int]], call: Callable[[Any], Any]
    ) -> FedInputs:
        """Return synthetic inputs according to the first of the choices that the model accepts."""
        failed: BaseException | None = None
        for recipes, size in choices:
            rows = self.batch_size if self.fixed is not None else 1
            try:
                call(self._packed(self._draw_inputs(recipes, size, 0, rows)))
            except self.library.tf.errors.ResourceExhaustedError:
                raise  # a larger size would not help
            except (ValueError, TypeError, self.library.tf.errors.OpError) as error:
                failed = error
                continue
            return self.synthetic(recipes, size)
        raise Refused(
            "not-callable",
            "the model cannot be called with inputs of its declared shapes ({}); pass other "
            "inputs with --inputs".format(
                sentence(failed) if failed is not None else "no inputs were tried"
            ),
        ) from failed

    def from_user(self, recipes: Sequence[Recipe]) -> FedInputs:
        """Return the inputs of the user's file or function."""
        ragged = next((slot.name for slot in self.slots if slot.kind == RAGGED), None)
        if ragged is not None:
            raise Refused(
                "inputs", "input {} is ragged, which arrays do not support".format(ragged)
            )
        has_function = self.options.get("function") is not None
        return self._from_function(recipes) if has_function else self._from_file(recipes)

    def synthetic(self, recipes: Sequence[Recipe], size: int) -> FedInputs:
        """Return seeded inputs, and with ``extremes`` extra batches."""
        count = self.options["batches"] or 1
        if self.options.get("pads_every_way"):
            count = max(count, -(-PADDING_WAYS // self.batch_size))
        batches = [
            self._draw_inputs(recipes, size, number, self.batch_size) for number in range(count)
        ]
        additional = []
        if self.options.get("extremes"):
            rows = min(self.batch_size, WAYS) if self.fixed is None else self.batch_size
            additional = extreme_batches(
                rows,
                lambda kinds, first: self._packed(self._extreme(recipes, size, kinds, first, rows)),
            )
        fed = self._fed_inputs(
            batches,
            "synthetic",
            [recipe.how for recipe in recipes],
            [recipe.range for recipe in recipes],
            [batch.tensors for batch in additional[:1]],
        )
        fed.size, fed.recipes = size, list(recipes)
        if additional:
            fed.add_extremes(additional)
        return fed

    def _from_file(self, recipes: Sequence[Recipe]) -> FedInputs:
        """Return the inputs of a file in batches; the last batch may be shorter."""
        arrays, fittings = given_arrays.read_arrays(self.options["file"], self.slots, recipes)
        self._note_not_finite(arrays, "the inputs file contains")
        source = Source(self.options["file"], given_arrays.CODE, "the file")
        return self._fed_inputs(
            self._cut_batches(arrays, self.batch_size, source), "given", fittings
        )

    def _from_function(self, recipes: Sequence[Recipe]) -> FedInputs:
        """
        Return the batches of a function; they are cut to the batch size if the user or the model
        sets one.
        """
        most, name = self.options["batches"], self.options["function"]
        batches: list[Any] = []
        fittings: list[str] = []
        for batch in user_functions.read_batches(self.options, self.slots):
            arrays, fittings_of_batch = fitted_arrays(
                batch.arrays, self.slots, recipes, batch.source
            )
            fittings = fittings or fittings_of_batch
            self._note_not_finite(arrays, "{} returned".format(name))
            rows = max(len(array) for array in arrays)
            sets_size = self.fixed or self.options["batch_size"] or batch.is_alone
            batches += self._cut_batches(
                arrays, self.batch_size if sets_size else rows, batch.source
            )
        batches = batches[:most]
        self.batch_size = max(len(array) for batch in batches for array in batch if np.ndim(array))
        return self._fed_inputs(batches, "given", fittings)

    def _note_not_finite(self, arrays: Sequence[Any], source: str) -> None:
        nonfinite_names = [
            slot.name
            for slot, array in zip(self.slots, arrays)
            if array.dtype.kind == "f" and not np.isfinite(array).all()
        ]
        note = "{} NaN or infinity in {}".format(source, ", ".join(nonfinite_names))
        if nonfinite_names and note not in self.notes:
            self.notes.append(note)

    def _cut_batches(
        self, arrays: Sequence[Any], batch_size: int, source: Source
    ) -> list[list[Any]]:
        """Return the rows of all inputs in batches."""
        if self.options.get("halves") and self.fixed is None:
            longest = max((len(array) for array in arrays if np.ndim(array)), default=1)
            batch_size = min(batch_size, max(1, -(-longest // 2)))
        numbers = {
            -(-len(array) // slot.rows(batch_size)) for slot, array in zip(self.slots, arrays)
        }
        totals = {
            len(array)
            for slot, array in zip(self.slots, arrays)
            if slot.shape is None or slot.shape[:1] == [None]
        }
        if len(numbers) > 1 or len(totals) > 1:
            rows = ", ".join(
                "{} of {}".format(len(array), slot.name) for slot, array in zip(self.slots, arrays)
            )
            raise source.refused(
                "the arrays in {} have different numbers of rows: {}", source.name, rows
            )
        return [
            [_rows(slot, array, place, batch_size) for slot, array in zip(self.slots, arrays)]
            for place in range(numbers.pop())
        ]

    def _draw_inputs(
        self, recipes: Sequence[Recipe], size: int, number: int, rows: int
    ) -> list[Any]:
        """
        Return one array for each input; sequences of one row end at the same part of each input.
        """
        seed = int(self.options["seed"]) % _SEEDS
        parts = np.random.RandomState([seed, number, _SEEDS - 1]).uniform(0.3, 1.0, size=rows)
        arrays = []
        padded = 0
        for place, (slot, recipe) in enumerate(zip(self.slots, recipes)):
            random = np.random.RandomState([seed, number, place])
            shape = _drawn_shape(slot, size, rows)
            array = np.asarray(recipe.draw(random, shape))
            if recipe.padding is not None and len(shape) > 1 and slot.kind != RAGGED:
                if self.options.get("pads_every_way"):
                    pad_every_way(array, parts, recipe, first=number * rows, place=padded)
                else:
                    pad_tails(array, parts, recipe.padding)
                padded += 1
            arrays.append(_thinned(slot, array, random))
        return arrays

    def _extreme(
        self, recipes: Sequence[Recipe], size: int, kinds: Sequence[str], first: int, rows: int
    ) -> list[Any]:
        """Return one array for each input of an extra batch."""
        seed = int(self.options["seed"]) % _SEEDS
        return [
            _thinned(
                slot,
                extreme_values(recipe, kinds, _drawn_shape(slot, size, rows), first),
                np.random.RandomState([seed, first, place]),
            )
            for place, (slot, recipe) in enumerate(zip(self.slots, recipes))
        ]

    def _fed_inputs(
        self,
        batches: Sequence[Sequence[Any]],
        kind: str,
        fittings: Sequence[str],
        ranges: Sequence[Any] = (),
        others: Sequence[Any] = (),
    ) -> FedInputs:
        """Return the inputs; their specs also fit the extra batches ``others``."""
        packed = [self._packed(arrays) for arrays in batches]
        flat = [self.library.tf.nest.flatten(batch) for batch in (*packed, *others)]
        shapes, all_shapes = (
            [_shape(tensors) for tensors in zip(*batch_sets)]
            for batch_sets in (flat[: len(packed)], flat)
        )
        specs = [self._spec(slot, shape) for slot, shape in zip(self.slots, all_shapes)]
        entries: list[dict[str, Any]] = [
            {"name": slot.name, "shape": shape, "dtype": slot.dtype, "how": fitting}
            for slot, shape, fitting in zip(self.slots, shapes, fittings)
        ]
        for entry, value_range in zip(entries, ranges):
            entry["range"] = value_range
        report = {
            "kind": kind,
            "seed": self.options["seed"] if kind == "synthetic" else None,
            "batches": len(packed),
            "batch_size": self.batch_size,
            "inputs": entries,
            "notes": self.notes,
        }
        fed = FedInputs(packed, self.inputs.packed(specs), self.batch_size, report)
        fed.rows = [
            max((len(array) for array in arrays if np.ndim(array)), default=1) for arrays in batches
        ]
        fed.has_fixed_rows = self.fixed is not None
        fed.joined = lambda: self._join_batches(packed)
        if self.options.get("save") is not None:
            given_arrays.write_arrays(self.options["save"], fed.joined())
        return fed

    def _packed(self, arrays: Sequence[Any]) -> Any:
        return self.inputs.packed(
            [self._tensor(slot, array) for slot, array in zip(self.slots, arrays)]
        )

    def _tensor(self, slot: Slot, array: Any) -> Any:
        """Return an array as a tensor of an input: dense, sparse or ragged."""
        tf = self.library.tf
        if not self.library.traces and (slot.kind != DENSE or slot.dtype == "string"):
            text = "input {} is {}, which policytool supports only with the TensorFlow backend"
            kind = "text" if slot.kind == DENSE else slot.kind
            raise Refused("inputs", text.format(slot.name, kind))
        dtype = tf.as_dtype(slot.dtype)
        values = array if slot.dtype == "string" else np.asarray(array).astype(dtype.as_numpy_dtype)
        dense = tf.constant(values, dtype=dtype)
        if slot.kind == SPARSE:
            return tf.sparse.from_dense(dense)
        if slot.kind == RAGGED:
            length = int(dense.shape[1])
            return tf.RaggedTensor.from_tensor(
                dense, lengths=[1 + row % length for row in range(int(dense.shape[0]))]
            )
        return dense

    def _spec(self, slot: Slot, shape: Sequence[int | None]) -> Any:
        """Return the spec of an input with a shape."""
        tf = self.library.tf
        dtype = tf.as_dtype(slot.dtype)
        if slot.kind == RAGGED:
            return tf.RaggedTensorSpec(shape, dtype, ragged_rank=1)
        return (
            tf.SparseTensorSpec(shape, dtype)
            if slot.kind == SPARSE
            else tf.TensorSpec(shape, dtype)
        )

    def _join_batches(self, batches: Sequence[Any]) -> dict[str, Any]:
        """Return the inputs by name, with the batches concatenated."""
        arrays_by_name: dict[str, list[Any]] = {slot.name: [] for slot in self.slots}
        for batch in batches:
            for slot, tensor in zip(self.slots, self.library.tf.nest.flatten(batch)):
                if slot.kind == RAGGED:
                    raise Refused(
                        "inputs",
                        "input {} is ragged, which array files do not support".format(slot.name),
                    )
                dense = self.library.tf.sparse.to_dense(tensor) if slot.kind == SPARSE else tensor
                array = values_of(dense)
                arrays_by_name[slot.name].append(array[None] if slot.shape == [] else array)
        for name, arrays in arrays_by_name.items():
            if len({array.shape[1:] for array in arrays}) > 1:
                raise Refused(
                    "inputs",
                    "the batches of input {} have different shapes, so they cannot be saved".format(
                        name
                    ),
                )
        return {name: np.concatenate(arrays) for name, arrays in arrays_by_name.items()}


def _drawn_shape(slot: Slot, size: int, rows: int) -> list[int]:
    """Return the shape of an array for an input; ``size`` stands for open dimensions."""
    dims = slot.shape if slot.shape is not None else [None, None]
    if not dims:
        return []
    return [slot.rows(rows), *(size if extent is None else extent for extent in dims[1:])]


def _thinned(slot: Slot, array: Any, random: Any) -> Any:
    """Return an array in which most values are zero if the input is sparse."""
    if slot.kind != SPARSE or array.dtype.kind == "O":
        return array
    return np.where(random.uniform(size=array.shape) < _SPARSE, np.zeros_like(array), array)


def _rows(slot: Slot, array: Any, place: int, batch_size: int) -> Any:
    """Return the rows of an array in one batch."""
    if slot.shape == []:
        return array[place]
    rows = slot.rows(batch_size)
    return array[place * rows : (place + 1) * rows]


def _shape(tensors: Sequence[Any]) -> list[int | None]:
    """Return the shape of all batches of an input; None for a dimension in which they differ."""
    shapes = [tensor_shape(tensor) for tensor in tensors]
    return [extents[0] if len(set(extents)) == 1 else None for extents in zip(*shapes)]
