"""
SavedModels that a child process with TensorFlow builds and traces anew: what it is asked for, and
what its result is held against without it.
"""

from policytool.numerics.reexport.job import build, job, planned
from policytool.numerics.reexport.result_check import (
    ReexportComparison,
    differences,
    hold,
    measured,
)

__all__ = ["ReexportComparison", "build", "differences", "hold", "job", "measured", "planned"]
