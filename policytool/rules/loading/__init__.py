"""Rules about who takes a file, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.loading import computes_otherwise, no_loader, not_judged, target_refuses

if TYPE_CHECKING:
    from policytool.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    target_refuses.RULE,
    not_judged.RULE,
    no_loader.RULE,
    computes_otherwise.RULE,
)
