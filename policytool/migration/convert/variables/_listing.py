"""
Where Keras 2 lists the layers that a subclassed model of Keras 3 holds in attributes.

Keras 3 stores layers below the names of attributes that come before ``layers``, and Keras 2 lists
those by class and count, in the order in which the model set them. The file says neither class nor
order, but the names of the layers: Keras makes a default name of the class, and numbers the names
of a class in the order in which its layers were made. Shapes and places have to agree with the
class.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from policytool.model.tree import LAYERS, NOT_WEIGHTS
from policytool.releases.layer_classes import builtin_classes, layer_facts
from policytool.releases.layer_variables import (
    class_slots,
    may_lack_variables,
    plain,
    slots,
)
from policytool.releases.naming import snake_case
from policytool.releases.releases import release_name
from policytool.releases.variable_shapes import agree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.document import Tensor

    Within = tuple[str, ...]
    Pool = Mapping[tuple[Within, str], Tensor]

_DEFAULT_NAME: Final = re.compile(
    r"(?P<base>[a-z][a-z0-9]*(?:_[a-z][a-z0-9]*)*)(?:_(?P<number>[1-9]\d*))?"
)
_ABSTRACT: Final = frozenset({"functional", "layer", "model"})
"""What Keras calls objects whose class the name does not say, or whose layers have an order."""


class UnlistedError(Exception):
    """The file does not say where Keras 2 lists a layer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """Where Keras 2 has the layers of a model."""

    places: Mapping[Within, Within]
    """By the place in an archive of Keras 3."""

    assumed: tuple[str, ...]
    """The names of layers whose class or order no file says."""

    def move(self, within: Within) -> Within:
        """Return the place of a variable in an archive of Keras 2."""
        for end in range(1, len(within) + 1):
            if within[:end] in self.places:
                return (*self.places[within[:end]], *within[end:])
        return within


@dataclass(frozen=True, kw_only=True, slots=True)
class _StoredLayer:
    path: Within
    name: str
    variables: Mapping[tuple[Within, int], Tensor]

    @property
    def is_in_list(self) -> bool:
        """Whether an attribute holds it among others."""
        return len(self.path) > 1

    @property
    def variable_places(self) -> frozenset[tuple[Within, int]]:
        """Where its variables are below it."""
        return frozenset(self.variables)


def list_layers(pool: Pool, names: Mapping[str, str], release: str) -> Listing:
    """
    Return where Keras 2 lists the layers of a model.

    :param names: the names of layers by their places
    :param release: a release of Keras 2
    :raises UnlistedError: if the file does not say it
    """
    layers = tuple(_layers(pool, names))
    _check_places(pool, layers)
    by_class: defaultdict[str, list[_StoredLayer]] = defaultdict(list)
    for layer in layers:
        base = _class_of(layer, layers, release)
        if base is not None:
            by_class[base].append(layer)
    places: dict[Within, Within] = {}
    assumed: list[str] = []
    for base, members in by_class.items():
        ordered = _in_order(members, names)
        if len(ordered) > 1 or base not in _builtin():
            assumed += [one.name for one in ordered]
        for number, one in enumerate(ordered):
            places[one.path] = (LAYERS, f"{base}_{number}" if number else base)
    return Listing(places=places, assumed=tuple(assumed))


def _layers(pool: Pool, names: Mapping[str, str]) -> Iterator[_StoredLayer]:
    """Yield the layers that the model itself holds, those without variables too."""
    paths = {tuple(place.split("/")) for place in names if place}
    for path in sorted(paths):
        if path[0] in NOT_WEIGHTS or any(path[:end] in paths for end in range(1, len(path))):
            continue
        yield _StoredLayer(
            path=path,
            name=names["/".join(path)],
            variables={
                (plain(within[len(path) :]), int(number)): tensor
                for (within, number), tensor in pool.items()
                if within[: len(path)] == path
            },
        )


def _check_places(pool: Pool, layers: Sequence[_StoredLayer]) -> None:
    """Raise if variables are in no layer, or in a list that Keras 2 has below attributes."""
    known = {layer.path for layer in layers}
    for within, _ in pool:
        if within and not any(within[:end] in known for end in range(1, len(within) + 1)):
            raise UnlistedError(f"the name of {'/'.join(within)} is unknown")
        if within[:1] == (LAYERS,):
            raise UnlistedError(f"the attribute name of {'/'.join(within[:2])} is unknown")


def _class_of(layer: _StoredLayer, layers: Sequence[_StoredLayer], release: str) -> str | None:
    """
    Return a layer's class in snake case; None for a layer that has no variables and does not count.
    """
    base, _ = _parts(layer)
    class_name = _builtin().get(base or "")
    if not layer.variables:
        return base if class_name is not None and may_lack_variables(class_name, release) else None
    if base is None or base in _ABSTRACT:
        raise UnlistedError(f"the name of {_label(layer)} does not contain its class")
    if class_name is not None:
        if slots(class_name, release, {}) is None and not layer_facts(class_name).holds:
            raise UnlistedError(
                f"{_label(layer)} is a {class_name}, which {release_name(release)} does not have"
            )
        if not _fits(class_name, layer.variables):
            raise UnlistedError(f"{_label(layer)} does not have the variables of a {class_name}")
        return base
    if not layer.is_in_list:
        _check_own_class(layer, base, layers)
    return base


def _check_own_class(layer: _StoredLayer, base: str, layers: Sequence[_StoredLayer]) -> None:
    """Raise if a name that is no class of Keras may be one that a user gave."""
    alike = [
        one
        for one in layers
        if one is not layer and one.variables and one.variable_places == layer.variable_places
    ]
    numbered = [one for one in alike if _parts(one)[0] == base]
    if len(numbered) < len(alike) or any(LAYERS in within for within, _ in layer.variables):
        raise UnlistedError(f"the class of {_label(layer)} is unknown")
    if numbered:
        return
    others = (one for one in layers if one is not layer)
    named_by_keras = all(_parts(one)[0] in _builtin() for one in others)
    may_be_builtin = any(_fits(name, layer.variables) for name in _builtin().values())
    if may_be_builtin or not named_by_keras:
        raise UnlistedError(f"the class of {_label(layer)} is unknown")


def _parts(layer: _StoredLayer) -> tuple[str | None, int | None]:
    """
    Return a layer's class in snake case and its number among those of its class, as far as its
    place and its default name say them.
    """
    match = _DEFAULT_NAME.fullmatch(layer.name)
    base = match["base"] if match is not None else None
    number = int(match["number"] or 0) if match is not None else None
    if not layer.is_in_list:
        return base, number
    place = _DEFAULT_NAME.fullmatch(layer.path[-1])
    listed = place["base"] if place is not None else None
    return listed, number if base == listed else None


def _in_order(members: Sequence[_StoredLayer], names: Mapping[str, str]) -> list[_StoredLayer]:
    """Return layers of one class in the order of Keras 2."""
    if len(members) == 1:
        return list(members)
    if len({one.path[:-1] for one in members}) == 1 and members[0].is_in_list:
        return sorted(members, key=_place_in_list)
    numbers = {one.path: _parts(one)[1] for one in members}
    base = _parts(members[0])[0]
    every = [
        int(match["number"] or 0)
        for name in names.values()
        if (match := _DEFAULT_NAME.fullmatch(name)) is not None and match["base"] == base
    ]
    known = [number for number in numbers.values() if number is not None]
    is_run = len(set(every)) == len(every) == max(every, default=0) - min(every, default=0) + 1
    if len(known) < len(members) or not is_run:
        raise UnlistedError(f"the order of {', '.join(_label(one) for one in members)} is unknown")
    return sorted(members, key=lambda one: numbers[one.path] or 0)


def _place_in_list(layer: _StoredLayer) -> int:
    match = _DEFAULT_NAME.fullmatch(layer.path[-1])
    return int(match["number"] or 0) if match is not None else 0


def _fits(class_name: str, variables: Mapping[tuple[Within, int], Tensor]) -> bool:
    """Return whether variables can be those of a layer of a class of Keras."""
    facts = layer_facts(class_name)
    if facts.holds:
        held = {(attribute,) for attribute in facts.holds.values()}
        return {within[:1] for within, _ in variables} <= held
    every = class_slots(class_name)
    return variables.keys() <= every.keys() and agree(
        class_name, ((every[key], tensor.shape or ()) for key, tensor in variables.items())
    )


@cache
def _builtin() -> Mapping[str, str]:
    """Return the classes of Keras by their names in snake case."""
    return {snake_case(name): name for name in builtin_classes()}


def _label(layer: _StoredLayer) -> str:
    return f"{'/'.join(layer.path)} ({layer.name})"
