"""
Variables that lie otherwise in the source, as ``Unit.layout`` has them: which stored tensors make
each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats.document import Tensor
from policytool.formats.new_model import Assembly

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.variables._sources import Key
    from policytool.releases.layer_variables import VariableSlot


def assemble(
    unit: Unit, wanted: tuple[VariableSlot, ...], pool: dict[Key, Tensor | Assembly]
) -> dict[Key, Tensor | Assembly]:
    """
    Return what makes each variable of a layer that has a layout, by its key, and take that out of
    ``pool``; nothing where a part is missing.
    """
    found: dict[Key, Tensor | Assembly] = {}
    for slot in wanted:
        recipe = unit.layout.get(slot.name)
        if recipe is None:
            continue
        keys = [_key(part, pool) for part in recipe.parts]
        tensors = [pool[key] for key in keys if key is not None]
        parts = tuple(
            tensor for tensor in tensors if isinstance(tensor, Tensor) and tensor.shape is not None
        )
        if len(parts) != len(recipe.parts):
            continue
        for key in keys:
            if key is not None:
                pool.pop(key, None)
        found[slot.key] = (
            parts[0]
            if recipe.only_renames
            else Assembly(parts=parts, reshape=recipe.reshape, axes=recipe.axes, flip=recipe.flip)
        )
    return found


def _key(part: str, pool: dict[Key, Tensor | Assembly]) -> Key | None:
    """
    Return the one key whose name is a part's, with the layer's name before it or without; None
    where there is none, or several.
    """
    fitting = [key for key in pool if key[1] == part or key[1].endswith(f"_{part}")]
    return fitting[0] if len(fitting) == 1 else None


def shape_of(assembly: Assembly) -> tuple[int, ...]:
    """Return the shape of what an assembly makes."""
    shapes = []
    for part in assembly.parts:
        shape = assembly.reshape or part.shape or ()
        shapes.append(tuple(shape[axis] for axis in assembly.axes) if assembly.axes else shape)
    return (*shapes[0][:-1], sum(shape[-1] for shape in shapes)) if len(shapes) > 1 else shapes[0]
