"""Rules of the family ``training``, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policytool.rules._base import Rule

RULES: Final[tuple[Rule, ...]] = ()
