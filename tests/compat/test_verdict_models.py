"""
Verdicts on models that no fixture shows, against what the newest libraries make of the files, with
and without the training configuration.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.model.model import Outcome
from tests.compat.asking import run_module
from tests.helpers.sampling import EVERY_CASE, sampled

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

LIBRARIES: Final = {"keras": "keras3.15", "tf_keras": "tf_keras2.21"}
SHARE: Final = 3
OPEN: Final = 0.1 if EVERY_CASE else 0.2
"""
The largest share of files that the report leaves open; of the few of a sample, more can be among
them.
"""

JUDGED: Final = 200
"""Verdicts on the files of a library, at least: fewer, and the test is about nothing."""


def _asked(python: Path, *arguments: str) -> str:
    return run_module(python, "verdict_models", *arguments, seconds=600)


@pytest.fixture(scope="module")
def folder(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of both libraries."""
    result = tmp_path_factory.mktemp("verdicts")
    for library in LIBRARIES:
        _asked(compat_python, "save", library, str(result))
    return result


@pytest.mark.parametrize("library", LIBRARIES)
def test_verdicts_agree_with_the_library(compat_python: Path, folder: Path, library: str) -> None:
    """In a sample of files, no known verdict is wrong, and few verdicts are unknown."""
    names = sampled(
        f"verdicts of {library}", sorted(path.name for path in folder.iterdir()), share=SHARE
    )
    printed = _asked(compat_python, "load", library, str(folder), *names)
    line = next(line for line in printed.splitlines() if line.startswith("FOUND "))
    outcomes: dict[str, list[Any]] = json.loads(line.removeprefix("FOUND "))
    wrong, judged, left = [], 0, 0
    for name, (plain, whole) in outcomes.items():
        verdict = policytool.inspect(str(folder / name)).releases[LIBRARIES[library]]
        judged += 1
        left += verdict.not_judged is not None
        if verdict.not_judged is None and verdict.loads is not (plain is None):
            wrong.append(f"{name}: {verdict.reason or 'loads'}, the library {plain or 'loads it'}")
        training = verdict.training
        if plain is None and training is not None:
            judged += 1
            left += training.doubt is not None
            loads = training.outcome is Outcome.LOADS
            if training.doubt is None and loads is not (whole is None):
                result = training.reason or "loads"
                wrong.append(f"{name}, compiled: {result}, the library {whole or 'loads it'}")
    assert not wrong, "\n".join(wrong)
    assert judged > (JUDGED if EVERY_CASE else JUDGED // (2 * SHARE))
    assert left <= OPEN * judged
