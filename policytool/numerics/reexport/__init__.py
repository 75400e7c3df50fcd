"""
SavedModels that a child process with TensorFlow re-exports: the job that it gets, and the
comparison of its result with the original and the plan, which needs no TensorFlow.
"""

from policytool.numerics.reexport.job import build_arguments, planned_model, reexport_job
from policytool.numerics.reexport.result_check import (
    ReexportComparison,
    compare_result,
    count_casts,
    differences,
)

__all__ = [
    "ReexportComparison",
    "build_arguments",
    "compare_result",
    "count_casts",
    "differences",
    "planned_model",
    "reexport_job",
]
