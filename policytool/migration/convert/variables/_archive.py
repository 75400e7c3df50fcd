"""
Where a ``.keras`` archive has variables: by the attributes that lead to them, and in lists by the
snake-cased class and its count.

keras/src/saving/saving_lib.py: what was met before is passed over, so that shared layers stand at
their first place.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role
from policytool.model.tree import LAYERS
from policytool.releases.naming import snake_case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.target import Target
    from policytool.migration.convert.variables._holders import Holder

_OLD_LAYERS: Final = "_layer_checkpoint_dependencies"
"""
What TF 2.12 to 2.14 call the container of a model's layers: a dict that has each layer, and those
with weights twice.
"""

_RENAMED_SINCE: Final = "tf2.15"
VARS: Final = "vars"
_FUNCTIONAL: Final = "Functional"


def places(root: Holder, target: Target) -> Iterator[tuple[tuple[str, ...], Holder]]:
    """Yield each layer with its path, the model itself first."""
    yield from _places(root, (), target)


def groups(path: tuple[str, ...], holder: Holder) -> Iterator[tuple[tuple[str, ...], str | None]]:
    """
    Yield the ``vars`` of a layer and of those that it makes, with their names, which the file does
    not say of layers that a class of someone else's holds.

    Each has one, if it holds nothing: TF 2.12 to 2.15 and tf_keras look for it in every group that
    they find (``H5IOStore.get``).
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


def _places(
    holder: Holder, path: tuple[str, ...], target: Target
) -> Iterator[tuple[tuple[str, ...], Holder]]:
    yield path, holder
    old = not target.since(_RENAMED_SINCE)
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for inner in holder.below:
        if not inner.listed:
            yield from _places(inner, (*path, inner.attribute), target)
            continue
        container = _OLD_LAYERS if old and inner.attribute == LAYERS else inner.attribute
        base = _base(inner.unit)
        number = used[container].get(base, 0)
        used[container][base] = number + (
            2 if container == _OLD_LAYERS and inner.has_weights else 1
        )
        yield from _places(
            inner, (*path, container, f"{base}_{number}" if number else base), target
        )


def _base(unit: Unit) -> str:
    """
    Return the word for a class in a list: functional models, ``Model`` or ``Network`` before TF
    2.3, are ``Functional`` in all archives.
    """
    is_graph = unit.role is Role.MODEL and unit.network is not None and not unit.network.is_chain
    return snake_case(_FUNCTIONAL if is_graph and not unit.custom else unit.class_name)
