"""
The comparisons of one trace: which tensors are compared, each pair once, and in which row of the
result that stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import tensor_errors

if TYPE_CHECKING:
    from typing import Any


class Comparisons:
    """Tensors of a reference and of a candidate in the graph that is being traced."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.vectors: list[Any] = []
        """The reductions, one vector for each comparison."""

        self._known: dict[tuple[int, int], int] = {}
        self._held: list[Any] = []
        """What keeps the identities in use for as long as they are compared."""

    def tensors(self, outputs: Any) -> list[Any]:
        """
        Return the tensors of a call's outputs; a ragged or sparse tensor is split into its parts.
        """
        return [
            tensor
            for tensor in self.tf.nest.flatten(outputs, expand_composites=True)
            if self.tf.is_tensor(tensor)
        ]

    def each(self, reference: Any, candidate: Any) -> list[int | None]:
        """
        Return the numbers of the comparisons of the outputs of two calls: None for tensors of
        different shapes, and an empty list if the calls return different numbers of tensors.
        """
        pairs = self.tensors(reference), self.tensors(candidate)
        return (
            [
                self.number(reference_tensor, candidate_tensor)
                for reference_tensor, candidate_tensor in zip(*pairs)
            ]
            if len(pairs[0]) == len(pairs[1])
            else []
        )

    def widened(self, tensor: Any) -> Any:
        """Return a tensor in a dtype that NumPy has: narrower floats as float32."""
        is_narrow = tensor.dtype.is_floating and tensor.dtype.size < self.tf.float32.size
        return self.tf.cast(tensor, self.tf.float32) if is_narrow else tensor

    def number(self, reference: Any, candidate: Any) -> int | None:
        """Return the number of the comparison of two tensors; None if their shapes differ."""
        if not reference.shape.is_compatible_with(candidate.shape):
            return None
        key = (id(reference), id(candidate))
        if key not in self._known:  # a model returns the tensors of its last layer
            self.vectors.append(tensor_errors.compare_tensors(self.tf, reference, candidate))
            self._held += [reference, candidate]
            self._known[key] = len(self.vectors) - 1
        return self._known[key]
