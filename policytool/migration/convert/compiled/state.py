"""
The optimizer's variables: which belongs to which weight in the source, and where the target
restores them.

Every optimizer keeps the count of steps, in Keras 3 the learning rate where it is no schedule, and
then its slots in blocks, each of which goes over all trainable weights. HDF5 names them by their
weights, archives number them in the order of the target's trainable variables. The order of slots
is that in which ``build`` (``_create_slots`` in the old style) of each class makes them, read from
files that TF 2.4, 2.15, tf_keras 2.21, Keras 3.0 and 3.15 wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.formats.new_model import Placement
from policytool.migration.convert.compiled.optimizer import ConvertedOptimizer, Style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.formats.document import Tensor
    from policytool.migration.convert.rewrites import ConversionContext

Path = tuple[str, ...]

OPTIMIZER: Final = "optimizer"
_OUTER: Final[Path] = (OPTIMIZER, "vars")
_INNER: Final[Path] = (OPTIMIZER, "inner_optimizer", "vars")
_STORED: Final = "optimizer_weights"
_ITERATIONS: Final = frozenset({"iter", "iteration", "iterations"})


class UnmappedError(Exception):
    """A state that is not known to fit; the message says why."""


@dataclass(frozen=True, slots=True)
class SourceSlot:
    """A kind of variable that an optimizer keeps for each weight."""

    kind: str
    """Its name in Keras 3."""

    old: str | None
    """In the old style; None where the old style has no such optimizer."""

    new: str | None
    """In Keras 2 since TF 2.11."""

    block: int = 0
    """Those of one block stand together for each weight."""

    needs: str | None = None
    """The key of the config that it is kept for."""


_ADAM: Final = (
    SourceSlot("momentum", "m", "m"),
    SourceSlot("velocity", "v", "v"),
    SourceSlot("velocity_hat", "vhat", "vhat", 1, "amsgrad"),
)
_SLOTS: Final[dict[str, tuple[SourceSlot, ...]]] = {
    "SGD": (SourceSlot("momentum", "momentum", "m", 0, "momentum"),),
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "RMSprop": (
        SourceSlot("velocity", "rms", "velocity"),
        SourceSlot("momentum", "momentum", "momentum", 1, "momentum"),
        SourceSlot("average_gradient", "mg", "average_gradient", 2, "centered"),
    ),
    "Adagrad": (SourceSlot("accumulator", "accumulator", "accumulator"),),
    "Adadelta": (
        SourceSlot("accumulated_grad", "accum_grad", "accumulated_grad"),
        SourceSlot("accumulated_delta_var", "accum_var", "accumulated_delta_var"),
    ),
    "Adamax": (SourceSlot("momentum", "m", "m"), SourceSlot("norm", "v", "u")),
    "Ftrl": (
        SourceSlot("accumulator", "accumulator", "accumulator"),
        SourceSlot("linear", "linear", "linear"),
    ),
    "Lion": (SourceSlot("momentum", None, "m"),),
    "Lamb": (SourceSlot("momentum", None, None), SourceSlot("velocity", None, None)),
}
_AVERAGE: Final = SourceSlot("average", None, "average", -2, "use_ema")
_GATHERED: Final = SourceSlot("gradient_accumulator", None, None, -1, "gradient_accumulation_steps")
_TOGETHER_IN_OLD: Final = frozenset({"Ftrl"})
"""
The optimizer of the old style that makes all slots of a weight at once; the others make one kind
for all weights, then the next.
"""

_ALWAYS_IN_NEW: Final = frozenset({"SGD"})
"""The optimizer that Keras 2 gives its slots since TF 2.11 without a use for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """An optimizer's variables by what they are."""

    iterations: Tensor
    rate: Tensor | None
    slots: dict[tuple[Tensor, str], Tensor]
    """By weight and kind."""

    own: tuple[Tensor, ...] = ()
    """What a wrapper of Keras 3 keeps itself, in order."""


def blocks(optimizer: ConvertedOptimizer) -> tuple[tuple[SourceSlot, ...], ...]:
    """
    Return the slots that an optimizer keeps, in blocks.

    :raises UnmappedError: for an optimizer whose variables are not one for each weight and kind.
    """
    every = _SLOTS.get(optimizer.class_name)
    if every is None:
        raise UnmappedError(
            f"{optimizer.class_name} keeps its state in no form that is the same in all releases"
        )
    kept = [slot for slot in (_AVERAGE, _GATHERED, *every) if _keeps(optimizer, slot)]
    if optimizer.style is Style.OLD and optimizer.class_name not in _TOGETHER_IN_OLD:
        return tuple((slot,) for slot in kept)
    return tuple(
        tuple(slot for slot in kept if slot.block == block)
        for block in sorted({slot.block for slot in kept})
    )


def _keeps(optimizer: ConvertedOptimizer, slot: SourceSlot) -> bool:
    if _name(optimizer.style, slot) is None:
        return False
    if slot.needs is None or (
        optimizer.style is Style.NEW and optimizer.class_name in _ALWAYS_IN_NEW and slot.block >= 0
    ):
        return True
    return bool(optimizer.config.get(slot.needs))


def _name(style: Style, slot: SourceSlot) -> str | None:
    return slot.kind if style is Style.KERAS3 else slot.new if style is Style.NEW else slot.old


def read(
    situation: ConversionContext, optimizer: ConvertedOptimizer, trainable: Sequence[Tensor]
) -> State | None:
    """
    Return the source's state; None where it has none.

    :raises UnmappedError: where it is not certain what belongs to which weight.
    """
    document = situation.loaded.document
    if document.format == "keras":
        return _state_by_number(situation, optimizer, trainable)
    return _state_by_name(optimizer, document.state, trainable) if document.state else None


def _state_by_number(
    situation: ConversionContext, optimizer: ConvertedOptimizer, trainable: Sequence[Tensor]
) -> State | None:
    groups: dict[Path, dict[int, Tensor]] = {}
    for tensor in situation.loaded.document.tensors or ():
        if tensor.path[0] == OPTIMIZER and tensor.path[-1].isdigit():
            groups.setdefault(tensor.path[:-1], {})[int(tensor.path[-1])] = tensor
    found = (
        groups.get(_INNER) or groups.get((OPTIMIZER, "_optimizer", "vars")) or groups.get(_OUTER)
    )
    if not found:
        return None
    order = [found[number] for number in sorted(found)]
    has_rate = _has_rate(optimizer)
    wanted = [
        (weight, slot.kind) for block in blocks(optimizer) for weight in trainable for slot in block
    ]
    stored = order[1 + has_rate :]
    if len(stored) != len(wanted) or any(
        tensor.shape != weight.shape for tensor, (weight, _) in zip(stored, wanted, strict=False)
    ):
        raise UnmappedError(
            f"its {len(stored)} variables are not those of {optimizer.class_name} for the model's "
            f"{len(trainable)} trainable weights"
        )
    own = groups.get(_OUTER, {}) if situation.from_keras3 and _INNER in groups else {}
    return State(
        iterations=order[0],
        rate=order[1] if has_rate else None,
        slots=dict(zip(wanted, stored, strict=True)),
        own=tuple(own[number] for number in sorted(own))[:4],
    )


def _state_by_name(
    optimizer: ConvertedOptimizer, stored: Sequence[Tensor], trainable: Sequence[Tensor]
) -> State:
    """Return the state in HDF5, whose names end in those of the weights."""
    by_end: dict[Path, list[Tensor]] = {}
    for tensor in stored:
        plain = tuple(part.removesuffix(":0") for part in tensor.path if part != _STORED)
        for start in range(len(plain)):
            by_end.setdefault(plain[start:], []).append(tensor)
    steps = [tensor for tensor in stored if tensor.path[-1].removesuffix(":0") in _ITERATIONS]
    if len(steps) != 1:
        raise UnmappedError("it does not say which of its variables counts the steps")
    slots = {}
    for weight in trainable:
        name = tuple(part.removesuffix(":0") for part in weight.path[1:])
        for slot in (slot for block in blocks(optimizer) for slot in block):
            found = by_end.get(_end(optimizer.style, slot, name), [])
            if len(found) != 1 or found[0].shape != weight.shape:
                raise UnmappedError(
                    f"it has no variable that is the {slot.kind} of {'/'.join(weight.path)} and of "
                    "no other weight"
                )
            slots[weight, slot.kind] = found[0]
    if len(set(slots.values())) != len(slots):
        raise UnmappedError("one of its variables would belong to several weights")
    return State(iterations=steps[0], rate=None, slots=slots)


def _end(style: Style, slot: SourceSlot, name: Path) -> Path:
    if style is Style.KERAS3:
        return (f"{'_'.join(name)}_{slot.kind}",)
    return (*name, str(slot.old)) if style is Style.OLD else (str(slot.new), *name)


def _has_rate(optimizer: ConvertedOptimizer) -> bool:
    return optimizer.style is Style.KERAS3 and not isinstance(
        optimizer.config.get("learning_rate"), dict
    )


def place_state(
    optimizer: ConvertedOptimizer, found: State, weights: Sequence[Placement]
) -> list[Placement]:
    """
    Return the target's variables of the optimizer itself in order, each with a path of one part:
    its name in HDF5.

    :raises UnmappedError: where the target keeps what the source has not.
    """
    head = [
        _from(
            found.iterations,
            "iteration:0" if optimizer.style is Style.NEW else f"{optimizer.class_name}/iter:0",
        )
    ]
    if _has_rate(optimizer):
        head.append(_rate(optimizer, found))
    slots = [(weight, slot) for block in blocks(optimizer) for weight in weights for slot in block]
    return [*head, *(_slot(optimizer, found, weight, slot) for weight, slot in slots)]


def _slot(
    optimizer: ConvertedOptimizer, found: State, weight: Placement, slot: SourceSlot
) -> Placement:
    name = "/".join(weight.path[1:]).removesuffix(":0")
    called = _name(optimizer.style, slot)
    path = (
        f"{optimizer.class_name}/{name}/{called}:0"
        if optimizer.style is Style.OLD
        else f"{optimizer.class_name}/{called}/{name}:0"
    )
    source = found.slots.get((weight.source, slot.kind)) if weight.source is not None else None
    if source is not None:
        return _from(source, path)
    if optimizer.class_name in _ALWAYS_IN_NEW and not optimizer.config.get("momentum"):
        return Placement(path=(path,), shape=weight.shape, dtype=weight.dtype, fill=(0.0,))
    raise UnmappedError(f"it has no {slot.kind}, which {optimizer.class_name} keeps there")


def _from(source: Tensor, name: str) -> Placement:
    return Placement(path=(name,), shape=source.shape or (), dtype=source.dtype, source=source)


def _rate(optimizer: ConvertedOptimizer, found: State) -> Placement:
    if found.rate is not None:
        return _from(found.rate, "learning_rate")
    rate = optimizer.config.get("learning_rate")
    if not isinstance(rate, int | float):
        raise UnmappedError("its learning rate is not known")
    return Placement(path=("learning_rate",), shape=(), dtype="float32", fill=(float(rate),))
