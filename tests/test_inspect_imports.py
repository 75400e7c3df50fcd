"""What is imported, and what is not: no framework ever, and nothing heavy before it is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.conftest import (
    MIXED_H5,
    MIXED_JSON,
    MIXED_KERAS,
    MIXED_SAVEDMODEL,
    MIXED_TFJS,
    MIXED_YAML,
    UNPACKED,
    run_process,
)
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = THOROUGH


FRAMEWORKS: Final = {"tensorflow", "keras", "tf_keras", "torch", "jax"}
HEAVY: Final = {"h5py", "numpy", "rich", "google.protobuf", "yaml"}
EXTRAS: Final = {"aiohttp", "dask", "distributed", "fsspec", "mlflow", "pyarrow", "s3fs"}
"""What the wheel does not bring: local models and reports in text need none of it."""

_LINE: Final = re.compile(r"import time:\s+\d+ \|\s+\d+ \|\s+(\S+)")
FILES: Final = {
    "h5": MIXED_H5,
    "keras": MIXED_KERAS,
    "savedmodel": MIXED_SAVEDMODEL,
    "json": MIXED_JSON,
    "yaml": MIXED_YAML,
    "tfjs": MIXED_TFJS,
    "keras-directory": UNPACKED,
}


def imported(*arguments: str | Path) -> set[str]:
    """
    Return the modules that a run of the command line imports, by the interpreter's own account.
    """
    command = [sys.executable, "-X", "importtime", "-m", "policytool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(_LINE.findall(done.stderr))


def among(modules: set[str], unwanted: set[str]) -> set[str]:
    """Return the modules that are, or are inside, unwanted ones."""
    return {
        module
        for module in modules
        if any(module == name or module.startswith(f"{name}.") for name in unwanted)
    }


@pytest.mark.parametrize("format_name", FILES)
def test_inspect_imports_no_framework(format_name: str) -> None:
    """Whatever the format, neither TensorFlow nor any Keras is imported."""
    modules = imported("inspect", FILES[format_name])
    assert "policytool.model.reading" in modules
    assert not among(modules, FRAMEWORKS | EXTRAS)


@pytest.mark.parametrize(
    ("format_name", "unneeded"),
    [
        ("h5", {"google.protobuf", "rich"}),
        ("keras", {"google.protobuf", "rich"}),
        ("savedmodel", {"h5py", "numpy", "rich"}),
        ("json", HEAVY),
        ("tfjs", HEAVY),
        ("yaml", HEAVY - {"yaml"}),
    ],
)
def test_inspect_imports_what_the_format_needs(format_name: str, unneeded: set[str]) -> None:
    """
    h5py is for HDF5, protobuf for SavedModels and PyYAML for YAML; a report without progress needs
    no rich.
    """
    assert not among(imported("inspect", FILES[format_name], "--format", "json"), unneeded)


PLANNER: Final = {"policytool.migration", "policytool.rules"}
CONVERSION: Final = {"policytool.migration.convert"}


@pytest.mark.parametrize(
    ("name", "unneeded"),
    [
        ("keras3.15/mha.keras", PLANNER),
        ("keras3.15/default_float32.export", PLANNER),
        ("tf2.15/weights_only.weights.h5", PLANNER),
        ("tf2.15/global_mixed_float16.h5", CONVERSION | {"policytool.numerics"}),
        ("tf2.4/wrappers_mixed.json", {"policytool.numerics", "numpy", "h5py"}),
    ],
)
def test_inspect_imports_the_planner_only_for_a_fix(name: str, unneeded: set[str]) -> None:
    """And conversions only where edits do not suffice; nothing that runs TensorFlow."""
    assert not among(imported("inspect", FIXTURES / name), unneeded)


def test_migrate_imports_what_the_format_needs(tmp_path: Path) -> None:
    """Rewriting an architecture needs no library for weights."""
    modules = imported("migrate", MIXED_JSON, "-o", tmp_path / "new.json")
    assert (tmp_path / "new.json").is_file()
    assert not among(modules, {"h5py", "numpy", "ml_dtypes"} | EXTRAS)


def test_audit_of_several_models_imports_no_extra() -> None:
    """The process that starts the others reads no model and needs no cluster."""
    modules = imported("audit", MIXED_H5, MIXED_KERAS, "--jobs", "2", "--fail-on", "never")
    assert "policytool.support.processes.pool" in modules
    assert not among(modules, FRAMEWORKS | EXTRAS)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("inspect", "--help")], ids=" ".join
)
def test_help_starts_at_once(arguments: tuple[str, ...]) -> None:
    """What only prints text imports nothing that reads files."""
    modules = imported(*arguments)
    assert not among(modules, HEAVY | FRAMEWORKS | EXTRAS)


def test_import_of_the_package_costs_nothing() -> None:
    """``import policytool`` loads its functions when they are used."""
    script = (
        "import sys, policytool; print(*sorted(name for name in sys.modules if "
        "name.startswith('policytool')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["policytool"]


@pytest.mark.parametrize("format_name", sampled("formats beside broken frameworks", FILES, share=3))
def test_broken_frameworks_do_no_harm(format_name: str, tmp_path: Path) -> None:
    """
    Where an installed TensorFlow or Keras raises at import, inspect works as if there were none.
    """
    for name in ("tensorflow", "keras", "tf_keras"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            "raise RuntimeError('imported')\n", encoding="utf-8"
        )
    broken = {"PYTHONPATH": os.fspath(tmp_path)}
    assert run_process("inspect", FILES[format_name], environment=broken) == run_process(
        "inspect", FILES[format_name]
    )
    done = subprocess.run(
        [sys.executable, "-c", "import keras"],
        capture_output=True,
        check=False,
        env={**os.environ, **broken},
        timeout=60,
    )
    assert done.returncode != 0
