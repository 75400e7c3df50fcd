"""
What the report says of every fixture and every loader, beside what the loader did: the table goes
to ``build/loading.md``.

The newest tf_keras and Keras are asked anew. The other releases stand in the record
(``fixtures/loads.json``); they are asked anew too where ``POLICYTOOL_VENVS`` names the folder with
the environments of all releases, which takes half an hour.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from policytool.releases.releases import LOADERS
from tests.compat.cases import LIBRARIES, SAMPLE, job
from tests.helpers.paths import FIXTURES, ROOT
from tests.model.test_truth import report

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.model.model import Verdict
    from tests.compat.asking import Answers
    from tests.model.test_truth import Case

# One worker asks both libraries about all files.
pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("newest loaders")]

VENVS: Final = os.environ.get("POLICYTOOL_VENVS")
TABLE: Final = ROOT / "build" / "loading.md"
RECORD: Final = json.loads((FIXTURES / "loads.json").read_text(encoding="utf-8"))["loads"]


def _recorded(case: Case) -> dict[str, bool]:
    """Return, by loader, whether it took the file when it was asked last."""
    row = RECORD.get(f"{case.folder}/{case.file}", {})
    return {
        loader: result == "ok"
        for result, loaders in row.items()
        if result != "compiled"
        for loader in loaders.split()
    }


def _cell(verdict: Verdict, loads: bool) -> str:  # noqa: FBT001
    """Return what was predicted, and behind a slash what was, where they are not the same word."""
    actual = "loads" if loads else "refuses"
    result = "loads" if verdict.loads else "not judged" if verdict.not_judged else "refuses"
    return result if result == actual else f"{result} / {actual}"


def test_known_verdicts_agree_with_the_loads(answers: Callable[[str], Answers]) -> None:
    """The table shows the predicted and the actual result of each pair."""
    rows, wrong, judged, total = [], [], 0, 0
    for case in SAMPLE:
        did = {
            **_recorded(case),
            **{library: answers(library).loaded[job(case)].error is None for library in LIBRARIES},
        }
        cells = {
            loader: _cell(verdict, did[loader])
            for loader, verdict in report(case.path).releases.items()
            if loader in did
        }
        rows.append(
            f"| {case.folder}/{case.file} | "
            + " | ".join(cells.get(loader, "") for loader in LOADERS)
            + " |"
        )
        open_cells = sum(cell.startswith("not judged") for cell in cells.values())
        judged, total = judged + len(cells) - open_cells, total + len(cells)
        wrong += [
            f"{case.path} in {loader}: {cell}"
            for loader, cell in cells.items()
            if " / " in cell and not cell.startswith("not judged")
        ]
    TABLE.parent.mkdir(exist_ok=True)
    head = (
        f"Of {total} pairs of a file and a loader {judged} are judged ({judged / total:.1%}), "
        f"{len(wrong)} of them wrong. `predicted / actual`.\n\n"
    )
    titles = "| file | " + " | ".join(LOADERS) + " |\n" + "| --- |" * (len(LOADERS) + 1) + "\n"
    TABLE.write_text(
        f"# What the report says of loaders, and what they did\n\n{head}{titles}"
        + "\n".join(rows)
        + "\n",
        encoding="utf-8",
    )
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif(
    VENVS is None, reason="POLICYTOOL_VENVS does not say where the environments of the releases are"
)
@pytest.mark.parametrize("loader", [loader for loader in LOADERS if loader not in LIBRARIES])
def test_recorded_results_agree_with_the_release(loader: str) -> None:
    command = [
        sys.executable,
        str(FIXTURES / "loads.py"),
        "--check",
        "--venvs",
        str(Path(VENVS or "").absolute()),
        loader,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
