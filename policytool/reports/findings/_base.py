"""What a reporter of findings is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.commands.audit import Audit
    from policytool.reports.layout import View


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingReporter:
    """A way to show an audit."""

    name: str
    render: Callable[[Audit, View], str]
    """
    Pure: the same values and the same view give the same text, which ends in a newline unless it is
    empty.
    """
