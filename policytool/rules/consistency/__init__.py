"""Rules that compare what a file declares with what it contains, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.consistency import (
    autocast_lost,
    depends_on_global_policy,
    metadata_differs,
    policy_not_stored,
    signature_changed,
    stored_dtype_differs,
    traced_dtype_differs,
    undeclared_quantization,
    unreadable_bfloat16,
)

if TYPE_CHECKING:
    from policytool.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    stored_dtype_differs.RULE,
    traced_dtype_differs.RULE,
    unreadable_bfloat16.RULE,
    signature_changed.RULE,
    autocast_lost.RULE,
    metadata_differs.RULE,
    undeclared_quantization.RULE,
    policy_not_stored.RULE,
    depends_on_global_policy.RULE,
)
