"""
Which stored tensor of the source is which variable of a layer.

A variable that lies otherwise in the source, as ``Unit.layout`` has it, is made of several tensors.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Tensor
from policytool.formats.edits import Assembly
from policytool.migration.convert.architecture import walk
from policytool.model.tree import NOT_WEIGHTS
from policytool.releases.layer_classes import layer_facts
from policytool.releases.layer_variables import plain, slots

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.releases.layer_variables import VariableSlot

Key = tuple[tuple[str, ...], str]


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
        keys = [_layout_key(part, pool) for part in recipe.parts]
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


def _layout_key(part: str, pool: dict[Key, Tensor | Assembly]) -> Key | None:
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


_STACK: Final = "StackedRNNCells"
_SEEDS: Final = ("seed_generator", "random_generator")
"""What holds the state of random numbers, which every loader makes anew."""


@dataclass(frozen=True)
class Sources:
    """The stored tensors of one file, by layer."""

    context: ConversionContext
    root: Unit

    @cached_property
    def claimed_sites(self) -> frozenset[int]:
        """
        The sites that units of the model stand for, and their like in the backward direction of a
        Bidirectional, which has no unit; of a wrapper that its layer has taken the place of, too.
        """
        found = set(self._units)
        loaded = self.context.loaded
        for site, below in tuple(loaded.children.items()):
            directions = {loaded.sites[child].attribute: child for child in below}
            if {"forward_layer", "backward_layer"} <= directions.keys():
                pairs = zip(
                    loaded.below(directions["forward_layer"]),
                    loaded.below(directions["backward_layer"]),
                    strict=False,
                )
                found |= {backward for forward, backward in pairs if forward in found}
                found.add(site)
            elif not found.isdisjoint(below):
                facts = layer_facts(loaded.sites[site].class_name)
                found |= {site} if facts.wraps == "kernel" else set()
        return frozenset(found)

    def of(self, site: int) -> Mapping[Key, Tensor]:
        """
        Return the tensors of a layer and of the layers that it makes by itself, by what they are in
        every release.
        """
        loaded = self.context.loaded
        config = loaded.sites[site].config or {}
        plain = (
            loaded.layers[site].quantization is None
        )  # a quantised layer has other variables, which are taken as they stand
        known = (
            slots(loaded.sites[site].class_name, self.context.source_release, config)
            if plain
            else None
        ) or ()
        found: dict[Key, Tensor] = {}
        for within, name, tensor in (
            *self._named_variables(site, ()),
            *self._stack_variables(site),
        ):
            if not any(seed in part for part in within for seed in _SEEDS):
                found[_key(known, within, name)] = tensor
        return found

    def of_archive(self) -> Mapping[Key, Tensor]:
        """
        Return all tensors of an archive that are not the optimizer's, by where they are in it.
        """
        return {
            (tensor.path[:-2], tensor.path[-1]): tensor
            for tensor in self.context.loaded.document.tensors or ()
            if tensor.path[0] not in NOT_WEIGHTS
            and not any(seed in part for part in tensor.path for seed in _SEEDS)
        }

    def of_twin(self, site: int) -> Mapping[Key, Tensor]:
        """
        Return the tensors of the layer that an archive of Keras 3 has in another model of the same
        file: one that is shared is written where it is met first.

        Its config is written in both, and no release finds it there twice (``_save_state`` in
        keras/src/saving/saving_lib.py).
        """
        own = self._units.get(site)
        if own is None:
            return {}
        for other in self._stored_sites.get((own.name, own.class_name), ()):
            if other != site and self._units[other].config == own.config:
                return self.of(other)
        return {}

    @cached_property
    def _units(self) -> Mapping[int, Unit]:
        return {unit.site: unit for unit in walk(self.root) if unit.site is not None}

    @cached_property
    def _stored_sites(self) -> Mapping[tuple[str, str], Sequence[int]]:
        """The sites with stored tensors, by the name and class of the layer."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for site, unit in self._units.items():
            if self.of(site):
                found[unit.name, unit.class_name].append(site)
        return found

    def _stack_variables(self, site: int) -> Iterator[tuple[tuple[str, ...], str, Tensor]]:
        """
        Yield the variables of a cell that are stored with the stack that holds it, as Keras 2.0 to
        2.3 do: the second kernel is ``kernel_1``.
        """
        loaded, release = self.context.loaded, self.context.source_release
        stack = loaded.sites[site].parent
        if stack is None or loaded.sites[stack].class_name != _STACK:
            return
        placed = loaded.placed
        stored = {
            variable.name: tensor
            for variable, tensor in zip(
                placed.variables.get(stack, ()), placed.sources.get(stack, ()), strict=True
            )
        }
        cells = loaded.children[stack]
        names = [
            [
                slot.name
                for slot in slots(
                    loaded.sites[cell].class_name, release, loaded.sites[cell].config or {}
                )
                or ()
            ]
            for cell in cells
        ]
        number = cells.index(site)
        for name in names[number]:
            count = sum(name in before for before in names[:number])
            tensor = stored.get(f"{name}_{count}" if count else name)
            if tensor is not None:
                yield (), name, tensor

    def _named_variables(
        self, site: int, within: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], str, Tensor]]:
        placed = self.context.loaded.placed
        if self.context.loaded.sites[site].class_name == _STACK:
            return
        for variable, tensor in zip(
            placed.variables.get(site, ()), placed.sources.get(site, ()), strict=True
        ):
            *above, name = variable.name.split("/")
            if not above and site not in self._known_sites:
                above = self._scopes(site, tensor)
            yield (*within, *above), name, tensor
        for child in self.context.loaded.children[site]:
            if child not in self.claimed_sites:
                yield from self._named_variables(
                    child, (*within, *self.context.loaded.sites[child].attribute.split("/"))
                )

    @cached_property
    def _known_sites(self) -> frozenset[int]:
        """The sites of classes whose variables are known."""
        sites, release = self.context.loaded.sites, self.context.source_release
        return frozenset(
            index
            for index, site in enumerate(sites)
            if slots(site.class_name, release, site.config or {}) is not None
        )

    def _scopes(self, site: int, tensor: Tensor) -> list[str]:
        """
        Return the layers that a class of someone else's makes, down to a variable of HDF5, whose
        name has them behind its own: ``pair/first/kernel``.
        """
        path = "/".join(tensor.path).split("/")
        name = self.context.loaded.sites[site].name
        if self.context.loaded.document.format != "h5" or name not in path[:-1]:
            return []
        start = len(path) - 1 - path[:-1][::-1].index(name)
        return path[start:-1]


def _key(known: tuple[VariableSlot, ...], within: tuple[str, ...], name: str) -> Key:
    """
    Return what a variable is: by its number in an archive, else by its name or by the attribute
    that a SavedModel has it by.
    """
    bare = plain(within)
    if name.isdecimal():
        slot = next(
            (slot for slot in known if plain(slot.within) == bare and slot.index == int(name)), None
        )
    else:
        slot = next(
            (
                slot
                for slot in known
                if plain(slot.within) == bare and name in {slot.name, slot.attribute}
            ),
            None,
        )
    if slot is not None:
        return slot.key
    return (bare, name) if known else (within, name)
