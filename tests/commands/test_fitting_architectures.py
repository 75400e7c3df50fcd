"""``inspect`` of weights names the architectures next to them that they fit."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from policytool.commands.fitting_architectures import fitting_architectures
from policytool.formats import format_detection
from policytool.support import limits
from tests.conftest import run
from tests.formats.orbax.test_read import ORBAX
from tests.helpers.paths import FIXTURES
from tests.helpers.separate_files import separate

if TYPE_CHECKING:
    from policytool.commands.inspect import FittingArchitectures

KERAS2 = FIXTURES / "tf2.15" / "default_float32.h5"
KERAS3 = FIXTURES / "keras3.15" / "default_float32.keras"


def fits(weights: Path) -> FittingArchitectures | None:
    """Return the architectures that a file fits."""
    return fitting_architectures(format_detection.document(weights, str(weights)), weights)


@pytest.mark.parametrize("model", [KERAS2, KERAS3])
def test_printed_command_joins_both(model: Path, tmp_path: Path) -> None:
    """The command that `inspect` prints writes the model, and its plan names both files."""
    architecture, weights = separate(model, tmp_path)
    shutil.copy(FIXTURES / "tf2.15" / "policies.json", tmp_path / "other.json")
    ended = run("inspect", weights)
    found = re.search(r"fits (\S+):\s+policytool ((?:[^\\\n]|\\\n)*)", ended.out)
    assert found is not None, ended.out
    assert found[1] == architecture.name
    words = found[2].replace("\\\n", " ").split()
    written = run(*words, "--no-verify")
    assert written.code == 0, written.err
    preview = run(*words, "--preview", "--existing", "replace", "--format", "json")
    assert json.loads(preview.out)["plans"][0]["weights"] == words[3]
    assert words[3].endswith(weights.name)


def test_weights_of_another_model_fit_nothing(tmp_path: Path) -> None:
    """Architectures that lack a layer of the weights are not named."""
    _, weights = separate(KERAS2, tmp_path)
    for path in tmp_path.glob("*.json"):
        path.unlink()
    shutil.copy(FIXTURES / "tf2.15" / "policies.json", tmp_path)
    (tmp_path / "settings.json").write_text('{"a": 1}', encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("class_name: [", encoding="utf-8")
    assert fits(weights) is None


def test_model_with_weights_of_its_own_has_no_command(tmp_path: Path) -> None:
    """An archive is named, but `migrate --weights` accepts only architectures."""
    architecture, weights = separate(KERAS3, tmp_path)
    architecture.unlink()
    shutil.copy(KERAS3, tmp_path / "whole.keras")
    found = fits(weights)
    assert found is not None
    assert (found.names, found.command) == (("whole.keras",), None)


def test_links_out_of_the_directory_are_not_followed(tmp_path: Path) -> None:
    """A link to an architecture elsewhere is not read; a link to a neighbor is."""
    inner = tmp_path / "inner"
    inner.mkdir()
    architecture, weights = separate(KERAS2, inner)
    outside = tmp_path / "outside.json"
    architecture.rename(outside)
    (inner / "link.json").symlink_to(outside)
    os.mkfifo(inner / "pipe.json")
    (inner / "folder.json").mkdir()
    assert fits(weights) is None
    shutil.copy(outside, inner / "copy.json")
    found = fits(weights)
    assert found is not None
    assert found.names == ("copy.json",)


def test_number_of_architectures_is_limited(tmp_path: Path) -> None:
    """Of many files, only some are read, those with the name of the weights first."""
    architecture, weights = separate(KERAS2, tmp_path)
    for number in range(100):
        shutil.copy(architecture, tmp_path / f"a{number:03}.json")
    architecture.rename(weights.with_name(f"{weights.name.partition('.')[0]}.json"))
    found = fits(weights)
    assert found is not None
    assert len(found.names) == 16
    assert found.names[0] == f"{weights.name.partition('.')[0]}.json"


def test_spent_budget_does_not_fail_the_report(tmp_path: Path) -> None:
    """If neighbors need more steps than the limit, the weights are still reported."""
    architecture, weights = separate(KERAS2, tmp_path)
    with limits.override({"file-steps": 10_000}):
        config = json.loads(architecture.read_bytes())
        config["config"]["layers"] *= 3_000
        architecture.write_text(json.dumps(config), encoding="utf-8")
        ended = run("inspect", weights)
    assert ended.code == 0, ended.err
    assert "fits" not in ended.out


def test_weights_of_an_orbax_checkpoint_fit_too(tmp_path: Path) -> None:
    """The architecture is next to the directory of the checkpoint."""
    strings = (ORBAX / "whole" / "1" / "model_config" / "_strings.json").read_bytes()
    (tmp_path / "model.json").write_text(json.loads(strings)["config"], encoding="utf-8")
    checkpoint = Path(shutil.copytree(ORBAX / "weights_only", tmp_path / "ckpt"))
    found = fits(checkpoint)
    assert found is not None
    assert found.names == ("model.json",)
