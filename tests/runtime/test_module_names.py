"""Modules of the child that other interpreters import by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import policytool
from policytool.runtime.__main__ import JOBS
from tests.helpers.paths import ROOT

RUNTIME: Final = Path(policytool.__file__).parent / "runtime"

NAMED: Final = re.compile(
    r"(?:\bruntime\(|import_module\(f?)\"(?:(?:policytool_runtime|runtime|\{PACKAGE\})\.)?"
    r"((?:devices|engine|feeding|gradients|graphs)\.\w+|devices|op_placement|library|model_calls)\""
)
"""How scripts that run under the interpreter with TensorFlow name them."""


def test_each_job_has_a_function() -> None:
    """Each job has a function, whose module is imported at the first job of its kind."""
    assert JOBS
    for job in JOBS.values():
        module, _, function = job.rpartition(".")
        source = (RUNTIME / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert f"\ndef {function}(" in source, job


@pytest.mark.parametrize("folder", ["compat", "bench"])
def test_scripts_name_modules_that_exist(folder: str) -> None:
    """Only tests with TensorFlow import the modules under these names."""
    named = {
        match[1]
        for path in (ROOT / "tests" / folder).glob("*.py")
        for match in NAMED.finditer(path.read_text(encoding="utf-8"))
    }
    assert named
    missing = {name for name in named if not (RUNTIME / f"{name.replace('.', '/')}.py").is_file()}
    assert not missing
