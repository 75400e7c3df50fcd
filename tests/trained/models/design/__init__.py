"""The models that the rule was designed with."""

from tests.trained.models.design import (
    binary_outputs,
    classifiers,
    images,
    regressors,
    several_outputs,
    vectors,
)

__all__ = [
    "binary_outputs",
    "classifiers",
    "images",
    "regressors",
    "several_outputs",
    "vectors",
]
