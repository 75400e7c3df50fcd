"""
Variables of layers that a class of someone else's holds by its attributes, which no config lists.

Archives of both libraries have them by the attributes' names. A ``Model`` has an attribute of its
own, ``layers``, which lists all of them by class and count, and each stands where it is met first.
Keras 2 goes through the attributes backwards, so those whose names come after ``layers`` stand
below their names, and all others in the list; Keras 3 goes forwards, so it is the other way round
(``_walk_trackable`` in tf_keras/src/saving/saving_lib.py, ``_walk_saveable`` in
keras/src/saving/saving_lib.py).

Keras 3 tries both places when it loads, so it finds what Keras 2 wrote, unless a layer of one class
stands in the list and another below its name: Keras 3 counts both, Keras 2 only the former.
Keras 2 tries one place, so layers of Keras 3 move into the list (:mod:`._listing`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Layout
from policytool.migration.convert.architecture import below
from policytool.migration.convert.variables._listing import UnlistedError, list_layers
from policytool.model.tree import LAYERS
from policytool.releases import layer_classes
from policytool.releases.layer_variables import class_slots, plain
from policytool.releases.naming import snake_case
from policytool.releases.releases import is_since
from policytool.releases.variable_shapes import rank

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from policytool.formats.document import Tensor
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites import ConversionContext

    Within = tuple[str, ...]
    Pool = Mapping[tuple[Within, str], Tensor]
    """Variables by the attributes that lead to each, and its number."""

    Group = dict[tuple[Within, str], Tensor]

NAMED_SINCE: Final = "keras3.6"
"""The first release that writes a layer's name beside its ``vars``."""

_NESTED: Final = re.compile(r"container(?:_\d+)?")
_NUMBERED: Final = re.compile(r"(?P<base>.*?)(?:_\d+)?")
_ATTENTION: Final = frozenset({"query_dense", "key_dense", "value_dense", "output_dense"})
"""
What MultiHeadAttention holds its projections by: Keras 2 with an underscore before, Keras 3 with
one and without one.
"""


def crosses(context: ConversionContext) -> bool:
    """Return whether an archive of one library becomes one of the other."""
    return (
        context.crosses
        and context.target.container == "keras"
        and context.loaded.document.layout is Layout.OBJECT_PATHS
    )


def is_subclassed_model(unit: Unit) -> bool:
    """Return whether a unit is the whole model, and a class of someone else's makes its layers."""
    return unit.site == 0 and unit.custom and unit.network is None


def is_model(unit: Unit) -> bool:
    """
    Return whether a class of Keras 2 can be a model: its config has no ``trainable``, a layer's
    has.
    """
    return unit.custom and "trainable" not in unit.config


def objection(unit: Unit, pool: Pool, context: ConversionContext) -> str | None:
    """
    Return why variables of a class are not where the other library looks for them; None where they
    are.
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
        f"this file ({reason}); build the model from its class in the target and set the "
        "weights layer by layer"
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
    Return whether a conversion wrote an archive of Keras 3: it keeps the places of Keras 2, and
    knows no names of layers, which Keras 3.6 and later write.
    """
    return is_since(
        context.source_release, NAMED_SINCE
    ) and context.loaded.document.layer_names.keys() <= {""}


def _listed_in_keras2(unit: Unit, pool: Pool, context: ConversionContext) -> Pool:
    """Return variables of a subclassed model of Keras 3 by where Keras 2 lists its layers."""
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
    Return variables of a class by where the other library looks for them; a warning where Keras 3
    can list layers otherwise.
    """
    if not context.to_keras3:
        listed = _listed_in_keras2(unit, pool, context) if is_subclassed_model(unit) else pool
        return _places_in_keras2(listed)
    several = _repeated_class(pool) if is_model(unit) else None
    if several is not None:
        context.log.caution(
            "layer-order",
            unit,
            f"{unit.path} ({unit.class_name}) has several layers of the same class ({several}); "
            "if they are in a dict, Keras 3 uses their insertion order and Keras 2 the order of "
            "the sorted keys, so compare predictions",
        )
    return pool


def _repeated_class(pool: Pool) -> str | None:
    """
    Return the class, in snake case, of which a model of Keras 2 lists several layers; None for
    none.

    Of a dict, Keras 2 lists them in the order of the keys, Keras 3 in that of the items
    (``_DictWrapper._values`` in TensorFlow, ``Tracker`` in keras/src/utils/tracking.py).
    """
    listed = {path[1] for path, _ in pool if path[:1] == (LAYERS,) and len(path) > 1}
    found = Counter(map(_base, listed))
    return next((base for base, count in sorted(found.items()) if count > 1), None)


def _obstacle_of_counts(pool: Pool) -> str | None:
    levels = {path[: path.index(LAYERS)] for path, _ in pool if LAYERS in path}
    for level in sorted(levels):
        below = {
            (path[len(level) :], number): tensor
            for (path, number), tensor in pool.items()
            if path[: len(level)] == level
        }
        attribute = _attribute_without_count(below)
        if attribute is not None:
            where = "/".join((*level, attribute))
            return (
                f"has layers in {where} that may have the same class as other layers, and the "
                "file does not contain their order; build the model from its class in the "
                "target and set the weights layer by layer"
            )
    return None


def _places_in_keras2(pool: Pool) -> Pool:
    """Return variables of a class of Keras 3 by where Keras 2 looks for them."""
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
    Return the attribute of a model of Keras 2 whose layer can be of a class that is in its list;
    None where Keras 3 counts the list as Keras 2 does.
    """
    groups: defaultdict[str, Group] = defaultdict(dict)
    listed: defaultdict[str, Group] = defaultdict(dict)
    for (within, number), tensor in pool.items():
        if within[:1] == (LAYERS,) and len(within) > 1:
            listed[within[1]][within[2:], number] = tensor
        elif within:
            groups[within[0]][within[1:], number] = tensor
    by_class: defaultdict[str, list[Group]] = defaultdict(list)
    for name, group in listed.items():
        by_class[_base(name)].append(group)
    for attribute, group in groups.items():
        members = {_base(within[0]) for within, _ in group if within}
        if members & by_class.keys() or any(
            _can_be(base, group, alike) for base, alike in by_class.items()
        ):
            return attribute
    return None


def _base(name: str) -> str:
    match = _NUMBERED.fullmatch(name)
    return match["base"] if match is not None else name


def _can_be(base: str, group: Group, listed: Collection[Group]) -> bool:
    """Return whether variables can be those of a layer of a class that a list has members of."""
    own = next((name for name in layer_classes.builtin_classes() if snake_case(name) == base), None)
    every = class_slots(own) if own is not None else None
    if own is None or not every:
        names = {within[:1] for within, _ in group}
        return any(names & {within[:1] for within, _ in other} for other in listed)
    if not {(plain(within), int(number)) for within, number in group} <= every.keys():
        return False
    ranks = {len(other[(), "0"].shape or ()) for other in listed if ((), "0") in other}
    first = group.get(((), "0"))
    if first is None or not ranks or rank(own, every[(), 0]) is None:
        return True
    return len(first.shape or ()) in ranks
