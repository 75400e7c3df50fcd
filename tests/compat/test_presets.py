"""
KerasHub presets in ``policytool.load`` and ``check``, with the KerasHub of the environment in
``POLICYTOOL_HUB``.
"""

from __future__ import annotations

import json
import os
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from tests.compat.asking import run_script
from tests.conftest import run
from tests.helpers.paths import ROOT
from tests.helpers.presets import add_task

HUB: Final = os.environ.get("POLICYTOOL_HUB")
"""Read before the tests: their own environment has no variable of policytool's."""

SCRIPT: Final = Path(__file__).with_name("preset_models.py")

pytestmark = [
    pytest.mark.compat,
    pytest.mark.xdist_group("presets"),
    pytest.mark.skipif(HUB is None, reason="POLICYTOOL_HUB names no interpreter with KerasHub"),
]


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with presets, and with the differences of their loaded backbones."""
    folder = tmp_path_factory.mktemp("presets")
    arguments = (ROOT, sysconfig.get_path("purelib"), folder)
    printed = run_script(str(HUB), SCRIPT, *map(str, arguments))
    (folder / "differences.txt").write_text(printed.splitlines()[-1], encoding="utf-8")
    return folder


def test_loaded_backbones_are_those_of_from_preset(folder: Path) -> None:
    """With the stored policy or policy map as ``dtype``."""
    differences = json.loads((folder / "differences.txt").read_text(encoding="utf-8"))
    assert differences == {"Llama-bfloat16": [], "Llama-int8": [], "CLIP-mixed_bfloat16": []}


@pytest.mark.parametrize(
    ("preset", "to", "policy"),
    [
        ("CLIP-mixed_bfloat16", None, "mixed_bfloat16"),  # in shards
        ("Llama-bfloat16", "mixed_float16", "mixed_float16"),
        ("Llama-int8", None, "int8_from_(global)"),
    ],
)
def test_backbones_are_compared_with_float32(
    folder: Path, preset: str, to: str | None, policy: str
) -> None:
    add_task(folder / preset, None)
    options = ("--to", to) if to is not None else ()
    ended = run("check", folder / preset, *options, "--python", str(HUB), "--format", "json")
    assert ended.code == 5, ended.err  # without data
    check = ended.json["check"]
    assert policy in check["candidate"]["policies"]
    assert "backbone" in {note["code"] for note in check["notes"]}
    (result,) = check["runs"]
    assert len(result["calls"]) > check["candidate"]["policies"][policy]
    assert result["missing"] == result["unmatched"] == []
    assert 0 < result["outputs"][0]["accumulated"]["relative"] < 0.1  # rounding


def test_predictions_of_backbones_are_compared_after_a_change(folder: Path, tmp_path: Path) -> None:
    """The task in the preset is not run."""
    preset = add_task(folder / "Llama-bfloat16", None)
    options = ("--to", "float32", "--verify", "--python", str(HUB))
    ended = run("migrate", preset, *options, "-o", tmp_path / "changed")
    assert ended.code == 0, ended.err
    assert "verified for the backbone: predictions of Keras 3.15" in ended.out
