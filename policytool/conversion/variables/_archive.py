"""
Where a ``.keras`` archive has variables: by the attributes that lead to them, and in lists by the snake-cased class and its count.

keras/src/saving/saving_lib.py: what was met before is passed over, so that shared layers stand at their first place.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from policytool.naming import snake_case
from policytool.tree import LAYERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.conversion.target import Target
    from policytool.conversion.variables._holders import Holder, Stored

_OLD_LAYERS: Final = "_layer_checkpoint_dependencies"
"""What TF 2.12 to 2.14 call the container of a model's layers: a dict that has each layer, and those with weights twice."""

_RENAMED_SINCE: Final = "tf2.15"
VARS: Final = "vars"


def places(root: Holder, target: Target) -> Iterator[tuple[tuple[str, ...], Holder, Stored]]:
    """Yield each variable with its path and the layer that has it."""
    yield from _places(root, (), target)


def _places(holder: Holder, path: tuple[str, ...], target: Target) -> Iterator[tuple[tuple[str, ...], Holder, Stored]]:
    for stored in holder.own:
        yield (*path, *stored.slot.within, VARS, str(stored.slot.index)), holder, stored
    old = not target.since(_RENAMED_SINCE)
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for inner in holder.below:
        if not inner.listed:
            yield from _places(inner, (*path, inner.attribute), target)
            continue
        container = _OLD_LAYERS if old and inner.attribute == LAYERS else inner.attribute
        base = snake_case(inner.unit.class_name)
        number = used[container].get(base, 0)
        used[container][base] = number + (2 if container == _OLD_LAYERS and inner.has_weights else 1)
        yield from _places(inner, (*path, container, f"{base}_{number}" if number else base), target)
