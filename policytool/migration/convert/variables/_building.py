"""
The holders of variables for the model that the target loads, and the source tensor of each
variable.

Variables of custom classes and of quantized layers keep their places and values. HDF5 files of both
libraries store them in the same order, and archives of both by attributes and numbers
(``Layer.weights`` and ``save_own_variables``); :mod:`._subclassed` handles the differences.

A variable with another layout in the source (``Unit.layout``) is assembled from several tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.formats.document import Layout, Tensor
from policytool.formats.edits import Assembly
from policytool.migration.convert.architecture import BACKWARD, Role, Unit, backward_twin, walk
from policytool.migration.convert.variables import _subclassed
from policytool.migration.convert.variables._containers import Holder, Stored
from policytool.migration.plan import COPY_WEIGHTS
from policytool.model.tree import LAYERS, NOT_WEIGHTS
from policytool.releases.layer_classes import layer_facts
from policytool.releases.layer_variables import VariableSlot, plain, slots
from policytool.releases.policy import Policy
from policytool.releases.releases import TFJS
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.migration.convert.target import Target

    Key = tuple[tuple[str, ...], str]
    Pool = Mapping[Key, Tensor]


def assemble(
    unit: Unit, expected_slots: tuple[VariableSlot, ...], pool: dict[Key, Tensor | Assembly]
) -> dict[Key, Tensor | Assembly]:
    """
    Return the source of each variable of a layer that has a layout, by its key, and remove the used
    tensors from ``pool``. A variable with a missing part is skipped.
    """
    assembled: dict[Key, Tensor | Assembly] = {}
    for slot in expected_slots:
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
        assembled[slot.key] = (
            parts[0]
            if recipe.only_renames
            else Assembly(
                parts=parts,
                reshape=recipe.reshape,
                axes=recipe.axes,
                flip=recipe.flip,
                product=recipe.product,
            )
        )
    return assembled


def _layout_key(part: str, pool: dict[Key, Tensor | Assembly]) -> Key | None:
    """
    Return the only key whose name is that of a part, with or without the layer's name as a prefix;
    None if there is no such key or several.
    """
    fitting = [key for key in pool if key[1] == part or key[1].endswith(f"_{part}")]
    return fitting[0] if len(fitting) == 1 else None


def shape_of(assembly: Assembly) -> tuple[int, ...]:
    """Return the shape of the variable that an assembly creates."""
    if assembly.product is not None:
        return assembly.parts[0].shape or ()
    shapes = []
    for part in assembly.parts:
        shape = assembly.reshape or part.shape or ()
        shapes.append(tuple(shape[axis] for axis in assembly.axes) if assembly.axes else shape)
    return (*shapes[0][:-1], sum(shape[-1] for shape in shapes)) if len(shapes) > 1 else shapes[0]


_SEEDS: Final = ("seed_generator", "random_generator")
"""The attributes with the state of random numbers, which all releases create again."""


@dataclass(frozen=True)
class Sources:
    """The stored tensors of one file, by layer."""

    context: ConversionContext
    root: Unit

    @cached_property
    def claimed_sites(self) -> frozenset[int]:
        """
        The sites of the model's units, and of layers without a unit: those in the backward
        direction of a Bidirectional, the Bidirectional, and a wrapper that its layer replaces.
        """
        sites = set(self._units)
        loaded = self.context.loaded
        for index, site in enumerate(loaded.sites):
            below = loaded.children[index]
            directions = {loaded.sites[child].attribute: child for child in below}
            if {"forward_layer", "backward_layer"} <= directions.keys():
                pairs = zip(
                    loaded.below(directions["forward_layer"]),
                    loaded.below(directions["backward_layer"]),
                    strict=False,
                )
                sites |= {backward for forward, backward in pairs if forward in sites}
                sites.add(index)
            elif layer_facts(site.class_name).wraps == "kernel" and not sites.isdisjoint(below):
                sites.add(index)
        return frozenset(sites)

    def of(self, site: int) -> Mapping[Key, Tensor]:
        """
        Return the tensors of a layer and of the layers that it creates, by keys that are the same
        in every release.
        """
        loaded = self.context.loaded
        config = loaded.sites[site].config or {}
        known = (
            slots(loaded.sites[site].class_name, self.context.source_release, config)
            if loaded.layers[site].quantization is None
            else None  # a quantized layer has other variables, which are used unchanged
        ) or ()
        return {
            _key(known, attributes, name): tensor
            for attributes, name, tensor in (
                *self._named_variables(site, ()),
                *self._stack_variables(site),
            )
            if not any(seed in part for part in attributes for seed in _SEEDS)
        }

    def archive_tensors(self) -> Mapping[Key, Tensor]:
        """
        Return all tensors of an archive except the optimizer's, by their places in the archive.
        """
        return {
            (tensor.path[:-2], tensor.path[-1]): tensor
            for tensor in self.context.loaded.document.tensors or ()
            if tensor.path[0] not in NOT_WEIGHTS
            and not any(seed in part for part in tensor.path for seed in _SEEDS)
        }

    def shared_layer_tensors(self, site: int) -> Mapping[Key, Tensor]:
        """
        Return the tensors of a shared layer that a Keras 3 archive stores in another model of the
        same file: Keras 3 writes the variables of a shared layer only once.

        The config is in both models, but the variables are only in the first (``_save_state`` in
        keras/src/saving/saving_lib.py).
        """
        unit = self._units.get(site)
        if unit is None:
            return {}
        for other in self._stored_sites.get((unit.name, unit.class_name), ()):
            if other != site and self._units[other].config == unit.config:
                return self.of(other)
        return {}

    @cached_property
    def _units(self) -> Mapping[int, Unit]:
        return {unit.site: unit for unit in walk(self.root) if unit.site is not None}

    @cached_property
    def _stored_sites(self) -> Mapping[tuple[str, str], Sequence[int]]:
        """The sites with stored tensors, by the name and class of the layer."""
        return group_pairs(
            ((unit.name, unit.class_name), site)
            for site, unit in self._units.items()
            if self.of(site)
        )

    def _stack_variables(self, site: int) -> Iterator[tuple[tuple[str, ...], str, Tensor]]:
        """
        Yield the variables of a cell that are stored with the stack that contains it, as in Keras
        2.0 to 2.3: the second kernel is ``kernel_1``.
        """
        loaded, release = self.context.loaded, self.context.source_release
        stack = loaded.sites[site].parent
        if stack is None or layer_facts(loaded.sites[stack].class_name).wraps != "cells":
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
        self, site: int, attributes: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], str, Tensor]]:
        """
        Yield the path, the name and the tensor of each variable of a site, and of the sites that it
        creates.
        """
        placed = self.context.loaded.placed
        if layer_facts(self.context.loaded.sites[site].class_name).wraps == "cells":
            return
        for variable, tensor in zip(
            placed.variables.get(site, ()), placed.sources.get(site, ()), strict=True
        ):
            *above, name = variable.name.split("/")
            if not above and site not in self._known_sites:
                above = self._scopes(site, tensor)
            yield (*attributes, *above), name, tensor
        for child in self.context.loaded.children[site]:
            if child not in self.claimed_sites:
                yield from self._named_variables(
                    child, (*attributes, *self.context.loaded.sites[child].attribute.split("/"))
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
        Return the names of the layers between a custom layer and a variable that the layer contains
        in HDF5, from the name of the variable: ``pair/first/kernel``.
        """
        path = "/".join(tensor.path).split("/")
        name = self.context.loaded.sites[site].name
        if self.context.loaded.document.format != "h5" or name not in path[:-1]:
            return []
        start = len(path) - 1 - path[:-1][::-1].index(name)
        return path[start:-1]


def _key(known: tuple[VariableSlot, ...], attributes: tuple[str, ...], name: str) -> Key:
    """
    Return the key of a variable: from its number in an archive, or else from its name, or from its
    attribute in a SavedModel.
    """
    plain_attributes = plain(attributes)
    slot = next(
        (
            slot
            for slot in known
            if plain(slot.within) == plain_attributes
            and (
                slot.index == int(name) if name.isdecimal() else name in {slot.name, slot.attribute}
            )
        ),
        None,
    )
    if slot is not None:
        return slot.key
    return (plain_attributes, name) if known else (attributes, name)


_WORD_WEIGHTS: Final = "idf_weights"
"""The only result of ``adapt`` that is also a variable; all others are in the layer's config."""

_NAMES: Final = {"h5": "HDF5", "keras": "an archive (.keras)", TFJS: "HDF5"}
_READ_OTHERWISE: Final = frozenset({"keras3.3", "keras3.6"})
"""Releases whose HDF5 order of quantized layers' variables differs from that of Keras 3.15."""


def _copied_variables(unit: Unit, pool: Pool, context: ConversionContext) -> tuple[Stored, ...]:
    """Return a layer's variables; if they cannot be placed, log a refusal and return none."""
    crosses_archives = unit.custom and _subclassed.crosses(context)
    reason = _subclassed.objection(unit, pool, context) if crosses_archives else None
    reason = reason or _objection(unit, pool, context)
    if reason is not None:
        _refuse(unit, reason, context)
        return ()
    if context.target.container == "keras" and _is_int8(unit, pool):
        pool = dict(sorted(pool.items(), key=lambda item: _INT8_ORDER.index(item[0][1])))
    return _stored_variables(
        _subclassed.across_archives(unit, pool, context) if crosses_archives else pool
    )


def _refuse(unit: Unit, reason: str, context: ConversionContext) -> None:
    """Log the reason why a layer's variables cannot be placed, if the layer is not refused yet."""
    if context.log.is_refused(unit):
        return  # a layer that the target cannot have has no variables there
    context.log.refuse("variables", unit, f"{unit.path} ({unit.class_name}) {reason}")


def _is_quantised(unit: Unit) -> bool:
    """Return whether a layer is quantized, so that its variables are not those of its class."""
    policy = unit.config.get("dtype")
    return isinstance(policy, Policy) and policy.quantization is not None


def _objection(unit: Unit, pool: Pool, context: ConversionContext) -> str | None:
    """Return why the target would not find a layer's variables in the places of the source."""
    numbered = _is_numbered(pool)
    target = context.target
    holds_layers = unit.role is Role.MODEL or any(attributes for attributes, _ in pool)
    if pool and holds_layers and not _has_same_layout(context, numbered=numbered):
        return f"has variables of layers that are not in its config; {_way_out(unit, context)}"
    is_ordered = context.loaded.document.layout is Layout.LEGACY_H5
    has_inner_variables = len({attributes for attributes, _ in pool}) > 1
    if (
        target.container == "h5"
        and not numbered
        and not is_ordered
        and unit.custom
        and has_inner_variables
    ):
        return (
            "has variables of several layers that are not in its config, and only HDF5 stores "
            f"their order; {_way_out(unit, context)}"
        )
    if target.container == "keras" and not numbered and len(pool) > 1 and not _is_int8(unit, pool):
        return f"has variables in an unknown order; {_way_out(unit, context)}"
    reads_otherwise = target.loader in _READ_OTHERWISE and target.loader != context.source_release
    if _is_quantised(unit) and target.container == "h5" and reads_otherwise:
        return (
            f"is quantized, and {target.name} reads its variables from HDF5 in a different order; "
            "save it again as a .keras archive"
        )
    return None


def _way_out(unit: Unit, context: ConversionContext) -> str:
    """
    Return the advice on variables that have no place in the format of the target.

    HDF5 supports no subclassed models, and an archive of Keras 2 often lacks their input shapes.
    TF 2.11 and earlier write no archives.
    """
    container = context.target.container
    writes_format = container != "keras" or all(
        "keras" in release.formats for release in context.loaded.origins
    )
    is_model = unit.role is Role.MODEL or _subclassed.is_subclassed_model(unit)
    if is_model or not writes_format:
        return COPY_WEIGHTS
    return f"save it again as {_NAMES[container]} with the release that wrote it"


def _is_numbered(pool: Pool) -> bool:
    return all(name.isdecimal() for _, name in pool)


def _has_same_layout(context: ConversionContext, *, numbered: bool) -> bool:
    container = context.target.container
    if context.crosses and context.loaded.document.format.partition("-")[0] != container:
        return False
    return numbered == (container == "keras")


_INT8_ORDER: Final = ("kernel", "embeddings", "bias", "kernel_scale", "embeddings_scale")
"""The order in which archives store the variables of int8 layers (measured in Keras 3.15)."""


def _is_int8(unit: Unit, pool: Pool) -> bool:
    """Return whether the pool has the variables of a Dense or Embedding layer quantized to int8."""
    policy = unit.config.get("dtype")
    quantization = policy.quantization if isinstance(policy, Policy) else None
    return (
        quantization is not None
        and quantization.mode == "int8"
        and unit.class_name in {"Dense", "Embedding"}
        and all(not attributes and name in _INT8_ORDER for attributes, name in pool)
    )


def _stored_variables(pool: Pool) -> tuple[Stored, ...]:
    """Return variables that keep their names and places."""
    numbered = _is_numbered(pool)
    return tuple(
        Stored(
            slot=VariableSlot(
                name=f"variable_{name}" if numbered else name,
                scopes=attributes,
                within=attributes,
                index=int(name) if numbered else number,
                attribute=name,
                trainable=True,
                known_as=name,
            ),
            shape=tensor.shape or (),
            dtype=tensor.dtype,
            source=tensor,
        )
        for number, ((attributes, name), tensor) in enumerate(pool.items())
    )


_PREFIXES: Final = {"forward_layer": "forward_", BACKWARD: "backward_"}
_KERNEL: Final = "kernel"


@dataclass(frozen=True)
class HolderBuilder:
    """Builds the holders of a model from its file."""

    context: ConversionContext
    sources: Sources

    def holder(self, unit: Unit, attribute: str = LAYERS, *, listed: bool = True) -> Holder:
        """Return a layer with all its descendants; unplaced variables are logged as refusals."""
        prefix = _PREFIXES.get(attribute, "")
        name = unit.name if unit.name.startswith(prefix) else prefix + unit.name
        below = tuple(
            self.holder(inner, slot, listed=in_list) for slot, in_list, inner in self._below(unit)
        )
        own_variables = () if unit.role is Role.OPERATION else self._own(unit, below)
        if layer_facts(unit.class_name).wraps == "kernel":
            below = tuple(map(_with_kernel_in_parent, below))
        return Holder(
            unit=unit, name=name, attribute=attribute, listed=listed, own=own_variables, below=below
        )

    def _below(self, unit: Unit) -> Iterator[tuple[str, bool, Unit]]:
        """Yield the attribute, whether it is a list, and the unit of each direct child layer."""
        if self._reads_whole_archive(unit):
            return
        if unit.network is not None:
            for inner in unit.network.units:
                if inner.role is not Role.OPERATION:
                    yield LAYERS, True, inner
            return
        attributes = layer_facts(unit.class_name).holds
        for key, value in unit.config.items():
            slot = attributes.get(key, key)
            for in_list, inner in _units(value):
                yield slot, in_list, inner
                if slot == "forward_layer" and not isinstance(unit.config.get(BACKWARD), Unit):
                    twin = backward_twin(unit, inner, self.context.loaded)
                    yield BACKWARD, False, twin or inner

    def _own(self, unit: Unit, below: Sequence[Holder]) -> tuple[Stored, ...]:
        """
        Return the variables of a unit itself in the target, each with its source. Missing and
        additional variables are refused.
        """
        if has_its_state_in_config(unit):
            state_slots = adapted_slots(unit, self.context.target)
            state_variables = (self._store(unit, slot, None) for slot in state_slots)
            return tuple(stored for stored in state_variables if stored is not None)
        pool: dict[Key, Tensor | Assembly] = {}
        if self._reads_whole_archive(unit):
            pool |= self.sources.archive_tensors()
        elif unit.site is not None:
            pool |= self.sources.of(unit.site)
        if not pool and unit.site is not None and self.context.from_keras3:
            pool |= self.sources.shared_layer_tensors(unit.site)
        expected_slots = (
            ()
            if unit.role is Role.MODEL and unit.network is not None
            else None
            if unit.custom or _is_quantised(unit)
            else slots(unit.class_name, self.context.target.loader, unit.config)
        )
        if expected_slots is None:
            source_by_key = {
                key: tensor for key, tensor in pool.items() if not isinstance(tensor, Assembly)
            }
            return _copied_variables(unit, source_by_key, self.context)
        if layer_facts(unit.class_name).wraps == "kernel" and below:
            kernels = {
                stored.slot.key: stored.source
                for stored in below[0].own
                if stored.slot.name == _KERNEL and stored.source is not None
            }
            pool = {**kernels, **pool}
        pool |= assemble(unit, expected_slots, pool)
        variables = tuple(
            stored
            for slot in expected_slots
            if (stored := self._store(unit, slot, pool.pop(slot.key, None))) is not None
        )
        if pool:
            names = ", ".join(sorted("/".join((*attributes, name)) for attributes, name in pool))
            _refuse(
                unit,
                f"stores {names}, but {unit.class_name} in {self.context.target.name} has no "
                "such variables",
                self.context,
            )
        return variables

    def _store(
        self, unit: Unit, slot: VariableSlot, source: Tensor | Assembly | None
    ) -> Stored | None:
        """
        Return the variable for a slot from its source, or from the values of a rewrite; None if
        there is neither, which is refused.
        """
        scale = unit.scales.get(slot.name)
        if isinstance(source, Assembly):
            return Stored(
                slot=slot,
                shape=shape_of(source),
                dtype=source.parts[0].dtype,
                made_of=source,
                scale=scale,
            )
        if source is not None:
            if source.shape is None:
                _refuse(unit, f"stores {slot.name} without a shape", self.context)
                return None
            return Stored(
                slot=slot, shape=source.shape, dtype=source.dtype, source=source, scale=scale
            )
        if slot.name in unit.given:
            fill, shape = _flat(unit.given[slot.name])
            return Stored(slot=slot, shape=shape, dtype="float32", fill=fill, scale=scale)
        _refuse(
            unit,
            f"has no {'/'.join((*slot.scopes, slot.name))} in the file, but {unit.class_name} in "
            f"{self.context.target.name} requires it",
            self.context,
        )
        return None

    def _reads_whole_archive(self, unit: Unit) -> bool:
        return _subclassed.is_subclassed_model(unit) and _subclassed.crosses(self.context)


def _with_kernel_in_parent(holder: Holder) -> Holder:
    """Return the inner layer of a wrapper that has the kernel of the layer too."""
    own = tuple(replace(stored, is_in_parent=stored.slot.name == _KERNEL) for stored in holder.own)
    return replace(holder, own=own)


def _units(value: Value) -> Iterator[tuple[bool, Unit]]:
    """Yield each layer in a value of a config, after whether it is in a list."""
    if isinstance(value, Unit):
        yield False, value
    elif isinstance(value, list):
        for item in value:
            for _, unit in _units(item):
                yield True, unit


def _flat(value: Value) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the numbers of nested lists in C order, and their shape."""
    if not isinstance(value, list):
        return (float(value),) if isinstance(value, int | float) else (math.nan,), ()
    parts = [_flat(item) for item in value]
    return tuple(number for numbers, _ in parts for number in numbers), (
        len(parts),
        *(parts[0][1] if parts else ()),
    )


def has_its_state_in_config(unit: Unit) -> bool:
    """Return whether the config of a layer already contains its stored state."""
    return not unit.custom and layer_facts(unit.class_name).state_in_config


def adapted_slots(unit: Unit, target: Target) -> Iterator[VariableSlot]:
    """
    Yield the places from which the target reads a layer's word weights: in an archive under their
    name, twice for a TextVectorization, and once in HDF5 of Keras 2 (tf_keras 2.21, Keras 3.15).
    """
    if _WORD_WEIGHTS not in unit.given or (target.is_keras3 and target.container == "h5"):
        return
    yield _word_weights_slot(())
    inner = layer_facts(unit.class_name).inner_lookup
    if inner is not None and target.container == "keras":
        yield _word_weights_slot((inner,))


def _word_weights_slot(attributes: tuple[str, ...]) -> VariableSlot:
    """Return the place of a layer's word weights."""
    return VariableSlot(
        name=_WORD_WEIGHTS,
        scopes=(),
        within=attributes,
        index=_WORD_WEIGHTS,
        attribute=_WORD_WEIGHTS,
        trainable=False,
        known_as=_WORD_WEIGHTS,
    )
