"""
How many terms a layer adds up is read from the operations that it was traced to, whatever its
class.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.compat.asking import run_script

pytestmark = pytest.mark.compat

CHILD: Final = Path(__file__).with_name("deepening.py")

DEPTHS: Final = {
    "nothing": 0,
    "one axis": 50,
    "two axes": 50 * 7,
    "one after the other": 50 + 7,
    "running": 50,
    "running, from the end": 7,
    "softmax": 7,
    "product": 50,
    "product, the other way": 7,
    "einsum": 7,
    "convolution": 5 * 7,
    "pooling": 4,
    "loop": 3 * 50,
}
"""Of a tensor of shape (3, 50, 7); a loop's body counts as often as it turns."""


def test_depths(compat_python: Path) -> None:
    """Products, convolutions and sums by the terms of one element; what only rounds has none."""
    printed = run_script(compat_python, CHILD)
    assert json.loads(printed.splitlines()[-1]) == DEPTHS
