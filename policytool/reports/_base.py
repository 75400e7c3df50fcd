"""What a reporter is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.commands.inspect import Selected
    from policytool.reports.layout import View


@dataclass(frozen=True, kw_only=True, slots=True)
class Reporter:
    """A way to show an inspection."""

    name: str
    render: Callable[[Selected, View], str]
    """
    Pure: the same values and the same view give the same text, which ends in a newline unless it is
    empty.
    """
