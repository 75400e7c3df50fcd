"""Rules about how training continues after loading, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.training import (
    incompatible_optimizer,
    ineffective_loss_scale,
    loss_scale_dropped,
    optimizer_state_lost,
    unknown_optimizer,
    unnecessary_loss_scaling,
    unscaled_mixed_float16,
)

if TYPE_CHECKING:
    from policytool.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    loss_scale_dropped.RULE,
    ineffective_loss_scale.RULE,
    unscaled_mixed_float16.RULE,
    unnecessary_loss_scaling.RULE,
    incompatible_optimizer.RULE,
    optimizer_state_lost.RULE,
    unknown_optimizer.RULE,
)
