"""
The models that the rule is only measured with: none of them was used to find it, and none was
chosen by what the rule says of it.
"""

from tests.trained.models.measured import (
    binary_outputs,
    classifiers,
    images,
    raw_scales,
    regressors,
    several_outputs,
)

__all__ = ["binary_outputs", "classifiers", "images", "raw_scales", "regressors", "several_outputs"]
