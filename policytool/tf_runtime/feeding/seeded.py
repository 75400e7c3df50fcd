"""
Inputs for a model that nobody gave any for, one at a time: seeded, in the range of what the model
takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..library import Refused
from .reached_layers import layers_reached
from .recipes import recipe
from .slots import Slot, model_inputs

if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from ..library import Library
    from .reached_layers import Reached

BATCH = 3
SIZES = (8, 32, 128, 224)
"""
What stands for a dimension that the model leaves open: the smallest that it can be called with is
taken.
"""


def input_slots(tensors: Sequence[Any]) -> list[Slot]:
    """Return the specs of symbolic tensors, or of TensorSpecs, in their order."""
    slots = []
    for position, tensor in enumerate(tensors):
        kind = type(tensor).__name__
        if "Ragged" in kind or "Sparse" in kind or getattr(tensor, "is_tensor_like", True) is False:
            raise Refused(
                "inputs",
                "input {} is of type {}, for which policytool cannot create values".format(
                    getattr(tensor, "name", position), kind
                ),
            )
        shape = tensor.shape
        dims = (
            None
            if getattr(shape, "rank", 0) is None
            else [None if size is None else int(size) for size in shape]
        )
        slots.append(
            Slot(
                str(getattr(tensor, "name", None) or position),
                dims,
                str(getattr(tensor.dtype, "name", tensor.dtype)),
            )
        )
    return slots


def draw_inputs(
    library: Library, model: Any, specs: Sequence[Slot], seed: int, size: int
) -> list[Any]:
    """
    Return one tensor for each spec.

    The same seed, shapes and dtypes in the same order result in the same values in every process,
    as long as the names by which specs match the model's inputs do not change.
    """
    reached_by_name = layers_reached_by_name(library, model)
    tensors = []
    for place, spec in enumerate(specs):
        random = np.random.RandomState(1000 * seed + place)
        dims = spec.shape if spec.shape is not None else [None, None]
        shape = [
            BATCH if axis == 0 and extent is None else size if extent is None else extent
            for axis, extent in enumerate(dims)
        ]
        values = recipe(spec, reached_by_name.get(spec.name.partition(":")[0]), model).draw(
            random, shape
        )
        dtype = library.tf.as_dtype(spec.dtype)
        tensors.append(
            library.tf.constant(
                values
                if spec.dtype == "string"
                else np.asarray(values).astype(dtype.as_numpy_dtype),
                dtype=dtype,
            )
        )
    return tensors


def sizes(specs: Sequence[Slot]) -> Iterator[int]:
    """Yield what to try for open dimensions; once where there are none but the batch."""
    yield from SIZES if any(spec.is_open for spec in specs) else SIZES[:1]


def layers_reached_by_name(library: Library, model: Any) -> dict[str, list[Reached]]:
    """Return the layers that each input of the model reaches, by name; empty if unknown."""
    try:
        slots = model_inputs(library, model).slots if model is not None else []
    except Refused:
        return {}  # what holds for every layer of the model holds for the input then
    reached = layers_reached(library, model) if slots else None
    return (
        {slot.name: layers for slot, layers in zip(slots, reached)} if reached is not None else {}
    )
