"""The public functions, called from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import policytool
from tests.conftest import MIXED_H5

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALLS: Final[dict[str, Callable[[Path], object]]] = {
    "inspect": lambda place: policytool.inspect(MIXED_H5),
    "audit": lambda place: policytool.audit(MIXED_H5),
    "migrate": lambda place: policytool.migrate(MIXED_H5, dry_run=True),
    "diff": lambda place: policytool.diff(MIXED_H5, MIXED_H5),
}
"""Each function that needs no TensorFlow; the tests of ``check`` call that one."""


@pytest.mark.parametrize("name", CALLS)
def test_a_function_can_be_called_twice(name: str, tmp_path: Path) -> None:
    """What the first call imports does not replace the function."""
    function = getattr(policytool, name)
    assert repr(CALLS[name](tmp_path)) == repr(CALLS[name](tmp_path))
    assert getattr(policytool, name) is function
