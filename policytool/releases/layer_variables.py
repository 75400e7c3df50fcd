"""
The variables that layers of each release have, in the order and at the places in which files hold
them.

``data/layer_variables.json`` is what the releases' own layers had when they were built and saved
(``fixtures/layer_variables.py`` asks them, and explains it).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import data
from policytool.releases.layer_classes import layer_facts, layer_of_cell
from policytool.releases.releases import LOADERS, get, is_since

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SET: Final = "*"
"""Stands for every value that is no null."""

_ATTRIBUTE: Final = 3
"""Where a row has the attribute, if it is not the variable's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VariableSlot:
    """One variable of a class in a release."""

    name: str
    """As HDF5 has it, without scopes."""

    scopes: tuple[str, ...]
    """The names of what makes it, below the layer: ``("lstm_cell",)``."""

    within: tuple[str, ...]
    """The attributes that lead to what makes it: ``("cell",)``."""

    index: int | str
    """Its number in its object's ``vars``, or what the class calls it there."""

    attribute: str | None
    """What its object holds it by, which a SavedModel calls it; None where that is a list."""

    trainable: bool
    known_as: str
    """The name that it has in every release."""

    @property
    def key(self) -> tuple[tuple[str, ...], str]:
        """What tells it from others of its layer, in every release."""
        return plain(self.within), self.known_as


def plain(within: tuple[str, ...]) -> tuple[str, ...]:
    """
    Return attributes as every release has them: Keras 2's MultiHeadAttention has ``_query_dense``
    where Keras 3's has ``query_dense``.
    """
    return tuple(part.removeprefix("_") for part in within)


def slots(
    class_name: str, release: str, config: Mapping[str, object]
) -> tuple[VariableSlot, ...] | None:
    """
    Return the variables of a layer and of the sublayers that it creates itself, in HDF5's order;
    None for a class that the data does not know.
    """
    record = _record(class_name, _measured_release(release))
    if record is None:
        return _cell_slots(class_name, release, config)
    absent: set[int] = set()
    for condition, positions in record.get("absent", ()):
        if all(
            _matches_condition(config.get(key, record["unsaid"].get(key)), value)
            for key, value in condition.items()
        ):
            absent.update(positions)
    renamed = layer_facts(class_name).renamed_variables
    numbered_slots = _number_slots(
        [row for position, row in enumerate(record["slots"]) if position not in absent]
    )
    return tuple(
        replace(slot, known_as=renamed.get(slot.name, slot.name)) for slot in numbered_slots
    )


def class_slots(class_name: str) -> Mapping[tuple[tuple[str, ...], int | str], VariableSlot]:
    """
    Return the variables that layers of a class can have, whatever their configs say, by the
    attributes that lead to each, as every release has them, and its number.
    """
    records = data.read("layer_variables")["classes"].get(class_name, ())
    return {
        (plain(slot.within), slot.index): slot
        for record in reversed(records)
        for slot in _number_slots(record["slots"])
    }


def may_lack_variables(class_name: str, release: str) -> bool:
    """Return whether some config of a class leaves out all variables that its layers can have."""
    record = _record(class_name, _measured_release(release))
    if record is None or not record["slots"]:
        return False
    absent = {position for _, positions in record.get("absent", ()) for position in positions}
    return len(absent) == len(record["slots"])


def _cell_slots(
    class_name: str, release: str, config: Mapping[str, object]
) -> tuple[VariableSlot, ...] | None:
    """Return a cell's variables: those of the layer that makes it."""
    layer = layer_of_cell(class_name)
    layer_slots = slots(layer, release, config) if layer is not None else None
    return (
        None
        if layer_slots is None
        else tuple(
            replace(slot, scopes=(), within=()) for slot in layer_slots if slot.within == ("cell",)
        )
    )


def _matches_condition(value: object, condition: str) -> bool:
    return (
        value is not None
        if condition == _SET
        else (value is None or isinstance(value, bool | str)) and json.dumps(value) == condition
    )


def _number_slots(rows: Sequence[Sequence[Any]]) -> tuple[VariableSlot, ...]:
    """
    Return slots, numbered within each object: its trainable variables first, as
    ``Layer.save_own_variables`` has them.
    """
    counts: dict[str, int] = {}
    numbers: dict[int, int] = {}
    for position, row in sorted(enumerate(rows), key=lambda pair: (not pair[1][2], pair[0])):
        numbers[position] = counts.get(row[1], 0)
        counts[row[1]] = numbers[position] + 1
    return tuple(
        VariableSlot(
            name=row[0].rpartition("/")[2],
            scopes=tuple(row[0].split("/")[:-1]),
            within=tuple(part for part in row[1].split("/") if part),
            index=numbers[position],
            attribute=row[_ATTRIBUTE] if len(row) > _ATTRIBUTE else row[0].rpartition("/")[2],
            trainable=bool(row[2]),
            known_as=row[0].rpartition("/")[2],
        )
        for position, row in enumerate(rows)
    )


def _record(class_name: str, release: str) -> dict[str, Any] | None:
    records = data.read("layer_variables")["classes"].get(class_name, ())
    exact_record = next((record for record in records if release in record["releases"]), None)
    if exact_record is not None or release not in LOADERS:
        return exact_record
    later = [
        name
        for name in LOADERS
        if is_since(name, release) and get(name).family == get(release).family
    ]  # TF 2.1 has layers that were measured in 2.4
    return next(
        (record for name in later for record in records if name in record["releases"]), None
    )


@cache
def _measured_release(release: str) -> str:
    """
    Return the newest measured release that is no newer than this one; the oldest one for Keras 2.3
    and older.
    """
    measured_releases: list[str] = data.read("layer_variables")["releases"]
    if release not in LOADERS:
        return measured_releases[0]
    return next(
        (name for name in reversed(measured_releases) if is_since(release, name)),
        measured_releases[0],
    )
