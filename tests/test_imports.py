"""What is imported, and what is not: no framework ever, and nothing heavy before it is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.conftest import (
    FIXED_SCALE_H5,
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
from tests.helpers.presets import write_recorded
from tests.helpers.sampling import sampled
from tests.helpers.scripts import run_captured

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = THOROUGH


FRAMEWORKS: Final = {"tensorflow", "keras", "tf_keras", "torch", "jax"}
HEAVY: Final = {"h5py", "numpy", "rich", "google.protobuf", "yaml"}
EXTRAS: Final = {"aiohttp", "dask", "distributed", "fsspec", "mlflow", "pyarrow", "s3fs"}
"""What the wheel does not bring: local models and reports in text need none of it."""

NEVER: Final = FRAMEWORKS | EXTRAS | {"jinja2"}
"""What no command needs for local models and reports other than HTML and Parquet."""

PLANNER: Final = {"policytool.migration", "policytool.rules"}
CONVERSION: Final = {"policytool.migration.convert"}
NUMERICS: Final = {"policytool.numerics"}
POOL: Final = "policytool.support.processes.pool"
READING: Final = "policytool.model.reading"
REMOTE: Final = "policytool.support.files.remote"

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


def imported(*arguments: str | Path, **environment: str) -> set[str]:
    """
    Return the modules that a run of the command line imports, by the interpreter's own account.
    """
    done = run_captured(
        [sys.executable, "-X", "importtime", "-m", "policytool", *map(str, arguments)],
        env={
            **{name: value for name, value in os.environ.items() if name != "POLICYTOOL_JOBS"},
            **environment,
        },
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return set(_LINE.findall(done.stderr))


def among(modules: set[str], unwanted: set[str]) -> set[str]:
    """Return the modules that are, or are inside, unwanted ones."""
    return {
        module
        for module in modules
        if any(module == name or module.startswith(f"{name}.") for name in unwanted)
    }


@pytest.mark.parametrize(
    ("format_name", "unneeded"),
    [
        ("h5", {"google.protobuf", "rich", POOL}),
        ("keras", {"google.protobuf", "rich"}),
        ("savedmodel", {"h5py", "numpy", "rich"}),
        ("json", HEAVY),
        ("tfjs", HEAVY),
        ("yaml", HEAVY - {"yaml"}),
        ("keras-directory", {"google.protobuf", "rich"}),
    ],
)
def test_inspect_imports_only_the_libraries_of_the_format(
    format_name: str, unneeded: set[str]
) -> None:
    """
    HDF5 needs h5py, SavedModels protobuf and YAML PyYAML. A report without progress needs no rich.
    """
    modules = imported("inspect", FILES[format_name], "--format", "json")
    assert READING in modules
    assert not among(modules, NEVER | unneeded | {REMOTE})


@pytest.mark.parametrize(
    ("name", "unneeded"),
    [
        ("keras3.15/mha.keras", PLANNER),
        ("keras3.15/default_float32.export", PLANNER),
        ("tf2.15/global_mixed_float16.h5", CONVERSION | NUMERICS),
        ("tf2.4/wrappers_mixed.json", NUMERICS | {"numpy", "h5py"}),
    ],
)
def test_inspect_imports_the_planner_only_for_a_fix(name: str, unneeded: set[str]) -> None:
    """
    Conversions are imported only if edits are not sufficient, and TensorFlow is never imported.
    """
    modules = imported("inspect", FIXTURES / name)
    assert READING in modules
    assert not among(modules, NEVER | unneeded)


def test_inspect_of_weights_imports_the_planner_only_for_an_architecture(tmp_path: Path) -> None:
    """Weights next to files that they do not fit need no conversion."""
    weights = tmp_path / "weights_only.weights.h5"
    shutil.copy(FIXTURES / "tf2.15" / weights.name, weights)
    shutil.copy(FIXTURES / "tf2.15" / "policies.json", tmp_path)
    modules = imported("inspect", weights)
    assert READING in modules
    assert not among(modules, NEVER | PLANNER)


@pytest.mark.parametrize(
    ("arguments", "needed", "unneeded"),
    [
        (("inspect", "--format", "json", MIXED_H5, MIXED_KERAS), POOL, {"policytool.rules"}),
        (("audit", MIXED_H5, MIXED_KERAS, "--jobs", "2"), POOL, set()),
        (
            ("inspect", "--summary", "--format", "csv", FIXED_SCALE_H5),
            "policytool.reports.summaries",
            set(),
        ),
        (("diff", MIXED_H5, MIXED_KERAS), "policytool.comparison", NUMERICS),
        (("diff", MIXED_SAVEDMODEL, UNPACKED), "policytool.comparison", NUMERICS),
        (("diff", MIXED_JSON, MIXED_JSON), "policytool.comparison", {*HEAVY, *NUMERICS}),
        (
            ("explain", "'str' object has no attribute 'quantization_mode'"),
            "policytool.troubleshooting",
            HEAVY,
        ),
        (("--help",), "click", HEAVY),
        (("--version",), "click", HEAVY),
        (("inspect", "--help"), "click", HEAVY),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else "",
)
def test_commands_import_only_necessary_modules(
    arguments: tuple[str | Path, ...], needed: str, unneeded: set[str]
) -> None:
    """
    For several files, the starting process reads no model. Commands that print text start at once.
    """
    modules = imported(*arguments)
    assert needed in modules
    assert not among(modules, NEVER | unneeded)


def test_migrate_of_an_architecture_imports_no_library_for_weights(tmp_path: Path) -> None:
    modules = imported("migrate", MIXED_JSON, "-o", tmp_path / "new.json")
    assert (tmp_path / "new.json").is_file()
    assert not among(modules, NEVER | {"h5py", "numpy", "ml_dtypes"})


_OPENED: Final = """
import sys
sys.addaudithook(lambda event, values: event == "open" and print(values[0], file=sys.stderr))
from policytool.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["h5", "keras", "custom", "preset"])
def test_only_presets_read_the_classes_of_keras_hub(tmp_path: Path, name: str) -> None:
    """A custom class of another module needs no list of KerasHub either."""
    files = {**FILES, "custom": FIXTURES / "keras3.15/custom_unregistered.keras"}
    file = files[name] if name in files else write_recorded(tmp_path, "Bert", "float32")
    done = run_captured([sys.executable, "-c", _OPENED, "audit", str(file)], check=False)
    assert "pure_classes.json" in done.stderr
    assert ("keras_hub_classes.json" in done.stderr) is (name == "preset")


def test_completion_imports_nothing_heavy() -> None:
    """Completion must answer between two keystrokes."""
    modules = imported(
        _POLICYTOOL_COMPLETE="bash_complete",
        COMP_WORDS="policytool audit --select PT",
        COMP_CWORD="3",
    )
    assert "policytool.rules" in modules
    assert not among(modules, NEVER | HEAVY)


def test_import_of_the_package_costs_nothing() -> None:
    """``import policytool`` loads its functions when they are used."""
    script = (
        "import sys, policytool; print(*sorted(name for name in sys.modules if "
        "name.startswith('policytool')))"
    )
    done = run_captured([sys.executable, "-c", script])
    assert done.stdout.split() == ["policytool"]


@pytest.mark.parametrize("format_name", sampled("formats beside broken frameworks", FILES, share=3))
def test_broken_frameworks_do_no_harm(format_name: str, tmp_path: Path) -> None:
    """If an installed TensorFlow or Keras fails at import, inspect works as without it."""
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
