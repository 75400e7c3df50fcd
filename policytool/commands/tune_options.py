"""What is asked of a search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policytool.numerics.tuning.results import Preference
from policytool.numerics.tuning.search import Budget

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.migration.planning.options import Options
    from policytool.numerics.tuning.objectives import Objective
    from policytool.numerics.user_functions import UserFunction


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """What is asked of a search."""

    candidate: Options
    """The policy of the layers that are converted, and what the user decides about layers."""

    objective: Objective
    keep_rules: bool = False
    """Whether the layers that ``migrate`` keeps in float32 by default are no candidates."""

    weights: Path | None = None
    inputs: Path | UserFunction | None = None
    """A file of arrays, or a function that returns batches of them; None for synthetic ones."""

    batches: int | None = None
    batch_size: int | None = None
    seed: int = 1
    preference: Preference = Preference.NONE
    budget: Budget = field(default_factory=Budget)
    record: Path | None = None
    """The file in which trials are recorded, and from which an earlier search continues."""

    device: str = "auto"
