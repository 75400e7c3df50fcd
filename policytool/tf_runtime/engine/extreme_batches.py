"""Runs the extra batches, and leaves out those on which the reference itself fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .tensor_errors import FIELDS

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ..feeding.batches import FedInputs

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
