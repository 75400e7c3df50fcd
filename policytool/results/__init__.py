"""
The classes of the values that the Python functions return, for scripts and notebooks.

Each holds the value of one command and shows it: in a line, as HTML in a notebook, as the JSON
report, and as a pandas DataFrame. Reports and pandas are imported when they are used.
"""

from __future__ import annotations

from policytool.results.change import Check, Comparison, Migration, Tuning
from policytool.results.model import Audit, Explanation, Finding, Model

__all__ = ["Audit", "Check", "Comparison", "Explanation", "Finding", "Migration", "Model", "Tuning"]
