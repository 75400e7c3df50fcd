"""
The sub-layers of attention layers, which make their projections themselves.

Up to TF 2.13 they are made without a dtype and so take the global policy; from 2.14 on they take
the layer's (``MultiHeadAttention._get_common_kwargs_for_sublayer``). Softmax and Dropout are left
out: their names are numbered per process and stand nowhere in a config.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.releases.generations._base import SubLayer, SubPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROJECTIONS: Final = {
    "query_dense": "query",
    "key_dense": "key",
    "value_dense": "value",
    "output_dense": "attention_output",
}


def _projections(prefix: str, policy: SubPolicy) -> tuple[SubLayer, ...]:
    return tuple(
        SubLayer(
            attribute=f"{prefix}{attribute}", class_name="EinsumDense", name=name, policy=policy
        )
        for attribute, name in _PROJECTIONS.items()
    )


WITH_GLOBAL_POLICY: Final[Mapping[str, tuple[SubLayer, ...]]] = MappingProxyType(
    {"MultiHeadAttention": _projections("_", SubPolicy.GLOBAL)}
)
WITH_OWN_POLICY: Final[Mapping[str, tuple[SubLayer, ...]]] = MappingProxyType(
    {"MultiHeadAttention": _projections("_", SubPolicy.OWN)}
)
KERAS3: Final[Mapping[str, tuple[SubLayer, ...]]] = MappingProxyType(
    {
        "MultiHeadAttention": _projections("", SubPolicy.OWN),
        "GroupedQueryAttention": _projections("_", SubPolicy.OWN),
    }
)
"""Keras 3 walks attributes by name, and finds MultiHeadAttention's public properties first."""
