"""
Models with faults that no fixture shows: each is made from a fixture, or is one, audited with other
options. The golden files of the rules have the findings in them, or show that there are none.
"""

from __future__ import annotations

from typing import Final

from tests.rules.faults import (
    consistency,
    formats,
    graphs,
    loading,
    numerics,
    safety,
    training,
)
from tests.rules.faults.fault import Fault

FAULTS: Final[tuple[Fault, ...]] = (
    *formats.FAULTS,
    *training.FAULTS,
    *numerics.FAULTS,
    *consistency.FAULTS,
    *loading.FAULTS,
    *safety.FAULTS,
    *graphs.FAULTS,
)

__all__ = ["FAULTS", "Fault"]
