"""
Where the optimizer's state stands in a file, and what becomes of it when a loss-scaling wrapper is
put on or taken off.

Measured by saving, editing and loading with every release that is named: HDF5 holds the state of
the optimizer itself, wrapped or not. A ``.keras`` of Keras 3 holds the wrapper's own four variables
first, then the optimizer's, and those once more below ``inner_optimizer``. A ``.keras`` of Keras 2
holds the optimizer's alone, with a copy below ``inner_optimizer`` that TF 2.12 leaves incomplete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.edits import StateSlot
from policytool.migration.plan import Note, NoteSeverity
from policytool.migration.planning import optimizers
from policytool.model import optimizer_config
from policytool.releases.policy import Dynamic

if TYPE_CHECKING:
    from policytool.migration.planning.optimizers import Dialect
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json

OPTIMIZER: Final = "optimizer"
INNER: Final = (OPTIMIZER, "inner_optimizer", "vars")
OUTER: Final = (OPTIMIZER, "vars")

_OWN: Final = 4
"""
What Keras 3's LossScaleOptimizer keeps itself: iterations, learning rate, steps since the scale
last changed, the scale.
"""

_OTHERWISE: Final = frozenset({"Nadam", "Adafactor"})
"""
Optimizers of Keras 3 that save fewer variables when they are wrapped: their state fits no other
place, and Adafactor's fails to load there.
"""


def is_of_wrapper(loaded: LoadedModel) -> bool:
    """Return whether the state in a ``.keras`` is that of a wrapped optimizer."""
    return bool(variable_numbers(loaded, INNER))


def variable_numbers(loaded: LoadedModel, group: tuple[str, ...]) -> list[int]:
    """Return the numbers of the variables directly in a group, in order."""
    end = len(group)
    tensors = loaded.document.tensors or ()
    return sorted(
        int(tensor.path[end])
        for tensor in tensors
        if tensor.path[:end] == group and len(tensor.path) == end + 1 and tensor.path[end].isdigit()
    )


def move_state(
    loaded: LoadedModel, dialect: Dialect, before: Json, after: Json, *, leaves_scaled: bool
) -> tuple[StateSlot, ...] | None:
    """
    Return the optimizer's state in its new places; None where it stays.

    :param leaves_scaled: whether the model goes from mixed_float16 to another policy, for
        ``compile()`` wraps by itself under that one and saves the wrapper's state, although the
        config has the optimizer alone
    """
    outer, inner = variable_numbers(loaded, OUTER), variable_numbers(loaded, INNER)
    if loaded.document.format != "keras" or not outer:
        return None
    wraps, wrapped = (
        optimizer_config.is_wrapped(after),
        optimizer_config.is_wrapped(before) or (leaves_scaled and bool(inner)),
    )
    if wraps == wrapped or (wraps and inner):
        return None
    if dialect.keras3 and optimizer_config.class_of(after) in _OTHERWISE:
        return ()
    if wraps:
        own = _own_variables(after) if dialect.keras3 else ()
        there = [
            StateSlot(tensor=(*OUTER, str(len(own) + number)), source=(*OUTER, str(number)))
            for number in outer
        ]
        return (
            *own,
            *there,
            *(
                StateSlot(tensor=(*INNER, str(number)), source=(*OUTER, str(number)))
                for number in outer
            ),
        )
    skipped = _OWN if dialect.keras3 else 0
    return tuple(
        StateSlot(tensor=(*OUTER, str(position)), source=(*OUTER, str(number)))
        for position, number in enumerate(outer[skipped:])
    )


def notes(
    loaded: LoadedModel,
    dialect: Dialect,
    before: Json,
    after: Json,
    state: tuple[StateSlot, ...] | None,
) -> tuple[Note, ...]:
    """Return what loaders make of the state under another wrapper."""
    was, will = optimizer_config.is_wrapped(before), optimizer_config.is_wrapped(after)
    name = optimizer_config.class_of(after)
    found = []
    if state == ():
        message = (
            f"{name} saves a different number of variables when it is wrapped, so its state is "
            "omitted and training restarts with an empty state"
        )
        found.append(Note(severity=NoteSeverity.WARNING, code="optimizer-state", message=message))
    if loaded.document.format == "h5" and not dialect.keras3 and was != will:
        found.append(_about_hdf5(before, wraps=will))
    if loaded.is_saved_object and was != will:
        message = (
            "Keras never restores optimizer state from a SavedModel, so training restarts with "
            "empty slots, as it did before this change"
        )
        found.append(Note(severity=NoteSeverity.NOTE, code="optimizer-state", message=message))
    return tuple(found)


def about_bfloat16(loaded: LoadedModel, dialect: Dialect, value: Json) -> tuple[Note, ...]:
    """
    Return the warning for the one state that no loader reads: slots of bfloat16 variables, of an
    optimizer of the old kind, in HDF5.
    """
    if (
        loaded.document.format != "h5"
        or dialect.keras3
        or optimizer_config.is_new_style(optimizer_config.unwrap(value))
    ):
        return ()
    message = (
        "no release can read bfloat16 slots of a legacy optimizer from HDF5; load the model with "
        "compile=False and compile it again"
    )
    return (Note(severity=NoteSeverity.WARNING, code="optimizer-state", message=message),)


def _about_hdf5(before: Json, *, wraps: bool) -> Note:
    if wraps and optimizer_config.is_new_style(before):
        message = (
            "no release restores the state of LossScaleOptimizerV3 from HDF5, so training "
            "restarts with empty slots; use --keep optimizer to leave the optimizer unchanged"
        )
        return Note(severity=NoteSeverity.WARNING, code="optimizer-state", message=message)
    message = (
        "the optimizer state is unchanged: HDF5 stores the state of the inner optimizer, whether "
        "it is wrapped or not"
    )
    return Note(severity=NoteSeverity.NOTE, code="optimizer-state", message=message)


def _own_variables(value: Json) -> tuple[StateSlot, ...]:
    """Return a wrapper's own variables before its first step."""
    scale = optimizers.scale_of(value)
    initial = scale.initial if isinstance(scale, Dynamic) else Dynamic().initial
    fresh: tuple[tuple[str, float], ...] = (
        ("int64", 0),
        ("float32", 0.0),
        ("int64", 0),
        ("float32", initial),
    )
    return tuple(
        StateSlot(tensor=(*OUTER, str(number)), dtype=dtype, value=start)
        for number, (dtype, start) in enumerate(fresh)
    )
