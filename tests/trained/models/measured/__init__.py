"""
The models that the rule is only measured with: none of them was used to find it, and none was
chosen by what the rule says of it. Those in ``after_the_change`` are also newer than the last
change of the rule.
"""

from tests.trained.models.measured import (
    after_the_change,
    binary_outputs,
    classifiers,
    images,
    raw_scales,
    regressors,
    several_outputs,
)

__all__ = [
    "after_the_change",
    "binary_outputs",
    "classifiers",
    "images",
    "raw_scales",
    "regressors",
    "several_outputs",
]
