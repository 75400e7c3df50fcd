"""The notebook of the documentation runs, and shows results as reports."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

NOTEBOOK: Final = ROOT / "docs/how-to/notebook.ipynb"
_EXECUTE: Final = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=120, resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[3])
"""


def code_cells(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook that hold code."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_outputs_are_not_stored() -> None:
    """Stored outputs would be outdated and large."""
    assert not [cell for cell in code_cells(NOTEBOOK) if cell["outputs"]]
    assert {cell["execution_count"] for cell in code_cells(NOTEBOOK)} == {None}


@THOROUGH
def test_every_cell_of_the_notebook_runs(tmp_path: Path) -> None:
    """In a kernel, as Jupyter runs them; results are HTML."""
    missing = [name for name in ("nbclient", "ipykernel") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.fail(f"not installed: {' and '.join(missing)}; `make quick` installs the extra dev")
    done = subprocess.run(
        [sys.executable, "-c", _EXECUTE, NOTEBOOK, NOTEBOOK.parent, tmp_path / "run.ipynb"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            **{f"{name}_DIR": str(tmp_path) for name in ("JUPYTER_RUNTIME", "JUPYTER_CONFIG")},
            "IPYTHONDIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    cells = code_cells(tmp_path / "run.ipynb")
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    shown = [output["data"] for cell in cells for output in cell["outputs"] if "data" in output]
    results = [data for data in shown if "".join(data["text/plain"]).startswith("<policytool.")]
    assert len(results) == 4
    assert all('<div class="policytool">' in "".join(data["text/html"]) for data in results)
