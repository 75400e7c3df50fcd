"""
Variables of layers in attributes of a custom class, which are not in any config.

Archives of both libraries store them by attribute name. A ``Model`` also has the attribute
``layers``, which lists all layers by class and count; each layer is stored in its first place.
Keras 2 traverses the attributes backwards, so attributes whose names come after ``layers`` are
stored under their names, and all others in the list. Keras 3 traverses them forwards, so the
reverse is true (``_walk_trackable`` in tf_keras/src/saving/saving_lib.py, ``_walk_saveable`` in
keras/src/saving/saving_lib.py).

Keras 3 reads both places, so it finds the layers of Keras 2, unless layers of the same class are in
the list and under an attribute: Keras 3 counts both, Keras 2 only the former. Keras 2 reads one
place, so layers of Keras 3 move to the list.

Keras 3 stores layers under the names of attributes that come before ``layers``. Keras 2 lists these
layers by class and count, in the order in which the model set them. The file contains neither class
nor order, but the names of the layers: Keras creates a default name from the class, and numbers the
names of a class in the order in which its layers were created. Shapes and places must match the
class.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats.document import Layout
from policytool.migration.convert.architecture import below
from policytool.migration.plan import COPY_WEIGHTS
from policytool.model.tree import LAYERS, NOT_WEIGHTS
from policytool.releases import layer_classes
from policytool.releases.keras_objects import snake_case
from policytool.releases.layer_classes import builtin_classes, layer_facts
from policytool.releases.layer_variables import (
    agree,
    class_slots,
    may_lack_variables,
    plain,
    rank,
    slots,
)
from policytool.releases.releases import is_since, release_name
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from policytool.formats.document import Tensor
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites import ConversionContext

    Within = tuple[str, ...]
    Pool = Mapping[tuple[Within, str], Tensor]
    """Variables by the path of attributes and the number of each."""
    Group = dict[tuple[Within, str], Tensor]
    from collections.abc import Iterator, Mapping, Sequence


_DEFAULT_NAME: Final = re.compile(
    r"(?P<base>[a-z][a-z0-9]*(?:_[a-z][a-z0-9]*)*)(?:_(?P<number>[1-9]\d*))?"
)
_ABSTRACT: Final = frozenset({"functional", "layer", "model"})
"""Default names that do not determine the class, or whose objects contain ordered layers."""


class UnlistedError(Exception):
    """The file does not determine the place of a layer in the list of Keras 2."""


class Listing(Struct, frozen=True, kw_only=True):
    """The places of a model's layers in Keras 2."""

    places: Mapping[Within, Within]
    """The places in an archive of Keras 2, by the place in an archive of Keras 3."""

    assumed: tuple[str, ...]
    """The names of layers whose class or order is assumed, because the file lacks it."""

    def move(self, within: Within) -> Within:
        """Return the place of a variable in an archive of Keras 2."""
        for end in range(1, len(within) + 1):
            if within[:end] in self.places:
                return (*self.places[within[:end]], *within[end:])
        return within


class _StoredLayer(Struct, frozen=True, kw_only=True):
    path: Within
    name: str
    variables: Mapping[tuple[Within, int], Tensor]

    @property
    def is_in_list(self) -> bool:
        """Whether the layer is in an attribute with several layers."""
        return len(self.path) > 1

    @property
    def variable_places(self) -> frozenset[tuple[Within, int]]:
        """The places of the layer's variables, relative to the layer."""
        return frozenset(self.variables)


def list_layers(pool: Pool, names: Mapping[str, str], release: str) -> Listing:
    """
    Return the places in which Keras 2 lists the layers of a model.

    :param names: the names of layers, by place
    :param release: a release of Keras 2
    :raises UnlistedError: if the file does not determine the places
    """
    layers = tuple(_layers(pool, names))
    _check_places(pool, layers)
    by_class = group_pairs(
        (base, layer) for layer in layers if (base := _class_of(layer, layers, release)) is not None
    )
    place_by_path: dict[Within, Within] = {}
    assumed: list[str] = []
    for base, members in by_class.items():
        ordered = _in_order(members, names)
        if len(ordered) > 1 or base not in _builtin():
            assumed += [member.name for member in ordered]
        for number, member in enumerate(ordered):
            place_by_path[member.path] = (LAYERS, f"{base}_{number}" if number else base)
    return Listing(places=place_by_path, assumed=tuple(assumed))


def _layers(pool: Pool, names: Mapping[str, str]) -> Iterator[_StoredLayer]:
    """Yield the direct layers of the model, including layers without variables."""
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
    Return a layer's class in snake case; None for a layer without variables that is not counted.
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
    """Raise an error if a name that is not a Keras class may be a user's layer name."""
    similar_layers = [
        other
        for other in layers
        if other is not layer and other.variables and other.variable_places == layer.variable_places
    ]
    numbered = [other for other in similar_layers if _parts(other)[0] == base]
    if len(numbered) < len(similar_layers) or any(
        LAYERS in within for within, _ in layer.variables
    ):
        raise UnlistedError(f"the class of {_label(layer)} is unknown")
    if numbered:
        return
    others = (other for other in layers if other is not layer)
    named_by_keras = all(_parts(other)[0] in _builtin() for other in others)
    may_be_builtin = any(_fits(name, layer.variables) for name in _builtin().values())
    if may_be_builtin or not named_by_keras:
        raise UnlistedError(f"the class of {_label(layer)} is unknown")


def _parts(layer: _StoredLayer) -> tuple[str | None, int | None]:
    """
    Return a layer's class in snake case and its number within the class, from its place and its
    default name; None for unknown parts.
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
    if len({member.path[:-1] for member in members}) == 1 and members[0].is_in_list:
        return sorted(members, key=_place_in_list)
    numbers = {member.path: _parts(member)[1] for member in members}
    base = _parts(members[0])[0]
    numbered = [
        int(match["number"] or 0)
        for name in names.values()
        if (match := _DEFAULT_NAME.fullmatch(name)) is not None and match["base"] == base
    ]
    known = [number for number in numbers.values() if number is not None]
    is_run = (
        len(set(numbered))
        == len(numbered)
        == max(numbered, default=0) - min(numbered, default=0) + 1
    )
    if len(known) < len(members) or not is_run:
        raise UnlistedError(
            f"the order of {', '.join(_label(member) for member in members)} is unknown"
        )
    return sorted(members, key=lambda member: numbers[member.path] or 0)


def _place_in_list(layer: _StoredLayer) -> int:
    match = _DEFAULT_NAME.fullmatch(layer.path[-1])
    return int(match["number"] or 0) if match is not None else 0


def _fits(class_name: str, variables: Mapping[tuple[Within, int], Tensor]) -> bool:
    """Return whether the variables can belong to a layer of a Keras class."""
    facts = layer_facts(class_name)
    if facts.holds:
        attributes = {(attribute,) for attribute in facts.holds.values()}
        return {within[:1] for within, _ in variables} <= attributes
    slots_of_class = class_slots(class_name)
    return variables.keys() <= slots_of_class.keys() and agree(
        class_name, ((slots_of_class[key], tensor.shape or ()) for key, tensor in variables.items())
    )


@cache
def _builtin() -> Mapping[str, str]:
    """Return the classes of Keras by their names in snake case."""
    return {snake_case(name): name for name in builtin_classes()}


def _label(layer: _StoredLayer) -> str:
    return f"{'/'.join(layer.path)} ({layer.name})"


NAMED_SINCE: Final = "keras3.6"
"""The first release that writes a layer's name beside its ``vars``."""

_NESTED: Final = re.compile(r"container(?:_\d+)?")
_NUMBERED: Final = re.compile(r"(?P<base>.*?)(?:_\d+)?")
_ATTENTION: Final = frozenset({"query_dense", "key_dense", "value_dense", "output_dense"})
"""
The attributes of MultiHeadAttention with its projections: Keras 2 has them with a leading
underscore, Keras 3 with and without.
"""


def crosses(context: ConversionContext) -> bool:
    """Return whether an archive of one library is converted to an archive of the other."""
    return (
        context.crosses
        and context.target.container == "keras"
        and context.loaded.document.layout is Layout.OBJECT_PATHS
    )


def is_subclassed_model(unit: Unit) -> bool:
    """Return whether a unit is the whole model, and a custom class creates its layers."""
    return unit.site == 0 and unit.custom and unit.network is None


def is_model(unit: Unit) -> bool:
    """
    Return whether a class of Keras 2 may be a model: configs of layers have ``trainable``, configs
    of models do not.
    """
    return unit.custom and "trainable" not in unit.config


def objection(unit: Unit, pool: Pool, context: ConversionContext) -> str | None:
    """
    Return why the variables of a class are not in the places that the other library reads; None if
    they are.
    """
    if context.to_keras3:
        return _obstacle_of_counts(pool) if is_model(unit) else None
    within = {path for path, _ in pool}
    if any(_NESTED.fullmatch(name) for path in within for name in path):
        return "has layers in nested lists, which Keras 2 neither stores nor loads"
    if is_subclassed_model(unit):
        reason = _reason_against_listing(unit, pool, context)
    else:
        reason = "its class may be a model" if any(LAYERS in path[:1] for path in within) else None
    if reason is None:
        return None
    return (
        "is a model with layers in attributes, whose names in the target cannot be derived from "
        f"this file ({reason}); {COPY_WEIGHTS}"
    )


def _reason_against_listing(unit: Unit, pool: Pool, context: ConversionContext) -> str | None:
    """Return why Keras 2 would not find the layers of a subclassed model; None if it does."""
    if not any(within for within, _ in pool) or _is_laid_out_as_keras2(context):
        return None
    names = context.loaded.document.layer_names
    if not names:
        return "it does not contain layer names"
    try:
        listing = list_layers(pool, names, context.target.loader)
    except UnlistedError as error:
        return str(error)
    if listing.assumed and any(below(unit)):
        return "the model receives layers as arguments, and their order is unknown"
    return None


def _is_laid_out_as_keras2(context: ConversionContext) -> bool:
    """
    Return whether a conversion wrote an archive of Keras 3: conversions keep the places of Keras 2,
    and do not write the names of layers, as Keras 3.6 and later do.
    """
    return is_since(
        context.source_release, NAMED_SINCE
    ) and context.loaded.document.layer_names.keys() <= {""}


def _move_to_keras2_places(unit: Unit, pool: Pool, context: ConversionContext) -> Pool:
    """
    Return the variables of a subclassed Keras 3 model under the places in which Keras 2 lists
    its layers, and log a caution if the file does not determine the places.
    """
    if not any(within for within, _ in pool) or _is_laid_out_as_keras2(context):
        return pool
    names = context.loaded.document.layer_names
    listing = list_layers(pool, names, context.target.loader)
    if listing.assumed:
        context.log.caution(
            "layer-order",
            unit,
            f"{unit.path} ({unit.class_name}) stores {', '.join(listing.assumed)} in attributes, "
            f"and {context.target.name} finds them only if they have default names and the "
            "model creates them in this order; compare predictions",
        )
    return {(listing.move(within), number): tensor for (within, number), tensor in pool.items()}


def across_archives(unit: Unit, pool: Pool, context: ConversionContext) -> Pool:
    """
    Return the variables of a class by the places that the other library reads. Log a warning if
    Keras 3 may list the layers in another order.
    """
    if not context.to_keras3:
        listed = _move_to_keras2_places(unit, pool, context) if is_subclassed_model(unit) else pool
        return _places_in_keras2(listed)
    repeated_class = _repeated_class(pool) if is_model(unit) else None
    if repeated_class is not None:
        context.log.caution(
            "layer-order",
            unit,
            f"{unit.path} ({unit.class_name}) has several layers of the same class "
            f"({repeated_class}); if they are in a dict, Keras 3 uses their insertion order and "
            "Keras 2 the order of the sorted keys, so compare predictions",
        )
    return pool


def _repeated_class(pool: Pool) -> str | None:
    """
    Return a class, in snake case, of which a Keras 2 model lists several layers; None if no class
    has several.

    Keras 2 lists the layers of a dict in the order of its keys, Keras 3 in the order of its items
    (``_DictWrapper._values`` in TensorFlow, ``Tracker`` in keras/src/utils/tracking.py).
    """
    listed = {path[1] for path, _ in pool if path[:1] == (LAYERS,) and len(path) > 1}
    counts = Counter(map(_base, listed))
    return next((base for base, count in sorted(counts.items()) if count > 1), None)


def _obstacle_of_counts(pool: Pool) -> str | None:
    """
    Return why the file does not determine the order of layers of the same class; None if it does.
    """
    levels = {path[: path.index(LAYERS)] for path, _ in pool if LAYERS in path}
    for level in sorted(levels):
        below = {
            (path[len(level) :], number): tensor
            for (path, number), tensor in pool.items()
            if path[: len(level)] == level
        }
        attribute = _attribute_without_count(below)
        if attribute is not None:
            place = "/".join((*level, attribute))
            return (
                f"has layers in {place} that may have the same class as other layers, and the "
                f"file does not contain their order; {COPY_WEIGHTS}"
            )
    return None


def _places_in_keras2(pool: Pool) -> Pool:
    """
    Return the variables of a Keras 3 class by the places that Keras 2 reads: the attributes of a
    MultiHeadAttention, which a layer with all of them is, have a leading underscore in Keras 2.
    """
    below: dict[Within, set[str]] = defaultdict(set)
    for path, _ in pool:
        for end, name in enumerate(path):
            below[path[:end]].add(name)
    return {
        (
            tuple(
                f"_{name}" if name in _ATTENTION and below[path[:end]] >= _ATTENTION else name
                for end, name in enumerate(path)
            ),
            number,
        ): tensor
        for (path, number), tensor in pool.items()
    }


def _attribute_without_count(pool: Pool) -> str | None:
    """
    Return the attribute of a Keras 2 model whose layer may have the class of a listed layer; None
    if there is none, so that Keras 3 numbers the listed layers as Keras 2 does.
    """
    groups: defaultdict[str, Group] = defaultdict(dict)
    listed: defaultdict[str, Group] = defaultdict(dict)
    for (within, number), tensor in pool.items():
        if within[:1] == (LAYERS,) and len(within) > 1:
            listed[within[1]][within[2:], number] = tensor
        elif within:
            groups[within[0]][within[1:], number] = tensor
    by_class = group_pairs((_base(name), group) for name, group in listed.items())
    for attribute, group in groups.items():
        members = {_base(within[0]) for within, _ in group if within}
        if members & by_class.keys() or any(
            _can_be(base, group, listed_groups) for base, listed_groups in by_class.items()
        ):
            return attribute
    return None


def _base(name: str) -> str:
    match = _NUMBERED.fullmatch(name)
    return match["base"] if match is not None else name


def _can_be(base: str, group: Group, listed: Collection[Group]) -> bool:
    """Return whether variables may belong to a layer of a class that a list contains."""
    class_name = next(
        (name for name in layer_classes.builtin_classes() if snake_case(name) == base), None
    )
    slots_of_class = class_slots(class_name) if class_name is not None else None
    if class_name is None or not slots_of_class:
        names = {within[:1] for within, _ in group}
        return any(names & {within[:1] for within, _ in other} for other in listed)
    if not {(plain(within), int(number)) for within, number in group} <= slots_of_class.keys():
        return False
    ranks = {len(other[(), "0"].shape or ()) for other in listed if ((), "0") in other}
    first = group.get(((), "0"))
    if first is None or not ranks or rank(class_name, slots_of_class[(), 0]) is None:
        return True
    return len(first.shape or ()) in ranks
