"""
The newest Keras loads functional models of all its operations, which it wrote, as the report says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

import policytool
from policytool.releases.releases import KERAS3, newest
from tests.compat.asking import run_script
from tests.compat.conftest import COMPAT

PROGRAM: Final = Path(__file__).with_name("operation_calls.py")
WRITTEN: Final = 600
"""The least expressions that come to a file: Keras 3.15.1 writes more."""

pytestmark = pytest.mark.compat


def test_verdicts_on_operations_agree_with_the_release_that_wrote_the_model(tmp_path: Path) -> None:
    """Only a model that calls a function has an unknown verdict, and no verdict is wrong."""
    assert COMPAT is not None
    run_script(COMPAT, PROGRAM, tmp_path)
    loads = json.loads((tmp_path / "loads.json").read_text(encoding="utf-8"))
    assert len(loads) > WRITTEN
    unknown, wrong = [], []
    for name, (text, error) in loads.items():
        verdict = policytool.inspect(str(tmp_path / name)).releases[newest(KERAS3).id]
        if verdict.not_judged is not None:
            if "calls the function" not in verdict.not_judged or error is None:
                unknown.append(f"{text}: {verdict.not_judged}")
        elif verdict.loads != (error is None):
            wrong.append(f"{text}: {verdict.reason or 'loads'}, but Keras: {error or 'loads'}")
    assert not unknown, "\n".join(unknown)
    assert not wrong, "\n".join(wrong)
