"""Rules about what a file says against what it holds, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.truth import (
    autocast_lost,
    loader_decides,
    metadata_differs,
    policy_not_stored,
    quantized_undeclared,
    signature_changed,
    stored_differs,
    traced_differs,
    unreadable_bfloat16,
)

if TYPE_CHECKING:
    from policytool.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    stored_differs.RULE,
    traced_differs.RULE,
    unreadable_bfloat16.RULE,
    signature_changed.RULE,
    autocast_lost.RULE,
    metadata_differs.RULE,
    quantized_undeclared.RULE,
    policy_not_stored.RULE,
    loader_decides.RULE,
)
