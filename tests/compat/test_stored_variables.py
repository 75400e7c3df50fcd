"""
What the report says of files with damaged variables, beside what the newest libraries do with them.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.model.model import Outcome
from tests.compat.asking import Job, ask
from tests.compat.cases import LIBRARIES
from tests.compat.test_loading import RECORD
from tests.helpers.damaged_variables import (
    CHECKPOINT_KINDS,
    KINDS,
    damaged_checkpoint,
    damaged_copy,
)
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.compat

SHARE: Final = 20
MOST_MISSED: Final = 0.05
"""
The share of damaged files that may be said to load, such as those in which the shapes of scales of
quantized layers are wrong.
"""


def _copies(library: str, folder: Path) -> Iterator[Path]:
    """Write a sample of damaged copies of the fixtures that a library loads."""
    loaded = [
        name
        for name, row in RECORD.items()
        if name.endswith((".h5", ".keras"))
        and library in row.get("ok", "").split()
        and name.endswith(".keras") == zipfile.is_zipfile(FIXTURES / name)
    ]  # without HDF5 files named .keras
    cases = sampled(
        f"damaged variables {library}",
        [(name, kind) for name in loaded for kind in KINDS],
        share=SHARE,
    )
    for number, (name, kind) in enumerate(cases):
        copy = folder / f"{number}{Path(name).suffix}"
        if damaged_copy(FIXTURES / name, copy, kind, Random(f"{name} {kind}")):  # noqa: S311
            yield copy


@pytest.mark.parametrize("library", LIBRARIES)
def test_verdicts_on_damaged_variables_agree_with_the_loads(
    compat_python: Path, tmp_path: Path, library: str
) -> None:
    """No file that loads has a failing verdict, and few files that fail have a loading verdict."""
    copies = list(_copies(library, tmp_path))
    jobs = [Job(format=path.suffix[1:], path=str(path)) for path in copies]
    answers = ask(compat_python, library, jobs)
    wrong, missed = [], []
    for path, job in zip(copies, jobs, strict=True):
        error = answers.loaded[job].error
        verdict = policytool.inspect(path).releases[library]
        if verdict.outcome is Outcome.INCOMPATIBLE and error is None:
            wrong.append(f"{path}: {verdict.reason}")
        if verdict.outcome is Outcome.LOADS and error is not None:
            missed.append(f"{path}: {error}")
    assert not wrong, wrong
    assert len(missed) <= max(1, MOST_MISSED * len(copies)), missed


def test_savedmodels_with_damaged_checkpoints_fail_as_predicted(
    compat_python: Path, tmp_path: Path
) -> None:
    """The verdict and the load of each damaged SavedModel is a failure."""
    models = [
        path.parent
        for path in sorted(FIXTURES.glob("*/*/saved_model.pb"))
        if "tf_keras2.21" in RECORD[str(path.parent.relative_to(FIXTURES))].get("ok", "").split()
    ]
    cases = sampled(
        "damaged checkpoints",
        [(path, kind) for path in models for kind in CHECKPOINT_KINDS],
        share=8,
    )
    copies = [
        tmp_path / str(number)
        for number, (path, kind) in enumerate(cases)
        if damaged_checkpoint(path, tmp_path / str(number), kind, Random(f"{path.name} {kind}"))  # noqa: S311
    ]
    jobs = [Job(format="savedmodel", path=str(path)) for path in copies]
    answers = ask(compat_python, "tf_keras2.21", jobs)
    assert all(answers.loaded[job].error is not None for job in jobs)
    verdicts = [policytool.inspect(path).releases["tf_keras2.21"] for path in copies]
    assert {verdict.outcome for verdict in verdicts} == {Outcome.INCOMPATIBLE}
