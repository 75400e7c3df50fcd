"""
Two models side by side: which layers and variables belong together, and what of them differs.

Nothing here reads files.
"""

from __future__ import annotations

from policytool.comparison.models import compare_models
from policytool.comparison.sides import ComparedModel, compared_model

__all__ = ["ComparedModel", "compare_models", "compared_model"]
