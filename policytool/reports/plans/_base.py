"""What the reports of ``migrate`` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.commands.inspect import Failure
    from policytool.commands.migrate import Migration


@dataclass(frozen=True, kw_only=True, slots=True)
class Migrations:
    """What a call did."""

    migrations: Sequence[Migration]
    failures: tuple[Failure, ...]
