"""One array of an ``.npz`` file, selected with ``FILE.npz:KEY``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from policytool.numerics.check_sides import UserFunction, array_file, file_or_function
from policytool.runtime.feeding import given_arrays
from policytool.runtime.library import Refused

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file with inputs and labels."""
    path = tmp_path / "val.npz"
    np.savez(path, x_val=np.zeros((3, 2)), y_val=np.arange(3))
    return path


def test_key_selects_an_array(file: Path) -> None:
    """The selected array has no name, so that it belongs to the only input or output."""
    (array,) = given_arrays.arrays_of(f"{file}:y_val").values()
    assert array.tolist() == [0, 1, 2]
    assert list(given_arrays.read_labels(f"{file}:y_val")) == [""]


def test_unknown_key_names_the_arrays(file: Path) -> None:
    with pytest.raises(Refused, match="has no array y; it contains x_val, y_val"):
        given_arrays.arrays_of(f"{file}:y")


def test_file_of_that_name_is_read(file: Path) -> None:
    """A file whose name contains the colon is preferred."""
    named = file.with_name("val.npz:y_val")
    named.write_bytes(file.read_bytes())
    assert set(given_arrays.arrays_of(str(named))) == {"x_val", "y_val"}
    assert array_file(named) == named


def test_selection_is_a_file_and_no_function(file: Path) -> None:
    """``val.npz:x`` has the form of a function, but names a file."""
    selected = file.with_name("val.npz:x_val")
    assert file_or_function("val.npz:x_val") == selected.relative_to(file.parent)
    assert array_file(selected) == file
    assert array_file(file) == file
    assert file_or_function("my_data:batches") == UserFunction(module="my_data", name="batches")
