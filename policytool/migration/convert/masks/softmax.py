"""
Softmax layers that are given masks: what they make of rows without any step.

Keras 2, and Keras 3 before 3.10, add a large negative number where a mask is false, so that a row
without any step gets equal weights. Keras 3.10 on gives zeros where the mask is false
(``Softmax.call``; all minor releases from 3.0 to 3.15 and tf_keras 2.21 were called).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.masks.building import MaskBuilder
from policytool.migration.convert.masks.flow import is_softmax
from policytool.migration.convert.masks.networks import change_networks, put_in_place
from policytool.migration.convert.masks.operations import CAST
from policytool.migration.convert.tensor_dtypes import compute_dtype
from policytool.model.calls import Call, Reference
from policytool.releases.keras_operations import MODULES
from policytool.releases.releases import KERAS3, family_of, is_since

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.migration.convert.masks.expressions import MaskTable, Scope
    from policytool.migration.convert.masks.flow import CallKey, Used

_FIRST_WITH_ZEROS: Final = "keras3.10"
_LARGE: Final = {"float16": -32752.0}
_LARGE_ELSE: Final = -1e9
"""What Keras 2 adds, by compute dtype (``_large_compatible_negative`` in softmax.py)."""


def gives_zeros(release: str) -> bool:
    """Return whether a release gives zeros where a mask is false."""
    return family_of(release) == KERAS3 and is_since(release, _FIRST_WITH_ZEROS)


def with_softmaxes(
    root: Unit, needed: Mapping[CallKey, Used], table: MaskTable, *, zeros: bool
) -> tuple[Unit, frozenset[CallKey]]:
    """
    Return a model whose Softmax layers give what they gave in a release that treats rows without
    any step otherwise, and the calls of which that could be written.

    :param needed: the masks that each call computes with
    :param zeros: whether they gave zeros there
    """

    def change(network: Network, scope: Scope) -> tuple[Network, frozenset[CallKey]]:
        builder = MaskBuilder(network, scope, table)
        units: list[Unit] = []
        zeroed: dict[Reference, Reference] = {}
        keeping: set[str] = set()
        done: set[CallKey] = set()
        for one in network.units:
            calls = list(one.calls)
            behind: list[Unit] = []
            for number, call in enumerate(one.calls if is_softmax(one) else ()):
                key = (scope, one.name, number)
                mask = _mask(one, needed.get(key, frozenset()), builder)
                if mask is None or not isinstance(call.args[0], Reference):
                    continue
                units += builder.take()
                if zeros:
                    output = Reference(layer=one.name, call=number)
                    zeroed[output] = _zeroed(one, output, mask, builder)
                    behind += builder.take()
                else:
                    calls[number] = Call(args=(_lowered(one, call.args[0], mask, builder),))
                done.add(key)
            units += [*builder.take(), replace(one, calls=tuple(calls)), *behind]
            keeping |= {operation.name for operation in behind}
        changed = replace(network, units=tuple(units))
        return put_in_place(changed, zeroed, keeping), frozenset(done)

    return change_networks(root, change)


def _mask(unit: Unit, masks: Used, builder: MaskBuilder) -> Reference | None:
    found = [mask for _, mask in masks]
    return builder.put(found[0], unit) if len(found) == 1 else None


def _zeroed(unit: Unit, output: Reference, mask: Reference, builder: MaskBuilder) -> Reference:
    """Return the output with zeros where a mask is false."""
    build = builder.operation
    kept = build(CAST, unit, (mask,), f"{MODULES}core", dtype="bool")
    return build("Where", unit, (kept, output, build("ZerosLike", unit, (output,))))


def _lowered(unit: Unit, tensor: Reference, mask: Reference, builder: MaskBuilder) -> Reference:
    """Return scores with a large negative number added where a mask is false."""
    build, dtype = builder.operation, compute_dtype(unit) or "float32"
    kept = build(CAST, unit, (mask,), f"{MODULES}core", dtype=dtype)
    gone = build("Subtract", unit, (1.0, kept))
    return build(
        "Add", unit, (tensor, build("Multiply", unit, (gone, _LARGE.get(dtype, _LARGE_ELSE))))
    )
