"""
Two traced models kept in step, so that an activation is freed once it was compared and used.

Without it TensorFlow may run one model to its end before the other begins, and hold every
activation of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Sequence

    from .layer_hooks import Call

AHEAD = 2
"""
How many layers either model may run ahead of the comparisons: enough for two threads, and few
activations to hold.
"""

_NO_STEP = ("Const", "NoOp", "Placeholder", "ReadVariableOp")
"""Operations that wait for nothing: they make no activation, or are made once."""

_UNABLE = ("Enter", "Exit", "Merge", "NextIteration", "Switch")
"""Operations that belong to a loop or branch of TF 1."""


class Steps:
    """The calls of a reference that were compared, in their order; those that hold no others."""

    def __init__(self) -> None:
        self._done: list[tuple[Call, list[Any]]] = []

    def awaited(self, call: Call) -> list[Any]:
        """Return the operations that have to be done before the candidate makes a call."""
        return self._done[-AHEAD][1] if not call.children and len(self._done) >= AHEAD else []

    def compared(self, call: Call, vectors: Sequence[Any]) -> None:
        """Note that a call was compared, with what was measured of it."""
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
    """Let operations of a graph wait for others; those of loops cannot."""
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
