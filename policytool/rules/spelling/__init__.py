"""Rules about how policies are written, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.spelling import experimental_policy

if TYPE_CHECKING:
    from policytool.rules._base import Rule

RULES: Final[tuple[Rule, ...]] = (experimental_policy.RULE,)
