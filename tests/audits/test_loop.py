"""
The command that an audit prints works, and its result passes the same audit.

``POLICYTOOL_LOOP_MODELS`` names a folder with further models, and ``python -m tests.audits.loop``
prints what becomes of those in its arguments.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.audits.loop import Turn, turns
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

OTHERS: Final = os.environ.get("POLICYTOOL_LOOP_MODELS")
SPREAD: Final = (
    "tf2.3/autocast_false.h5",
    "tf2.3/exp_mf16_fixed128.h5",
    "tf2.3/global_mixed_float16.json",
    "tf2.5/global_mixed_float16",
    "tf2.15/rnn.h5",
    "tf2.15/tf_op_layers.h5",
    "tf2.15/per_layer",
    "tf2.15/lso_fixed128.keras",
    "keras2.2.4/rnn.h5",
    "keras3.15/keras_ops.h5",
    "keras3.15/adam_autowrap_mf16.h5",
    "tfjs4.22/global_mixed_float16",
)
"""Models of each format that fail for the newest Keras."""

TARGETS: Final = ("keras3", None, "tf2.15", "tf2.14", "keras3.6")


def broken(found: list[Turn]) -> list[Turn]:
    """Return the models whose command failed, or whose result fails the audit."""
    return [turn for turn in found if turn.outcome in {"failed", "still"}]


@THOROUGH
@pytest.mark.parametrize("target", ["keras3", None])
def test_a_command_is_printed_and_fixes_the_model(target: str | None, tmp_path: Path) -> None:
    """
    The printed command fixes a model in each format, with options for weights, loss scales and
    containers.
    """
    models = tmp_path / "models"
    for name in SPREAD:
        source, copy = FIXTURES / name, models / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    actual = list(turns(models, target, tmp_path / "work"))
    assert len({turn.path for turn in actual}) == len(SPREAD)
    assert not broken(actual)
    counts = Counter(turn.outcome for turn in actual)
    assert counts["blocked"] == 0
    assert counts["fixed"] >= (11 if target is not None else 8)


@SLOW
@pytest.mark.parametrize("target", sampled("targets of printed commands", TARGETS, share=2))
def test_no_printed_command_fails(target: str | None, tmp_path: Path) -> None:
    """For every fixture; models without a command have a reason."""
    folders = [FIXTURES, *([Path(OTHERS)] if OTHERS else [])]
    for folder in folders:
        actual = list(turns(folder, target, tmp_path))
        assert not broken(actual)
        assert all(turn.details[1] for turn in actual if turn.outcome == "blocked")
        if folder == FIXTURES:
            counts = Counter(turn.outcome for turn in actual)
            assert counts["fixed"] > 2 * counts["blocked"]
