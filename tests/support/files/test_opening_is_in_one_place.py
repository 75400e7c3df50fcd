"""Only ``policytool.support.files.opening`` opens the files of users."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from tests.helpers.marks import PARSING, THOROUGH
from tests.helpers.source_tree import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE: Final = Path(policytool.__file__).parent

CHILD: Final = "runtime"
"""
What runs in a process of its own, and compares the files that it loads with those that its parent
has read.
"""

NAMES: Final = frozenset(
    {
        "open",
        "open_code",
        "fdopen",
        "read_bytes",
        "read_text",
        "write_bytes",
        "File",
        "ZipFile",
        "memmap",
        "fromfile",
        "genfromtxt",
        "loadtxt",
    }
)
"""The last part of what opens a file by its name, whatever it was imported as."""

WHOLE: Final = frozenset({"np.load", "numpy.load"})
"""What does so and has a name that other things have as well."""

PARTS: Final = frozenset({"h5a.open", "h5d.open", "h5g.open", "h5o.open", "archive.open"})
"""What opens a part of a file that is open already."""

STREAM: Final = "gets an open stream, not a path"
DRAFT: Final = "opens a draft, which this process made"
TABLE: Final = "reads a table that the package brings"

ALLOWED: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "support.files.opening": (frozenset({"os.open", "os.fdopen"}), "is the place"),
    "formats.orbax.array_process": (
        frozenset({"open", "ts.open"}),
        "opens a descriptor of its parent, and arrays in a directory that the parent checked",
    ),
    "commands.batch.worker": (frozenset({"open"}), "opens descriptors that its parent gave it"),
    "support.processes.crash_guard": (
        frozenset({"open"}),
        "asks the system how much memory this process has",
    ),
    "cli.main": (
        frozenset({"open", "os.open"}),
        (
            "opens the null device, and streams over descriptors, in the place of closed standard "
            "streams"
        ),
    ),
    "cli.options": (frozenset({"draft.path.open"}), DRAFT),
    "commands.tune_run": (frozenset({"draft.path.write_bytes"}), DRAFT),
    "numerics.predictions": (
        frozenset({"np.load"}),
        "reads what its own child wrote to a directory that this process made",
    ),
    "commands.check_recordings": (
        frozenset({"np.load", "zipfile.ZipFile"}),
        "writes inputs for its own child, and reads what it wrote, in a directory of this process",
    ),
    "numerics.environments": (
        frozenset({"(directory / _MARKER).read_text"}),
        "opens markers in the user's cache directory, which this process wrote",
    ),
    "formats.hdf5.library": (
        frozenset({"h5py.File"}),
        "gets an open stream, or compares the file with the one that was checked",
    ),
    "formats.format_detection": (frozenset({"zipfile.ZipFile"}), STREAM),
    "formats.keras_archive.read": (frozenset({"zipfile.ZipFile"}), STREAM),
    "formats.keras_archive.npz": (frozenset({"inner.open", "zipfile.ZipFile"}), STREAM),
    "formats.keras_archive.create": (frozenset({"draft.open", "zipfile.ZipFile"}), DRAFT),
    "formats.tfjs": (frozenset({"path.open"}), DRAFT),
    "support.files.atomic._placing": (
        frozenset({"os.open"}),
        "opens drafts to write them, and directories to bring them to the disk",
    ),
    "formats.hdf5.storage": (frozenset({"h5py.File"}), STREAM),
    "formats.keras_archive.rewrite": (
        frozenset({"draft.open", "inflated.path.open", "zipfile.ZipFile"}),
        f"{DRAFT}, and {STREAM}",
    ),
    "reports.html.__init__": (
        frozenset({"files(__name__).joinpath('templates', name).read_text"}),
        "reads the style and the script that the package brings",
    ),
    "support.files.remote": (
        frozenset({"system.open"}),
        "opens files of servers, for policytool.support.files.opening",
    ),
    "support.files.mlflow_registry": (
        frozenset({"self.open", "self.server.open"}),
        "sends requests to a server, and opens its files for policytool.support.files.opening",
    ),
    "support.files.transfers": (
        frozenset({"system.open", "target.open"}),
        "creates files in a temporary directory of this process, and objects on servers",
    ),
    "troubleshooting.entries": (frozenset({"path.read_text"}), TABLE),
    "releases.data.__init__": (
        frozenset({"Path(__file__).with_name(f'{name}.json').read_text"}),
        TABLE,
    ),
}
"""
Module to the calls that it may make, as they are written, and the reason; any other belongs to
``policytool.support.files.opening``.
"""

PLANTED: Final = (
    "open(path)",
    "io.open(path)",
    "os.open(path, os.O_RDONLY)",
    "path.open('rb')",
    "path.read_bytes()",
    "path.read_text(encoding='utf-8')",
    "h5py.File(path, 'r')",
    "File(path)",
    "zipfile.ZipFile(path)",
    "ZipFile(path)",
    "np.load(path)",
    "numpy.fromfile(path)",
    "np.memmap(path)",
)


def calls(tree: ast.AST) -> Iterator[str]:
    """Yield, as they are written, the callees of all calls that open a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = node.func.attr if isinstance(node.func, ast.Attribute) else name
            if (last in NAMES or name in WHOLE) and name not in PARTS:
                yield name


def modules() -> Mapping[str, ast.Module]:
    """Return the syntax tree of each module but the child's."""
    files = {
        file.relative_to(PACKAGE).with_suffix("").parts: file
        for file in sorted(PACKAGE.rglob("*.py"))
    }
    return {
        ".".join(parts): parse(file.read_text(encoding="utf-8"))
        for parts, file in files.items()
        if parts[0] != CHILD
    }


@PARSING
@THOROUGH
def test_files_are_opened_in_one_place() -> None:
    """Every other call that opens a file is on the list, and each of the list is still made."""
    actual = {module: frozenset(calls(tree)) for module, tree in modules().items()}
    assert {module: names for module, names in actual.items() if names} == {
        module: names for module, (names, _) in ALLOWED.items()
    }


@pytest.mark.parametrize("call", PLANTED)
def test_planted_call_is_detected(call: str) -> None:
    """The name of the import and the place in the module have no effect."""
    planted = ast.parse(
        f"class Reader:\n    def read(self, path):\n        with {call} as stream:\n            "
        "return [stream for _ in range(2)]\n"
    )
    assert list(calls(planted)) == [call.partition("(")[0]]
