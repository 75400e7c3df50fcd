"""
The kernels that TensorFlow lacks for a dtype, which it has for float32.

``data/kernels.json`` is what its own registry says (``fixtures/kernels.py`` asks it): by release,
layer case, policy and device the ops that a traced layer needs, and by device and dtype every op of
which it holds whatever else is given.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from policytool.releases import data

if TYPE_CHECKING:
    from collections.abc import Mapping


def missing(
    library: str, class_name: str, activation: str | None, policy: str, device: str
) -> tuple[str, ...]:
    """
    Return the ops that a layer needs and a device has no kernel for; none for classes that were not
    traced.
    """
    cases: Mapping[str, Any] = data.read("kernels")["layers"].get(library, {})
    names = (class_name, f"Activation[{activation}]") if activation else (class_name,)
    return tuple(
        dict.fromkeys(
            op for name in names for op in cases.get(name, {}).get(policy, {}).get(device, ())
        )
    )


def lacks(op: str, dtype: str, device: str) -> bool:
    """Return whether a device has kernels for an op in float32 and none that takes the dtype."""
    return op in _ops(device, dtype)


@cache
def _ops(device: str, dtype: str) -> frozenset[str]:
    return frozenset(data.read("kernels")["ops"].get(device, {}).get(dtype, ()))
