"""Inputs for a model that nobody gave any for: seeded, in the range of what the model takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .library import Refused, paths

if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from .library import Library

BATCH = 3
SIZES = (8, 32, 128, 224)
"""What stands for a dimension that the model leaves open: the smallest that it can be called with is taken."""

_WORDS = ("", "red", "green", "blue", "a longer text of several words")
_DENSE_IDS = 16
_RANGES = {"Embedding": "input_dim", "CategoryEncoding": "num_tokens", "IntegerLookup": "vocabulary_size", "Discretization": None, "Hashing": None}
"""Layers that take ids, and the key of their config that says how many there are."""


class Spec:
    """What one input has to look like."""

    def __init__(self, name: str, shape: Any, dtype: str) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype


def specs_of(tensors: Sequence[Any]) -> list[Spec]:
    """Return the specs of symbolic tensors, or of TensorSpecs, in their order."""
    found = []
    for position, tensor in enumerate(tensors):
        kind = type(tensor).__name__
        if "Ragged" in kind or "Sparse" in kind or getattr(tensor, "is_tensor_like", True) is False:
            raise Refused("inputs", "input {} is {}, for which no inputs are made".format(getattr(tensor, "name", position), kind))
        shape = tensor.shape
        dims = None if getattr(shape, "rank", 0) is None else [None if size is None else int(size) for size in shape]
        found.append(Spec(str(getattr(tensor, "name", None) or position), dims, str(getattr(tensor.dtype, "name", tensor.dtype))))
    return found


def drawn(library: Library, model: Any, specs: Sequence[Spec], seed: int, size: int) -> list[Any]:
    """
    Return one tensor for each spec.

    The same seed and the same shapes and dtypes in the same order give the same values in every process, whatever names a library gave the inputs.
    """
    count, words, ids = _ids(model), _vocabulary(model), _id_inputs(library, model)
    return [_tensor(library, spec, np.random.RandomState(1000 * seed + place), size, (count, words, ids)) for place, spec in enumerate(specs)]


def sizes(specs: Sequence[Spec]) -> Iterator[int]:
    """Yield what to try for open dimensions; once where there are none but the batch."""
    is_open = any(spec.shape is None or None in spec.shape[1:] for spec in specs)
    yield from SIZES if is_open else SIZES[:1]


def _tensor(library: Library, spec: Spec, random: Any, size: int, known: tuple[int, list[str], set[str]]) -> Any:
    count, words, ids = known
    dims = spec.shape if spec.shape is not None else [None, None]
    shape = [BATCH if place == 0 and extent is None else size if extent is None else extent for place, extent in enumerate(dims)]
    dtype = library.tf.as_dtype(spec.dtype)
    if dtype == library.tf.string:
        return library.tf.constant(np.array(words, dtype=object)[random.randint(0, len(words), size=shape)], dtype=dtype)
    if dtype == library.tf.bool:
        return library.tf.constant(random.randint(0, 2, size=shape).astype(bool))
    if dtype.is_integer or spec.name in ids:
        values = random.randint(0, min(count, 127) if dtype.size == 1 else count, size=shape)
    else:
        values = random.standard_normal(size=shape)
    return library.tf.constant(values.astype(dtype.as_numpy_dtype), dtype=dtype)


def _ids(model: Any) -> int:
    """Return how many ids every layer of the model that takes ids has."""
    counts = []
    for _, layer in paths(model) if model is not None else ():
        key = _RANGES.get(type(layer).__name__)
        count = getattr(layer, key, None) if key else None
        if isinstance(count, int) and count > 0:
            counts.append(count)
    return min(counts) if counts else _DENSE_IDS


def _vocabulary(model: Any) -> list[str]:
    """Return words that the model's lookups know, and one that none does."""
    for _, layer in paths(model) if model is not None else ():
        if type(layer).__name__ in ("StringLookup", "TextVectorization"):
            try:
                found = [str(word) for word in layer.get_vocabulary()][:50]
            except Exception:  # noqa: S112 - a lookup without a vocabulary; other words do
                continue
            return [*found, "unheard-of"]
    return list(_WORDS)


def _id_inputs(library: Library, model: Any) -> set[str]:
    """Return the names of float inputs that carry ids to a layer that takes ids."""
    found = set()
    for _, layer in paths(model) if model is not None else ():
        if type(layer).__name__ in _RANGES and library.family == "keras2":
            for node in getattr(layer, "_inbound_nodes", []):
                tensors = getattr(node, "input_tensors", None)
                for tensor in library.tf.nest.flatten([] if tensors is None else tensors):
                    found.add(str(getattr(tensor, "name", "")))
                    history = getattr(tensor, "_keras_history", None)
                    found.add(str(getattr(getattr(history, "layer", history[0] if history else None), "name", "")))
    return found
