"""
The newest tf_keras and Keras make of saved training configurations what the rows of
``policytool/model/compatibility/training_incompatibilities.py`` say.

They are asked by the programs that wrote ``fixtures/loads.json`` and
``fixtures/training_state.json``.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.formats import format_detection
from policytool.model import reading
from policytool.model.compatibility import training_incompatibilities
from policytool.model.compatibility.training_incompatibilities import (
    LOST_STATE,
    TrainingEvidence,
    first_matching_row,
)
from policytool.model.compatibility.training_verdicts import verdict
from policytool.model.model import Outcome
from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.compat.cases import LIBRARIES
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

RECORDED: Final[dict[str, Any]] = json.loads((FIXTURES / "loads.json").read_text(encoding="utf-8"))[
    "loads"
]
STATE: Final[dict[str, Any]] = json.loads(
    (FIXTURES / "training_state.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """A compiled fixture."""

    file: str
    format: str
    evidence: TrainingEvidence


def compiled() -> list[Compiled]:
    """Return every compiled fixture with what is judged of it."""
    actual = []
    for file, row in RECORDED.items():
        if "compiled" in row:
            loaded = reading.load_model(format_detection.document(FIXTURES / file, file))
            evidence = training_incompatibilities.evidence(
                loaded.document, loaded.placed, keras3=loaded.origins[-1].id.startswith("keras3")
            )
            assert evidence is not None
            actual.append(Compiled(file=file, format=loaded.document.format, evidence=evidence))
    return actual


def ask(
    python: Path, module: str, release: str, jobs: list[list[Any]], scratch: Path
) -> list[dict[str, Any]]:
    """Return what one of the fixtures' programs says of each job."""
    listed, results = scratch / "jobs.json", scratch / "results.jsonl"
    listed.write_text(json.dumps(jobs), encoding="utf-8")
    results.unlink(missing_ok=True)
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "KERAS_HOME": str(scratch),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [str(python), "-m", module, release, str(listed), str(results)]
    done = subprocess.run(
        command, cwd=FIXTURES, env=environment, capture_output=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    ended = [
        event
        for line in results.read_text(encoding="utf-8").splitlines()
        if "end" in (event := json.loads(line))
    ]
    assert len(ended) == len(jobs)
    return ended


@pytest.mark.parametrize("library", LIBRARIES)
def test_training_configurations_load_or_fail_as_predicted(
    compat_python: Path, tmp_path: Path, library: str
) -> None:
    """
    A model that loads without its training configuration loads with it, unless a row says that it
    fails.
    """
    cases = compiled()
    jobs = [
        [case.format, str(FIXTURES / case.file), mode] for case in cases for mode in (False, True)
    ]
    actual = [
        event["outcome"] for event in ask(compat_python, "writer.load", library, jobs, tmp_path)
    ]
    wrong, compared = [], 0
    for one, plain, whole in zip(cases, actual[::2], actual[1::2], strict=True):
        result = verdict(one.evidence, library)
        if plain == "ok" and result.doubt is None:
            compared += 1
            wrong += (
                []
                if (whole == "ok") is (result.outcome is Outcome.LOADS)
                else [f"{one.file}: {result.reason or 'taken'}, the library {whole}"]
            )
    assert not wrong, "\n".join(wrong)
    assert compared > 15


@pytest.mark.parametrize("library", LIBRARIES)
def test_optimizer_state_is_restored_unless_reported_as_lost(
    compat_python: Path, tmp_path: Path, library: str
) -> None:
    """The state of an optimizer is complete after loading, unless a row reports the loss."""
    cases = [item for item in compiled() if item.file in STATE]
    events = ask(
        compat_python,
        "writer.training_state",
        library,
        [[case.format, str(FIXTURES / case.file)] for case in cases],
        tmp_path,
    )
    wrong, compared = [], 0
    for one, event in zip(cases, events, strict=True):
        row = first_matching_row(LOST_STATE, one.evidence, library)
        if "error" not in event and event["stored"]:
            compared += 1
            restored = event["found"] == event["stored"]
            wrong += (
                []
                if restored is (row is None)
                else [f"{one.file}: {row.reason if row else 'restored'}, the library {event}"]
            )
    assert not wrong, "\n".join(wrong)
    assert compared > 15
