"""
Batches of one call: seeded values, or the arrays of a file, as tensors in the structure that the
call takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..library import Refused
from ..sentences import sentence
from . import array_files, padding
from .seeded import SIZES
from .slots import RAGGED, SPARSE

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

    from ..library import Library
    from .recipes import Recipe
    from .slots import Slot, Taken

BATCH = 8
"""Rows of a batch where nobody says another number."""

_SPARSE = 0.75
"""Share of a sparse input that is zero."""

_SEEDS = 2**32


class FedInputs:
    """The inputs of one model or signature."""

    def __init__(
        self, batches: Sequence[Any], specs: Any, batch_size: int, told: Mapping[str, Any]
    ) -> None:
        self.batches = list(batches)
        """Nested structures of tensors, as the call takes them."""

        self.specs = specs
        """
        One structure of TensorSpecs for all batches; the batch is None in it where the last one is
        shorter.
        """

        self.batch_size = batch_size
        self.size = SIZES[0]
        """What stands for open dimensions."""

        self.told = dict(told)
        """What the report says of it, as JSON."""


class Feeder:
    """Makes the batches of one call."""

    def __init__(self, library: Library, inputs: Taken, wanted: Mapping[str, Any]) -> None:
        self.library = library
        self.inputs = inputs
        self.slots = inputs.slots
        self.wanted = wanted
        self.notes: list[str] = []
        self.fixed = next(
            (slot.shape[0] for slot in self.slots if slot.shape and slot.shape[0] is not None), None
        )
        asked = wanted["batch_size"]
        self.batch_size = int(self.fixed or asked or BATCH)
        if self.fixed is not None and asked not in (None, self.fixed):
            self.notes.append(
                "the model accepts only batch size {}, not {}".format(self.fixed, asked)
            )

    def first(
        self, choices: Sequence[tuple[Sequence[Recipe], int]], call: Callable[[Any], Any]
    ) -> FedInputs:
        """Return synthetic inputs of the first kind that the model can be called with."""
        failed: BaseException | None = None
        for recipes, size in choices:
            rows = self.batch_size if self.fixed is not None else 1
            try:
                call(self._packed(self._drawn(recipes, size, 0, rows)))
            except self.library.tf.errors.ResourceExhaustedError:
                raise  # a larger size would not help
            except (ValueError, TypeError, self.library.tf.errors.OpError) as error:
                failed = error
                continue
            return self.synthetic(recipes, size)
        text = (
            "it cannot be called with inputs of its declared shapes ({}); pass other "
            "inputs with --inputs"
        )
        raise Refused(
            "not-callable",
            text.format(sentence(failed) if failed is not None else "no inputs were tried"),
        ) from failed

    def synthetic(self, recipes: Sequence[Recipe], size: int) -> FedInputs:
        """Return seeded inputs."""
        count = self.wanted["batches"] or 1
        if self.wanted.get("pads_every_way"):
            count = max(count, -(-padding.WAYS // self.batch_size))
        batches = [self._drawn(recipes, size, number, self.batch_size) for number in range(count)]
        found = self._fed(batches, "synthetic", [one.how for one in recipes])
        found.size = size
        return found

    def from_file(self, recipes: Sequence[Recipe]) -> FedInputs:
        """Return the inputs of a file, cut into batches; a last one that is shorter is kept."""
        ragged = next((slot.name for slot in self.slots if slot.kind == RAGGED), None)
        if ragged is not None:
            raise Refused(
                "inputs", "input {} is ragged, which array files do not support".format(ragged)
            )
        arrays, hows, ignored = array_files.read_arrays(self.wanted["file"], self.slots, recipes)
        if ignored:
            self.notes.append(
                "ignored {} {} in the inputs file: the model has no matching input".format(
                    "array" if len(ignored) == 1 else "arrays",
                    ", ".join("`{}`".format(name) for name in ignored),
                )
            )
        spoilt = [
            slot.name
            for slot, array in zip(self.slots, arrays)
            if array.dtype.kind == "f" and not np.isfinite(array).all()
        ]
        if spoilt:
            self.notes.append(
                ("the inputs file contains NaN or infinity in {}").format(", ".join(spoilt))
            )
        batches = [
            [self._cut(slot, array, place) for slot, array in zip(self.slots, arrays)]
            for place in range(self._count(arrays))
        ]
        return self._fed(batches, "given", hows)

    def _count(self, arrays: Sequence[Any]) -> int:
        """Return how many batches the rows of all inputs make."""
        numbers = {
            -(-len(array) // slot.rows(self.batch_size)) for slot, array in zip(self.slots, arrays)
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
            raise Refused(
                "inputs-file",
                ("the arrays in {} have different numbers of rows: {}").format(
                    self.wanted["file"], rows
                ),
            )
        return numbers.pop()

    def _cut(self, slot: Slot, array: Any, place: int) -> Any:
        if slot.shape == []:
            return array[place]
        rows = slot.rows(self.batch_size)
        return array[place * rows : (place + 1) * rows]

    def _drawn(self, recipes: Sequence[Recipe], size: int, number: int, rows: int) -> list[Any]:
        """
        Return one array for each input; sequences of one row end at the same part of each input.
        """
        seed = int(self.wanted["seed"]) % _SEEDS
        parts = np.random.RandomState([seed, number, _SEEDS - 1]).uniform(0.3, 1.0, size=rows)
        made = []
        padded = 0
        for place, (slot, one) in enumerate(zip(self.slots, recipes)):
            random = np.random.RandomState([seed, number, place])
            dims = slot.shape if slot.shape is not None else [None, None]
            shape = (
                [slot.rows(rows), *(size if extent is None else extent for extent in dims[1:])]
                if dims
                else []
            )
            array = np.asarray(one.draw(random, shape))
            if one.padding is not None and len(shape) > 1 and slot.kind != RAGGED:
                if self.wanted.get("pads_every_way"):
                    padding.pad_every_way(array, parts, one, first=number * rows, place=padded)
                else:
                    padding.pad_tails(array, parts, one.padding)
                padded += 1
            if slot.kind == SPARSE and array.dtype.kind != "O":
                array = np.where(random.uniform(size=shape) < _SPARSE, np.zeros_like(array), array)
            made.append(array)
        return made

    def _fed(self, batches: Sequence[Sequence[Any]], kind: str, hows: Sequence[str]) -> FedInputs:
        packed = [self._packed(one) for one in batches]
        first, last = (self.library.tf.nest.flatten(one) for one in (packed[0], packed[-1]))
        shapes = [_shape(one, other) for one, other in zip(first, last)]
        specs = [self._spec(slot, shape) for slot, shape in zip(self.slots, shapes)]
        if self.wanted["save"] is not None:
            array_files.write_arrays(self.wanted["save"], self._joined(packed))
        told = {
            "kind": kind,
            "seed": self.wanted["seed"] if kind == "synthetic" else None,
            "batches": len(packed),
            "batch_size": self.batch_size,
            "inputs": [
                {"name": slot.name, "shape": shape, "dtype": slot.dtype, "how": how}
                for slot, shape, how in zip(self.slots, shapes, hows)
            ],
            "notes": self.notes,
        }
        return FedInputs(packed, self.inputs.packed(specs), self.batch_size, told)

    def _packed(self, arrays: Sequence[Any]) -> Any:
        return self.inputs.packed(
            [self._tensor(slot, array) for slot, array in zip(self.slots, arrays)]
        )

    def _tensor(self, slot: Slot, array: Any) -> Any:
        tf = self.library.tf
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
        tf = self.library.tf
        dtype = tf.as_dtype(slot.dtype)
        if slot.kind == RAGGED:
            return tf.RaggedTensorSpec(shape, dtype, ragged_rank=1)
        return (
            tf.SparseTensorSpec(shape, dtype)
            if slot.kind == SPARSE
            else tf.TensorSpec(shape, dtype)
        )

    def _joined(self, batches: Sequence[Any]) -> dict[str, Any]:
        """Return what was fed, by name and with the batches one after the other."""
        found: dict[str, list[Any]] = {slot.name: [] for slot in self.slots}
        for one in batches:
            for slot, tensor in zip(self.slots, self.library.tf.nest.flatten(one)):
                if slot.kind == RAGGED:
                    raise Refused(
                        "inputs",
                        "input {} is ragged, which array files do not support".format(slot.name),
                    )
                dense = self.library.tf.sparse.to_dense(tensor) if slot.kind == SPARSE else tensor
                array = np.asarray(dense)
                found[slot.name].append(array[None] if slot.shape == [] else array)
        return {name: np.concatenate(arrays) for name, arrays in found.items()}


def _shape(first: Any, last: Any) -> list[int | None]:
    """Return the shape that batches have, of which the last may have fewer rows."""
    return [
        one if one == other else None
        for one, other in zip(first.shape.as_list(), last.shape.as_list())
    ]
