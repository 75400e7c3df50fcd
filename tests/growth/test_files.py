"""
The work of commands grows at most as n·log n with HDF5 files, SavedModels, checkpoints, archives,
TensorFlow.js models and YAML, whatever shape they have.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from policytool.cli.exit_codes import Exit
from tests.growth import format_shapes, hdf5_shapes, saved_model_shapes
from tests.growth.file_shapes import FileShape, excess, works
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

SHAPES: Final = {
    f"{kind}: {name}": shape
    for kind, shapes in (
        ("HDF5", hdf5_shapes.SHAPES),
        ("SavedModel", saved_model_shapes.SHAPES),
        ("other", format_shapes.SHAPES),
    )
    for name, shape in shapes.items()
}
"""Of all formats but configs, which test_growth.py has."""


def assert_grows_linearly(shape: FileShape, command: str, directory: Path) -> None:
    """Run a command on files of three sizes."""
    done = works(shape, command, directory)
    assert not excess(done), done
    for work in done:
        assert work.code in {Exit.CLEAN, Exit.FINDINGS, Exit.FAILURE}, work.errors


@THOROUGH
@pytest.mark.parametrize("shape", sampled("growth of files", SHAPES, share=10))
def test_audit_grows_with_the_file(shape: str, tmp_path: Path) -> None:
    """No walk visits a part of the file again for each other part; a sample of the shapes."""
    assert_grows_linearly(SHAPES[shape], "audit", tmp_path)


@SLOW
@pytest.mark.parametrize(
    ("shape", "command"),
    sampled(
        "growth of files in commands",
        itertools.product(SHAPES, ["diff", "inspect", "migrate to keras3"]),
        share=4,
    ),
)
def test_every_command_grows_with_the_file(shape: str, command: str, tmp_path: Path) -> None:
    """Each command has walks of its own; a sample of them and of the shapes."""
    assert_grows_linearly(SHAPES[shape], command, tmp_path)
