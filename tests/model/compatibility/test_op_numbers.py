"""Verdicts on op layers whose numbers have another dtype than their tensors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import policytool
from policytool.model.model import Outcome
from tests.helpers.op_numbers import CASES, model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("op", "dtypes", "numbers", "loads"), CASES)
def test_releases_convert_numbers_to_float32_or_int32(
    op: str, dtypes: dict[str, str], numbers: dict[str, Any], *, loads: bool, tmp_path: Path
) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(model(op, dtypes, numbers)), encoding="utf-8")
    verdicts = policytool.inspect(str(path)).releases
    outcome = Outcome.LOADS if loads else Outcome.INCOMPATIBLE
    assert {verdicts[name].outcome for name in ("tf2.3", "tf2.15", "tf_keras2.21")} == {outcome}
    assert loads or "of another dtype" in str(verdicts["tf2.3"].explanation)
