"""
SavedModels that are built and traced anew by a child process with TensorFlow: what it is asked for, and what is held against its result without it.
"""

from policytool.retracing._asking import job, planned
from policytool.retracing._holding import Held, differences, hold, measured

__all__ = ["Held", "differences", "hold", "job", "measured", "planned"]
