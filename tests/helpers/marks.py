"""
How tests are shared out among `make quick`, `make test` and `make test-slow`, and which of them
must not run at the same time.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

THOROUGH: Final = pytest.mark.thorough
"""Left out of `make quick`: more than about 0.1 seconds of processor time."""

SLOW: Final = pytest.mark.slow
"""
Run by `make test-slow` only: TensorFlow, many processes, strace, or more than about two seconds of
processor time.
"""

ALONE: Final = pytest.mark.xdist_group("alone")
"""
Measures time, traces or limits processes, or loads the machine: one worker runs all of these, one
after the other.
"""

INSPECTING: Final = pytest.mark.xdist_group("inspected fixtures")
"""Asks for the reports of all fixtures: one worker makes each of them once."""

PARSING: Final = pytest.mark.xdist_group("parsed modules")
"""Needs the syntax trees of the package: one worker parses each module once."""

EVERY_EXAMPLE: Final = os.environ.get("POLICYTOOL_EXAMPLES") == "all"
"""Whether Hypothesis draws as many examples as a test asks for, as `make test-slow` has it do."""

_FEWER: Final = 5
"""`make test` draws a fifth of the examples."""

_LEAST: Final = 10


def examples(count: int) -> int:
    """Return how many examples Hypothesis draws where a test asks for ``count``."""
    return count if EVERY_EXAMPLE else max(_LEAST, count // _FEWER)
