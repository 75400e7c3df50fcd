"""
Pairs the layers and variables of two models, and compares them.

No module of this package reads files.
"""

from __future__ import annotations

from policytool.comparison.models import compare_models
from policytool.comparison.pairing import ComparedModel, compared_model

__all__ = ["ComparedModel", "compare_models", "compared_model"]
