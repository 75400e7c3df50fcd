"""
What compares tensors of one trace: each pair of tensors once, with its row of the result; the
binary exponents of a tensor's values; extra batches, without those on which the reference itself
fails; and what keeps two traced models in step.

Without :class:`Steps`, TensorFlow may run one model to its end before the other begins, and hold
every activation of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import tensor_errors
from .tensor_errors import FIELDS

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sequence

    from ..feeding.batches import FedInputs
    from .layer_hooks import Call


class Comparisons:
    """Tensors of a reference and of a candidate in the graph that is being traced."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.vectors: list[Any] = []
        """The reductions, one vector for each comparison."""

        self._known: dict[tuple[int, int], int] = {}
        self._held: list[Any] = []
        """References to tensors, so that their ids are not reused while they are compared."""

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


def to_array(tensor: Any) -> Any:
    """Return a tensor in a dtype that NumPy computes well in: narrower floats as float32."""
    array = np.asarray(tensor)
    is_narrow = tensor.dtype.is_floating and tensor.dtype.size < np.dtype("float32").itemsize
    return array.astype("float32") if is_narrow else array


AHEAD = 2
"""
How many layers either model may run ahead of the comparisons: enough for two threads, and few
activations to hold.
"""

_NO_STEP = ("Const", "NoOp", "Placeholder", "ReadVariableOp")
"""Operations that do not have to wait, because they create no activation or run only once."""

_UNABLE = ("Enter", "Exit", "Merge", "NextIteration", "Switch")
"""Operations that belong to a loop or branch of TF 1."""


class Steps:
    """The compared calls of a reference that contain no other calls, in their order."""

    def __init__(self) -> None:
        self._done: list[tuple[Call, list[Any]]] = []

    def awaited(self, call: Call) -> list[Any]:
        """Return the operations that must finish before the candidate makes a call."""
        return self._done[-AHEAD][1] if not call.children and len(self._done) >= AHEAD else []

    def compared(self, call: Call, vectors: Sequence[Any]) -> None:
        """Record that a call was compared, with its measurements."""
        if not call.children:
            self._done.append((call, [vector.op for vector in vectors]))

    def hold(self, tf: Any, operations: Sequence[Any], end: int) -> None:
        """
        Let each layer of the reference wait until the layer ``AHEAD`` places before it was
        compared.

        ``end`` is the number of the reference's operations. The reference is traced first, when
        there is nothing to wait for. TensorFlow runs operations with side effects, such as
        assertions, in the order of the trace: those of the reference come first, and the operations
        before them cannot wait.
        """
        last = max(
            (
                place
                for place, operation in enumerate(operations[:end])
                if _has_effects(tf, operation)
            ),
            default=-1,
        )
        for (call, _), (_, done) in zip(self._done[AHEAD:], self._done):
            inside = set(operations[call.start : call.stop]) if call.start > last else set()
            wait(
                [
                    op
                    for op in inside
                    if op.type not in _NO_STEP
                    and any(tensor.op not in inside for tensor in op.inputs)
                ],
                done,
            )


def wait(operations: Sequence[Any], done: Sequence[Any]) -> None:
    """Make operations of a graph wait for others, except operations of loops, which cannot wait."""
    for operation in operations:
        if operation.type not in _UNABLE:
            operation._add_control_inputs(done)  # noqa: SLF001  # what was traced before cannot be made to wait in another way


def _has_effects(tf: Any, operation: Any) -> bool:
    """
    Return whether a function runs an operation in the order of its trace; one on a variable or a
    table is in order with others on the same alone.
    """
    return bool(operation.op_def.is_stateful) and not any(
        tensor.dtype == tf.resource for tensor in operation.inputs
    )


EXPONENT_BINS = 256
"""The exponents of float32 as its bits have them: 0 for zero, 255 for what is not finite."""

_BIAS = 127


def count_exponents(tf: Any, tensor: Any) -> Any:
    """
    Return the number of values for each exponent, as a float64 vector; within a ``tf.function``.

    Counted on the CPU: GPUs have no deterministic kernel for it.
    """
    bits = tf.bitcast(tf.cast(tf.stop_gradient(tensor), tf.float32), tf.int32)
    biased_exponents = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 23), 255)
    with tf.device("/CPU:0"):
        return tf.cast(
            tf.math.bincount(
                tf.reshape(biased_exponents, [-1]), minlength=EXPONENT_BINS, maxlength=EXPONENT_BINS
            ),
            tf.float64,
        )


def exponents_to_json(vector: Any) -> list[list[int]]:
    """Return the exponents of normal numbers in ascending order, each with its count."""
    counts = np.asarray(vector, "int64").tolist()
    return [
        [place - _BIAS, counts[place]] for place in range(1, EXPONENT_BINS - 1) if counts[place]
    ]


_NOT_FINITE = [FIELDS.index(name) for name in ("nan_reference", "infinite_reference")]


def measure_extremes(
    fed: FedInputs, usual: Any, run: Callable[[Any], Any], vectors: Callable[[Any], Any]
) -> Iterator[Any]:
    """
    Yield the result of ``run`` for each extra batch, and record in ``fed`` which batches were left
    out: those for which the reference has NaN or infinity in a tensor that is finite for the random
    batches.

    ``usual`` has a vector for each comparison over the random batches; ``vectors`` returns the same
    from a result of ``run``.
    """
    kept, dropped = [], []
    waiting = list(fed.extremes)
    while waiting:
        batch = waiting.pop(0)
        measurement = run(batch.tensors)
        if not is_worse(usual, vectors(measurement)):
            kept.append(batch)
            yield measurement
        elif batch.parts():
            waiting = [*batch.parts(), *waiting]
        else:
            dropped.append(batch)
    fed.keep_extremes(kept, dropped)


def is_worse(usual: Any, extra: Any) -> bool:
    """
    Return whether the reference has NaN or infinity in a tensor that is finite for random batches.

    If it has them for the random batches too, they belong to the model, such as the negative
    infinity of an attention mask.
    """
    before, after = (
        np.nan_to_num(np.asarray(vectors)[:, _NOT_FINITE]).sum(axis=1) for vectors in (usual, extra)
    )
    return bool(((before == 0) & (after > 0)).any())
