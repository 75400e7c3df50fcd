"""Rules about which releases load a model, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.loading import (
    changed_activation,
    incompatible_with_target,
    newest_keras_fails,
    no_compatible_release,
    unknown_compatibility,
)

if TYPE_CHECKING:
    from policytool.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    incompatible_with_target.RULE,
    unknown_compatibility.RULE,
    no_compatible_release.RULE,
    changed_activation.RULE,
    newest_keras_fails.RULE,
)
