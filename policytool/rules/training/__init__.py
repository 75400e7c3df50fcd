"""Rules about how training goes on, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.training import (
    loss_scale_dropped,
    loss_scale_inert,
    loss_scaling_in_vain,
    optimizer_refused,
    optimizer_state_lost,
    unknown_optimizer,
    unscaled_mixed_float16,
)

if TYPE_CHECKING:
    from policytool.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    loss_scale_dropped.RULE,
    loss_scale_inert.RULE,
    unscaled_mixed_float16.RULE,
    loss_scaling_in_vain.RULE,
    optimizer_refused.RULE,
    optimizer_state_lost.RULE,
    unknown_optimizer.RULE,
)
