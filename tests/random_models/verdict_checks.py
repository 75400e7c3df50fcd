"""
What ``inspect`` says of loaders, against what both libraries make of each file of a campaign: the
models, what they become, and what that becomes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import policytool
from policytool.model.model import Outcome
from tests.random_models.children import answers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from policytool.model.model import Verdict

_LOADERS: Final = {"keras": "keras3.15", "tf_keras": "tf_keras2.21"}


def wrong_verdicts(files: Sequence[Path], python: Path) -> dict[Path, str]:
    """Return what is said otherwise than it is, by the file."""
    wrong: dict[Path, str] = {}
    verdicts = {file: policytool.inspect(str(file)).releases for file in files}
    for library, loader in _LOADERS.items():
        jobs = [{"path": str(file)} for file in files]
        for file, found in zip(files, answers(python, "load_files", library, jobs), strict=True):
            for text in _disagreements(verdicts[file][loader], found):
                wrong.setdefault(file, f"{file.name} in {loader}: {text}")
    return wrong


def _disagreements(verdict: Verdict, found: Mapping[str, str | None]) -> Iterator[str]:
    if "error" in found:  # the process ended, or hung
        if verdict.loads:
            yield f"said to load, but {found['error']}"
        return
    plain, whole = found["plain"], found["whole"]
    if verdict.not_judged is None and verdict.loads is not (plain is None):
        yield f"{verdict.reason or 'loads'}, but {plain or 'it loads'}"
    training = verdict.training
    if plain is None and training is not None and training.doubt is None:
        if (training.outcome is Outcome.LOADS) is not (whole is None):
            yield f"compiled: {training.reason or 'loads'}, but {whole or 'it loads'}"
    elif plain is None and training is None and verdict.loads and whole is not None:
        yield f"compiled: nothing is said, but {whole}"
