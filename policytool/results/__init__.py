"""
The classes of the values that the Python functions return, for scripts and notebooks.

Each contains the value of one command and converts it to a line of text, to HTML for a notebook, to
the JSON report, and to a pandas DataFrame. Reports and pandas are imported when they are used.
"""

from __future__ import annotations

from policytool.results.change import Check, Comparison, Migration, Tuning
from policytool.results.model import Audit, Explanation, Finding, Model

__all__ = ["Audit", "Check", "Comparison", "Explanation", "Finding", "Migration", "Model", "Tuning"]
