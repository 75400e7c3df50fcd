"""
Verdicts on the files of ``fixtures/claim_files.py``, whose models earlier verdicts were wrong
about: Normalization with given means, arrays as arguments, counts of words, masks that are joined,
and models without layers.
"""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.model.model import Outcome
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.model.model import PartVerdict, Verdict

RECORD: Final[dict[str, Any]] = json.loads((FIXTURES / "claims.json").read_text(encoding="utf-8"))

OPEN: Final = frozenset({"mean_of_all", "own_optimizer"})
"""
Cases with unknown verdicts: Keras 3 drops an axis that is an empty list in HDF5, and an optimizer
of a custom class may be passed in custom_objects.
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files."""
    result = tmp_path_factory.mktemp("claims")
    with zipfile.ZipFile(FIXTURES / "claims.zip") as archive:
        archive.extractall(result)
    return result


def _wrong(claim: Verdict | PartVerdict, subject: str, *, loads: bool) -> list[str]:
    if claim.outcome is (Outcome.LOADS if loads else Outcome.INCOMPATIBLE):
        return []
    is_open = claim.outcome is Outcome.UNKNOWN and any(case in subject for case in OPEN)
    return [] if is_open else [f"{subject}: {claim.explanation or 'loads'}"]


@THOROUGH
def test_claims_agree_with_the_recorded_loads(folder: Path) -> None:
    """Each release loads a file as its verdict says, and with the training configuration."""
    wrong, claims = [], 0
    for name, row in RECORD["files"].items():
        verdicts = policytool.inspect(folder / name).releases
        for loader in RECORD["loaders"].split():
            loads = loader in row["loads"].split()
            training = verdicts[loader].training
            wrong += _wrong(verdicts[loader], f"{name} in {loader}", loads=loads)
            claims += 1
            if loads and training is not None and "trains" in row:
                trains = loader in row["trains"].split()
                wrong += _wrong(training, f"{name} in {loader}, compiled", loads=trains)
    assert claims > 1000
    assert not wrong, "\n".join(wrong)
