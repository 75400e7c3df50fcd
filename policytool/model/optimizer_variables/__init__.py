"""
A stored optimizer's variables: which is which slot of which weight.

HDF5 names them by their weights, archives and standalone Keras number them. ``_kinds`` is what each
optimizer keeps and in which order, :mod:`policytool.model.trainable_weights` the weights that it
trains, ``_reading`` joins both with what a file stores.
"""

from policytool.model.optimizer_variables._kinds import (
    ALWAYS_IN_NEW,
    ITERATIONS,
    RATE,
    SCHEDULE,
    WITH_SCHEDULE,
    Position,
    SlotKind,
    Style,
    StyledOptimizer,
    blocks,
    is_in_use,
    positions,
)
from policytool.model.optimizer_variables._reading import (
    OptimizerState,
    read_optimizer,
    read_state,
)

__all__ = [
    "ALWAYS_IN_NEW",
    "ITERATIONS",
    "RATE",
    "SCHEDULE",
    "WITH_SCHEDULE",
    "OptimizerState",
    "Position",
    "SlotKind",
    "Style",
    "StyledOptimizer",
    "blocks",
    "is_in_use",
    "positions",
    "read_optimizer",
    "read_state",
]
