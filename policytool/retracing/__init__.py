"""
SavedModels that a child process with TensorFlow builds and traces anew: what it is asked for, and
what its result is held against without it.
"""

from policytool.retracing._asking import build, job, planned
from policytool.retracing._holding import Held, differences, hold, measured

__all__ = ["Held", "build", "differences", "hold", "job", "measured", "planned"]
