"""
From the model that the target loads to what holds its variables, each with the tensor of the source
that it takes over.

Variables of classes that are not Keras' own, and of quantised layers, stay where and as the source
has them. HDF5 of both libraries has them in one order, and archives of both by attributes and by
numbers (``Layer.weights`` and ``save_own_variables``); :mod:`._subclassed` says where they differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Layout
from policytool.formats.edits import Assembly
from policytool.migration.convert.architecture import BACKWARD, Role, Unit, backward_twin
from policytool.migration.convert.variables import _subclassed
from policytool.migration.convert.variables._containers import Holder, Stored
from policytool.migration.convert.variables._sources import assemble, shape_of
from policytool.model.tree import LAYERS
from policytool.releases.layer_classes import layer_facts
from policytool.releases.layer_variables import VariableSlot, slots
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.document import Tensor
    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.migration.convert.target import Target
    from policytool.migration.convert.variables._sources import Key, Sources

    Pool = Mapping[Key, Tensor]


_WORD_WEIGHTS: Final = "idf_weights"
"""What layers that adapt have as a variable too; all else that they found is in their configs."""

_NAMES: Final = {"h5": "HDF5", "keras": "an archive (.keras)"}
_READ_OTHERWISE: Final = frozenset({"keras3.3", "keras3.6"})
"""Releases that have the variables of quantised layers in HDF5 in another order than Keras 3.15."""


def _take_over(unit: Unit, pool: Pool, context: ConversionContext) -> tuple[Stored, ...]:
    """Return a layer's variables; none where they cannot be placed, which goes to the log."""
    across = unit.custom and _subclassed.crosses(context)
    reason = _subclassed.objection(unit, pool, context) if across else None
    reason = reason or _objection(unit, pool, context)
    if reason is not None:
        _refuse(unit, reason, context)
        return ()
    return _stored_variables(_subclassed.across_archives(unit, pool, context) if across else pool)


def _refuse(unit: Unit, what: str, context: ConversionContext) -> None:
    """Tell why a layer's variables cannot be placed, where nothing else speaks against it."""
    if context.log.is_refused(unit):
        return  # a layer that the target cannot have has no variables there
    context.log.refuse("variables", unit, f"{unit.path} ({unit.class_name}) {what}")


def _is_quantised(unit: Unit) -> bool:
    """Return whether a layer has other variables than its class otherwise has."""
    policy = unit.config.get("dtype")
    return isinstance(policy, Policy) and policy.quantization is not None


def _objection(unit: Unit, pool: Pool, context: ConversionContext) -> str | None:
    """Return why the target would not find a layer's variables where the source has them."""
    numbered = _is_numbered(pool)
    target = context.target
    holds_layers = unit.role is Role.MODEL or any(within for within, _ in pool)
    if pool and holds_layers and not _is_laid_out_alike(context, numbered=numbered):
        return (
            "has variables of layers that are not in its config; save it again as "
            f"{_NAMES[target.container]} with the release that wrote it"
        )
    is_ordered = context.loaded.document.layout is Layout.LEGACY_H5
    several = len({within for within, _ in pool}) > 1
    if target.container == "h5" and not numbered and not is_ordered and unit.custom and several:
        return (
            "has variables of several layers that are not in its config, and only HDF5 stores "
            "their order; save it again as HDF5 with the release that wrote it"
        )
    if target.container == "keras" and not numbered and len(pool) > 1:
        return (
            "has variables in an unknown order; save it again as a .keras archive with the release "
            "that wrote it"
        )
    reads_otherwise = target.loader in _READ_OTHERWISE and target.loader != context.source_release
    if _is_quantised(unit) and target.container == "h5" and reads_otherwise:
        return (
            f"is quantized, and {target.name} reads its variables from HDF5 in a different order; "
            "save it again as a .keras archive"
        )
    return None


def _is_numbered(pool: Pool) -> bool:
    return all(name.isdecimal() for _, name in pool)


def _is_laid_out_alike(context: ConversionContext, *, numbered: bool) -> bool:
    container = context.target.container
    if context.crosses and context.loaded.document.format.partition("-")[0] != container:
        return False
    return numbered == (container == "keras")


def _stored_variables(pool: Pool) -> tuple[Stored, ...]:
    numbered = _is_numbered(pool)
    found = []
    for number, ((within, name), tensor) in enumerate(pool.items()):
        slot = VariableSlot(
            name=f"variable_{name}" if numbered else name,
            scopes=within,
            within=within,
            index=int(name) if numbered else number,
            attribute=name,
            trainable=True,
            known_as=name,
        )
        found.append(Stored(slot=slot, shape=tensor.shape or (), dtype=tensor.dtype, source=tensor))
    return tuple(found)


_PREFIXES: Final = {"forward_layer": "forward_", BACKWARD: "backward_"}
_KERNEL: Final = "kernel"


@dataclass(frozen=True)
class HolderBuilder:
    """One model and the file that it comes from."""

    context: ConversionContext
    sources: Sources

    def holder(self, unit: Unit, attribute: str = LAYERS, *, listed: bool = True) -> Holder:
        """Return a layer with all below it; what cannot be placed goes to the log as a refusal."""
        prefix = _PREFIXES.get(attribute, "")
        name = unit.name if unit.name.startswith(prefix) else prefix + unit.name
        below = tuple(
            self.holder(inner, slot, listed=in_list) for slot, in_list, inner in self._below(unit)
        )
        own = () if unit.role is Role.OPERATION else self._own(unit, below)
        if layer_facts(unit.class_name).wraps == "kernel":
            below = tuple(
                replace(
                    inner,
                    own=tuple(
                        replace(stored, again=stored.slot.name == _KERNEL) for stored in inner.own
                    ),
                )
                for inner in below
            )
        return Holder(
            unit=unit, name=name, attribute=attribute, listed=listed, own=own, below=below
        )

    def _below(self, unit: Unit) -> Iterator[tuple[str, bool, Unit]]:
        """Yield the layers directly below one, what it holds them by, and whether in a list."""
        if self._is_read_whole(unit):
            return
        if unit.network is not None:
            for inner in unit.network.units:
                if inner.role is not Role.OPERATION:
                    yield LAYERS, True, inner
            return
        held = layer_facts(unit.class_name).holds
        for key, value in unit.config.items():
            slot = held.get(key, key)
            for in_list, inner in _units(value):
                yield slot, in_list, inner
                if slot == "forward_layer" and not isinstance(unit.config.get(BACKWARD), Unit):
                    twin = backward_twin(unit, inner, self.context.loaded)
                    yield BACKWARD, False, twin or inner

    def _own(self, unit: Unit, below: Sequence[Holder]) -> tuple[Stored, ...]:
        if has_its_state_in_config(unit):
            own = adapted_slots(unit, self.context.target)
            made = (self._store(unit, slot, None) for slot in own)
            return tuple(stored for stored in made if stored is not None)
        pool: dict[Key, Tensor | Assembly] = {}
        if self._is_read_whole(unit):
            pool |= self.sources.of_archive()
        elif unit.site is not None:
            pool |= self.sources.of(unit.site)
        if not pool and unit.site is not None and self.context.from_keras3:
            pool |= self.sources.of_twin(unit.site)
        if unit.role is Role.MODEL and unit.network is not None:
            wanted: tuple[VariableSlot, ...] | None = ()
        else:
            wanted = (
                None
                if unit.custom or _is_quantised(unit)
                else slots(unit.class_name, self.context.target.loader, unit.config)
            )
        if wanted is None:
            plain = {
                key: tensor for key, tensor in pool.items() if not isinstance(tensor, Assembly)
            }
            return _take_over(unit, plain, self.context)
        if layer_facts(unit.class_name).wraps == "kernel" and below:
            kernels = {
                stored.slot.key: stored.source
                for stored in below[0].own
                if stored.slot.name == _KERNEL and stored.source is not None
            }
            pool = {**kernels, **pool}
        pool |= assemble(unit, wanted, pool)
        found = tuple(
            stored
            for slot in wanted
            if (stored := self._store(unit, slot, pool.pop(slot.key, None))) is not None
        )
        if pool:
            names = ", ".join(sorted("/".join((*within, name)) for within, name in pool))
            self._refuse(
                unit,
                f"stores {names}, but {unit.class_name} in {self.context.target.name} has no "
                "such variables",
            )
        return found

    def _store(
        self, unit: Unit, slot: VariableSlot, source: Tensor | Assembly | None
    ) -> Stored | None:
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
                self._refuse(unit, f"stores {slot.name} without a shape")
                return None
            return Stored(
                slot=slot, shape=source.shape, dtype=source.dtype, source=source, scale=scale
            )
        if slot.name in unit.given:
            fill, shape = _flat(unit.given[slot.name])
            return Stored(slot=slot, shape=shape, dtype="float32", fill=fill, scale=scale)
        self._refuse(
            unit,
            f"has no {'/'.join((*slot.scopes, slot.name))} in the file, but {unit.class_name} in "
            f"{self.context.target.name} requires it",
        )
        return None

    def _is_read_whole(self, unit: Unit) -> bool:
        return _subclassed.is_subclassed_model(unit) and _subclassed.crosses(self.context)

    def _refuse(self, unit: Unit, what: str) -> None:
        _refuse(unit, what, self.context)


def _units(value: Value) -> Iterator[tuple[bool, Unit]]:
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
    """Return whether what a layer stores is in its config by now."""
    return not unit.custom and layer_facts(unit.class_name).state_in_config


def adapted_slots(unit: Unit, target: Target) -> Iterator[VariableSlot]:
    """
    Yield where the target looks for a layer's weights: in an archive under their name, of a
    TextVectorization twice, and in HDF5 of Keras 2 once (tf_keras 2.21, Keras 3.15).
    """
    if _WORD_WEIGHTS not in unit.given or (target.is_keras3 and target.container == "h5"):
        return
    yield _word_weights_slot(())
    inner = layer_facts(unit.class_name).inner_lookup
    if inner is not None and target.container == "keras":
        yield _word_weights_slot((inner,))


def _word_weights_slot(within: tuple[str, ...]) -> VariableSlot:
    return VariableSlot(
        name=_WORD_WEIGHTS,
        scopes=(),
        within=within,
        index=_WORD_WEIGHTS,
        attribute=_WORD_WEIGHTS,
        trainable=False,
        known_as=_WORD_WEIGHTS,
    )
