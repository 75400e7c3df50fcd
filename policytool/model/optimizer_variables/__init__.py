"""
The stored variables of an optimizer, with the weight and the slot of each.

HDF5 names them after their weights; archives and standalone Keras number them. This module reads
them from a file for the weights that the optimizer trains
(:mod:`policytool.model.optimizer_config`). :mod:`policytool.model.optimizer_variables.slots` has
the variables of each optimizer and their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.model import optimizer_config
from policytool.model.optimizer_config import UnmappedError
from policytool.model.optimizer_variables.slots import (
    ALWAYS_IN_NEW,
    INNER,
    ITERATIONS,
    OUTER,
    RATE,
    SCHEDULE,
    WITH_SCHEDULE,
    Path,
    Position,
    SlotKind,
    Style,
    StyledOptimizer,
    is_in_use,
    positions,
    slot_blocks,
)
from policytool.model.tree import STATE
from policytool.releases import keras_objects, known_arguments
from policytool.releases.releases import KERAS2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.document import Tensor
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json

_STEPS: Final = frozenset({"iter", "iteration", "iterations"})
_CACHE: Final = "momentum_cache"
"""The name of Nadam's momentum product in the old style."""

OWN: Final = 4
_LAST_OWN: Final = "dynamic_scale"
"""
The number of variables that the LossScaleOptimizer of Keras 3 stores before those of the optimizer,
and the last of them in HDF5: iterations, learning rate, steps since the last change of the scale,
and the scale.
"""

_STANDALONE: Final = "keras"
_WITH_UNUSED: Final = "Adam"
"""The optimizer with an unused number for each weight if amsgrad is off, in Keras 2.1 to 2.3."""


class OptimizerState(Struct, frozen=True, kw_only=True):
    """The stored variables of an optimizer by their role."""

    iterations: Tensor | None
    """None if not stored: some optimizers of Keras 2.0 to 2.2 restart their count at 0."""

    rate: Tensor | None = None
    schedule: Tensor | None = None
    slots: Mapping[tuple[Tensor, str], Tensor] = field(default_factory=dict)
    """The slots by weight and kind."""

    own: tuple[Tensor, ...] = ()
    """The variables of a Keras 3 wrapper itself, in order."""


def read_optimizer(loaded: LoadedModel, value: Json) -> StyledOptimizer | None:
    """
    Return the serialised optimizer of a file without wrappers; None if there is no optimizer.

    A plain name means the default config of the release that wrote the file.

    :raises SpellingError: for a format that no release writes.
    """
    class_and_config = optimizer_config.innermost(value)
    if class_and_config is None:
        return None
    class_name, config = class_and_config
    inner = optimizer_config.unwrap(value)
    if isinstance(inner, str):
        config = known_arguments.default_config("optimizers", class_name, loaded.origins[-1].id)
        inner = keras_objects.short(class_name, config)
    of_keras2 = Style.NEW if optimizer_config.is_new_style(inner) else Style.OLD
    return StyledOptimizer(
        class_name=class_name,
        config=dict(config),
        style=Style.KERAS3 if loaded.is_keras3 else of_keras2,
    )


def read_state(
    loaded: LoadedModel, optimizer: StyledOptimizer, trainable: Sequence[Tensor]
) -> OptimizerState | None:
    """
    Return the variables of a file's optimizer; None if it has none, or if the model was saved
    before training created the slots.

    :raises UnmappedError: if the weight of a variable is not certain.
    """
    document, writer = loaded.document, loaded.origins[-1]
    if _lacks_slots(loaded, optimizer, trainable):
        return None
    if document.format == "keras":
        return _state_in_archive(loaded, optimizer, trainable)
    if not document.state:
        return None
    if document.format == "orbax":
        return _state_by_path(loaded, optimizer, trainable)
    if optimizer.style is Style.KERAS3:
        return _state_of_keras3(loaded, optimizer, trainable)
    if writer.family == KERAS2 and writer.library == _STANDALONE:
        return _state_of_standalone(loaded, optimizer, trainable)
    return _state_by_name(optimizer, document.state, trainable)


def _lacks_slots(
    loaded: LoadedModel, optimizer: StyledOptimizer, trainable: Sequence[Tensor]
) -> bool:
    """Return whether the stored state has only counts and rates, and slots are expected."""
    stored = loaded.document.state or [
        tensor for tensor in loaded.document.tensors or () if tensor.path[0] == STATE
    ]
    return not any(tensor.shape for tensor in stored) and any(
        position.shape
        for position in positions(optimizer, _shapes(trainable), loaded.origins[-1].id)
    )


def _state_in_archive(
    loaded: LoadedModel, optimizer: StyledOptimizer, trainable: Sequence[Tensor]
) -> OptimizerState | None:
    """Return the state in an archive, whose variables have only numbers."""
    groups: dict[Path, dict[int, Tensor]] = {}
    for tensor in loaded.document.tensors or ():
        if tensor.path[0] == STATE and tensor.path[-1].isdigit():
            groups.setdefault(tensor.path[:-1], {})[int(tensor.path[-1])] = tensor
    variables = groups.get(INNER) or groups.get((STATE, "_optimizer", "vars")) or groups.get(OUTER)
    if not variables:
        return None
    is_wrapped = loaded.is_keras3 and INNER in groups
    wrapper_variables = groups.get(OUTER, {}) if is_wrapped else {}
    expected_positions = positions(
        optimizer, _shapes(trainable), loaded.origins[-1].id, is_wrapped=is_wrapped
    )
    return _state_by_position(
        optimizer,
        [variables[number] for number in sorted(variables)],
        expected_positions,
        trainable,
        own=[wrapper_variables[number] for number in sorted(wrapper_variables)][:OWN],
    )


def _state_by_path(
    loaded: LoadedModel, optimizer: StyledOptimizer, trainable: Sequence[Tensor]
) -> OptimizerState:
    """
    Return the state in an Orbax checkpoint, in which the name of a slot consists of the path of the
    weight and the kind: ``mlp_hidden_kernel_momentum``.
    """
    stored = {tensor.path[-1]: tensor for tensor in loaded.document.state}
    expected = positions(optimizer, _shapes(trainable), loaded.origins[-1].id)
    names = [
        _OWN_NAMES.get(position.kind, position.kind)
        if position.weight is None
        else "_".join((*trainable[position.weight].path, position.kind))
        for position in expected
    ]
    missing = next((name for name in names if name not in stored), None)
    if missing is not None or len(stored) != len(names):
        raise UnmappedError(
            f"its {len(stored)} variables do not match the state of {optimizer.class_name} for "
            f"{len(trainable)} trainable weights"
        )
    return _state_by_position(optimizer, [stored[name] for name in names], expected, trainable)


_OWN_NAMES: Final = {ITERATIONS: "iteration"}
"""The names of variables that differ from their kinds."""


def _state_of_keras3(
    loaded: LoadedModel, optimizer: StyledOptimizer, trainable: Sequence[Tensor]
) -> OptimizerState:
    """
    Return the state in HDF5 of Keras 3. Variables are in the order of their names, which contain
    the names of the weights: ``sequential_dense_kernel_momentum``.
    """
    stored = loaded.document.state
    has_own = len(stored) > OWN and stored[OWN - 1].path[-1] == _LAST_OWN
    own_variables = stored[: OWN * has_own]
    expected_positions = positions(
        optimizer, _shapes(trainable), loaded.origins[-1].id, is_wrapped=has_own
    )
    state = _state_by_position(
        optimizer, stored[len(own_variables) :], expected_positions, trainable, own=own_variables
    )
    for (weight, kind), tensor in state.slots.items():
        name = "_".join(("", *"/".join(tensor.path[1:]).split("/")))
        if not name.endswith("_".join(("", *"/".join(weight.path[1:]).split("/"), kind))):
            raise UnmappedError(
                f"expected the {kind} of {'/'.join(weight.path)}, found {'/'.join(tensor.path)}"
            )
    return state


def _state_of_standalone(
    loaded: LoadedModel, optimizer: StyledOptimizer, trainable: Sequence[Tensor]
) -> OptimizerState:
    """
    Return the state that standalone Keras 2 stores as ``Variable_7``: ``weights`` of each class in
    its ``optimizers.py``.

    SGD stores momentum slots even if its momentum is 0. Before Keras 2.3, RMSprop, Adagrad and
    Adadelta store no step count, and Nadam no momentum product.
    """
    config = {**optimizer.config, "momentum": True}
    expected_positions = [
        position
        for position in positions(
            StyledOptimizer(class_name=optimizer.class_name, config=config, style=Style.OLD)
            if optimizer.class_name == "SGD"
            else optimizer,
            _shapes(trainable),
            loaded.origins[-1].id,
        )
        if position.weight is not None
    ]
    stored, count = loaded.document.state, len(trainable)
    surplus_count = len(stored) - len(expected_positions)
    if optimizer.class_name == _WITH_UNUSED and surplus_count > count:
        unused = stored[len(stored) - count :]
        if all(tensor.shape == (1,) for tensor in unused):
            stored, surplus_count = stored[: len(stored) - count], surplus_count - count
    head = [Position(ITERATIONS), Position(SCHEDULE)][: max(surplus_count, 0)]
    return _state_by_position(optimizer, stored, [*head, *expected_positions], trainable)


def _state_by_position(
    optimizer: StyledOptimizer,
    stored: Sequence[Tensor],
    expected_positions: Sequence[Position],
    trainable: Sequence[Tensor],
    own: Sequence[Tensor] = (),
) -> OptimizerState:
    """Return a state whose variables are in the order of the release."""
    if len(stored) != len(expected_positions) or any(
        tensor.shape != position.shape
        for tensor, position in zip(stored, expected_positions, strict=False)
    ):
        raise UnmappedError(
            f"its {len(stored)} variables do not match the state of {optimizer.class_name} for "
            f"{len(trainable)} trainable weights"
        )
    placed = list(zip(expected_positions, stored, strict=True))
    single_variables = {
        position.kind: tensor for position, tensor in placed if position.weight is None
    }
    return OptimizerState(
        iterations=single_variables.get(ITERATIONS),
        rate=single_variables.get(RATE),
        schedule=single_variables.get(SCHEDULE),
        slots={
            (trainable[position.weight], position.kind): tensor
            for position, tensor in placed
            if position.weight is not None
        },
        own=tuple(own),
    )


def _state_by_name(
    optimizer: StyledOptimizer, stored: Sequence[Tensor], trainable: Sequence[Tensor]
) -> OptimizerState:
    """Return the state in HDF5 of tf.keras, whose variable names contain those of the weights."""
    by_end: dict[Path, list[Tensor]] = {}
    for tensor in stored:
        plain_path = tuple(
            part.removesuffix(":0") for part in tensor.path if part != "optimizer_weights"
        )
        for start in range(len(plain_path)):
            by_end.setdefault(plain_path[start:], []).append(tensor)
    steps = [tensor for tensor in stored if tensor.path[-1].removesuffix(":0") in _STEPS]
    if len(steps) != 1:
        raise UnmappedError("no variable could be identified as the step count")
    slots = {}
    for weight in trainable:
        name = tuple(part.removesuffix(":0") for part in weight.path[1:])
        for slot in (slot for block in slot_blocks(optimizer) for slot in block):
            shape = weight.shape or ()
            if not slot.is_factor_of(shape):
                continue
            matches = by_end.get(_end(optimizer.style, slot, name), [])
            if len(matches) != 1 or matches[0].shape != slot.shape(shape):
                raise UnmappedError(
                    f"no variable could be identified as the {slot.kind} of {'/'.join(weight.path)}"
                )
            slots[weight, slot.kind] = matches[0]
    if len(set(slots.values())) != len(slots):
        raise UnmappedError("one of its variables matches several weights")
    return OptimizerState(
        iterations=steps[0], schedule=next(iter(by_end.get((_CACHE,), [])), None), slots=slots
    )


def _end(style: Style, slot: SlotKind, name: Path) -> Path:
    """Return the end of a variable's name: the slot after or before the name of the weight."""
    called = str(slot.name(style))
    return (*name, called) if style is Style.OLD else (called, *name)


def _shapes(weights: Sequence[Tensor]) -> list[tuple[int, ...]]:
    return [weight.shape or () for weight in weights]


__all__ = [
    "ALWAYS_IN_NEW",
    "INNER",
    "ITERATIONS",
    "OUTER",
    "OWN",
    "RATE",
    "SCHEDULE",
    "WITH_SCHEDULE",
    "OptimizerState",
    "Position",
    "SlotKind",
    "Style",
    "StyledOptimizer",
    "is_in_use",
    "positions",
    "read_optimizer",
    "read_state",
    "slot_blocks",
]
