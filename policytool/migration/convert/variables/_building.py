"""
From the model that the target loads to what holds its variables, each with the tensor of the source
that it takes over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policytool.formats.new_model import Assembly
from policytool.migration.convert.architecture import Role, Unit
from policytool.migration.convert.backward_layers import BACKWARD, backward_twin
from policytool.migration.convert.variables import _subclassed
from policytool.migration.convert.variables._adapting import (
    adapted_slots,
    has_its_state_in_config,
)
from policytool.migration.convert.variables._holders import Holder, Stored
from policytool.migration.convert.variables._layouts import assemble, shape_of
from policytool.migration.convert.variables._taking_over import is_quantised, refuse, take_over
from policytool.model.tree import LAYERS
from policytool.releases.layer_classes import layer_facts
from policytool.releases.layer_variables import VariableSlot, slots

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.formats.document import Tensor
    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.migration.convert.variables._sources import Key, Sources

_PREFIXES: Final = {"forward_layer": "forward_", BACKWARD: "backward_"}
_KERNEL: Final = "kernel"


@dataclass(frozen=True)
class HolderBuilder:
    """One model and the file that it comes from."""

    situation: ConversionContext
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
                    twin = backward_twin(unit, inner, self.situation.loaded)
                    yield BACKWARD, False, twin or inner

    def _own(self, unit: Unit, below: Sequence[Holder]) -> tuple[Stored, ...]:
        if has_its_state_in_config(unit):
            own = adapted_slots(unit, self.situation.target)
            made = (self._store(unit, slot, None) for slot in own)
            return tuple(stored for stored in made if stored is not None)
        pool: dict[Key, Tensor | Assembly] = {}
        if self._is_read_whole(unit):
            pool |= self.sources.of_archive()
        elif unit.site is not None:
            pool |= self.sources.of(unit.site)
        if not pool and unit.site is not None and self.situation.from_keras3:
            pool |= self.sources.of_twin(unit.site)
        if unit.role is Role.MODEL and unit.network is not None:
            wanted: tuple[VariableSlot, ...] | None = ()
        else:
            wanted = (
                None
                if unit.custom or is_quantised(unit)
                else slots(unit.class_name, self.situation.target.loader, unit.config)
            )
        if wanted is None:
            plain = {
                key: tensor for key, tensor in pool.items() if not isinstance(tensor, Assembly)
            }
            return take_over(unit, plain, self.situation)
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
                f"stores {names}, but {unit.class_name} in {self.situation.target.name} has no "
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
            f"{self.situation.target.name} requires it",
        )
        return None

    def _is_read_whole(self, unit: Unit) -> bool:
        return _subclassed.is_subclassed_model(unit) and _subclassed.crosses(self.situation)

    def _refuse(self, unit: Unit, what: str) -> None:
        refuse(unit, what, self.situation)


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
