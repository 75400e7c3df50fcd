"""
The places and names of variables in each container.

HDF5 files have a group for each layer of the root model, with the variables of all its descendants:
trainable variables first, then the others (``_legacy_weights`` in
keras/src/legacy/saving/legacy_h5_format.py of Keras 2 and 3). Releases use only this order.

``.keras`` archives store variables by the attributes that lead to them, and in lists by the class
in snake case and its count (keras/src/saving/saving_lib.py). Layers that were already stored are
skipped, so shared layers are only in their first place.

A holder is a layer with its variables, those of the layers that it creates, and its child layers.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.formats.edits import NewVariable
from policytool.migration.convert.architecture import Role
from policytool.model.tree import LAYERS
from policytool.model.tree.storage import DEPENDENCIES, VARS
from policytool.releases.keras_objects import snake_case
from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.target import Target
    from policytool.releases.layer_variables import VariableSlot


_CELL: Final = ("cell",)
"""
The path of an RNN's cell, which has the ``trainable`` of the RNN; the projections of a loaded
MultiHeadAttention do not have that of their layer (Keras 3.15).
"""

Named = tuple[str, "Holder", "Stored"]


def hdf5_weights(holder: Holder, target: Target) -> list[Named]:
    """Return a layer's variables with their names, in the order in which the target reads them."""
    if target.is_keras3:
        weights = sorted(
            _all_weights(holder, ()), key=lambda weight: holder.trainable and not weight[1]
        )  # stable: trainable variables come first
        return [named for named, _ in weights]
    return [*_trainable_weights(holder, ()), *_other_weights(holder, ())]


def _all_weights(holder: Holder, scopes: tuple[str, ...]) -> Iterator[tuple[Named, bool]]:
    """Yield variables in the order of ``Layer.weights`` in Keras 3, and whether each is trained."""
    for named in _own_weights(holder, scopes):
        slot = named[2].slot
        depends_on_layer = slot.within[:1] in {(), _CELL}
        yield named, slot.trainable and (holder.trainable or not depends_on_layer)
    for inner in holder.below:
        yield from _all_weights(inner, (*scopes, holder.name))


def tfjs_weights(holder: Holder, scopes: tuple[str, ...] = ()) -> Iterator[Named]:
    """
    Yield variables with their names in TensorFlow.js: they start with the name of the layer; among
    inner layers, only the directions of a Bidirectional add their names.
    """
    yield from (
        ("/".join((*scopes, stored.slot.name)), holder, stored)
        for stored in holder.own
        if not stored.is_in_parent
    )
    is_model = holder.unit.role is Role.MODEL and holder.unit.network is not None
    above = () if is_model else scopes
    adds_name = is_model or holder.unit.class_name == "Bidirectional"
    for inner in holder.below:
        yield from tfjs_weights(inner, (*above, inner.name) if adds_name else above)


def _own_weights(holder: Holder, scopes: tuple[str, ...]) -> list[Named]:
    return [
        ("/".join((*scopes, holder.name, *stored.slot.scopes, stored.slot.name)), holder, stored)
        for stored in holder.own
        if not stored.is_in_parent
    ]


def _trainable_weights(holder: Holder, scopes: tuple[str, ...]) -> list[Named]:
    """
    Return the ``trainable_weights`` of Keras 2: for a model, those of its layers; for a layer, its
    trainable variables and those of its inner layers.
    """
    if not holder.trainable:
        return []
    own_trainable = [named for named in _own_weights(holder, scopes) if named[2].slot.trainable]
    below = [
        named
        for inner in holder.below
        for named in _trainable_weights(inner, (*scopes, holder.name))
    ]
    return own_trainable + below


def _other_weights(holder: Holder, scopes: tuple[str, ...]) -> list[Named]:
    """Return the ``non_trainable_weights`` of Keras 2."""
    inner_scopes = (*scopes, holder.name)
    own_weights = _own_weights(holder, scopes)
    if holder.trainable:
        return [named for named in own_weights if not named[2].slot.trainable] + [
            named for inner in holder.below for named in _other_weights(inner, inner_scopes)
        ]
    if holder.unit.role is Role.MODEL:  # first the variables that would be trainable
        trainable = [
            named for inner in holder.below for named in _trainable_weights(inner, inner_scopes)
        ]
        return (
            trainable
            + own_weights
            + [named for inner in holder.below for named in _other_weights(inner, inner_scopes)]
        )
    return own_weights + [
        named
        for inner in holder.below
        for named in (
            *_trainable_weights(inner, inner_scopes),
            *_other_weights(inner, inner_scopes),
        )
    ]


_RENAMED_SINCE: Final = "tf2.15"


def archive_groups(
    path: tuple[str, ...], holder: Holder
) -> Iterator[tuple[tuple[str, ...], str | None]]:
    """
    Yield the ``vars`` group of a layer and of the layers that it creates, with their names. The
    file does not contain the names of layers in a custom class.

    Each layer has the group, even if it is empty, because TF 2.12 to 2.15 and tf_keras read it in
    each group (``H5IOStore.get``).
    """
    yield (*path, VARS), holder.name
    for stored in holder.own:
        for end in range(1, len(stored.slot.within) + 1):
            scopes = stored.slot.scopes
            yield (
                (*path, *stored.slot.within[:end], VARS),
                None
                if holder.unit.custom
                else scopes[end - 1]
                if end <= len(scopes)
                else holder.name,
            )


def archive_places(
    holder: Holder, target: Target, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Holder]]:
    """Yield each layer with its path, the model itself first."""
    yield path, holder
    old = not target.since(_RENAMED_SINCE)
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for inner in holder.below:
        if not inner.listed:
            yield from archive_places(inner, target, (*path, inner.attribute))
            continue
        container = DEPENDENCIES if old and inner.attribute == LAYERS else inner.attribute
        base = _base(inner.unit)
        number = used[container].get(base, 0)
        used[container][base] = number + (
            2 if container == DEPENDENCIES and inner.has_weights else 1
        )
        yield from archive_places(
            inner, target, (*path, container, f"{base}_{number}" if number else base)
        )


def _base(unit: Unit) -> str:
    """
    Return the name of a class in a list: functional models, ``Model`` or ``Network`` before TF 2.3,
    are ``Functional`` in all archives.
    """
    is_graph = unit.role is Role.MODEL and unit.network is not None and not unit.network.is_chain
    return snake_case("Functional" if is_graph and not unit.custom else unit.class_name)


class Stored(NewVariable, frozen=True, kw_only=True):
    """A variable of a layer of the target."""

    slot: VariableSlot
    is_in_parent: bool = False
    """Whether the parent layer has the variable too; HDF5 then stores it only in the parent."""


class Holder(Struct, frozen=True, kw_only=True):
    """A layer of the target's model."""

    unit: Unit
    name: str
    """The name of the built layer: with the prefix ``forward_`` in a Bidirectional."""

    attribute: str
    """The attribute of the parent that contains the layer."""

    listed: bool
    """Whether the attribute is a list, whose members are stored by class and count."""

    own: tuple[Stored, ...] = ()
    below: tuple[Holder, ...] = field(default=())

    @property
    def trainable(self) -> bool:
        """Whether the layer is not frozen."""
        return self.unit.config.get("trainable") is not False

    @property
    def has_weights(self) -> bool:
        """Whether the layer or any of its descendants has variables."""
        return bool(self.own) or any(holder.has_weights for holder in self.below)


def walk(holder: Holder) -> Iterator[Holder]:
    """Yield a holder and all its descendants."""
    spend(1, walk="holders of variables")
    yield holder
    for inner in holder.below:
        yield from walk(inner)
