"""Private copies of Orbax checkpoints, which are converted because no library loads all of them."""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import policytool
from policytool.formats.orbax import values
from policytool.migration.planning.options import Options
from policytool.numerics.hand_over import HandOver
from policytool.support.errors import ModelFileError
from tests.formats.orbax.test_read import ORBAX, needs_tensorstore
from tests.helpers.marks import THOROUGH
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from policytool.numerics.hand_over import PrivateCopy

pytestmark = needs_tensorstore

SHOWN = "runs/ckpt"


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the private directory for temporary files."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Return a checkpoint of a whole model."""
    return Path(shutil.copytree(ORBAX / "whole", tmp_path / "ckpt"))


def take(hand_over: HandOver, path: Path) -> PrivateCopy:
    """Return the copy of a checkpoint that is run."""
    return hand_over.take(path, SHOWN, converts=True)


@THOROUGH
@pytest.mark.parametrize(
    "case", sampled("copies", ["whole", "devices4", "quantized", "scalars"], share=2)
)
def test_copy_is_what_migrate_writes(case: str, tmp_path: Path, private: Path) -> None:
    """A copy has the bytes that `migrate` writes and the name of the checkpoint, and is removed."""
    migrated = tmp_path / "model.keras"
    policytool.migrate(ORBAX / case, target="keras3", output=migrated, verify=False)
    with HandOver() as hand_over:
        copy = take(hand_over, ORBAX / case)
        assert copy.document.path == SHOWN
        assert copy.model.document.format == "keras"
        assert copy.path.read_bytes() == migrated.read_bytes()
        assert stat.S_IMODE(hand_over.path.stat().st_mode) == 0o700
        assert copy.files == (copy.path,)
        assert take(hand_over, ORBAX / case) is copy
    assert list(private.iterdir()) == []


@THOROUGH
def test_changes_to_the_checkpoint_do_not_affect_the_copy(whole: Path) -> None:
    """The converted file is what runs, also if the checkpoint is removed."""
    with HandOver() as hand_over:
        copy = take(hand_over, whole)
        content = copy.path.read_bytes()
        shutil.rmtree(whole)
        assert take(hand_over, whole) is copy
        assert copy.path.read_bytes() == content


def test_only_check_and_tune_run_a_converted_copy(whole: Path) -> None:
    """`migrate --verify` cannot compare a conversion with itself."""
    with HandOver() as hand_over, pytest.raises(ModelFileError, match="convert it first"):
        hand_over.take(whole, SHOWN)


def with_config(path: Path, **keys: object) -> None:
    """Change keys of the first dense layer in the config of the newest step."""
    file = path / "1" / "model_config" / "_strings.json"
    strings = json.loads(file.read_text(encoding="utf-8"))
    config = json.loads(strings["config"])
    layer = next(item for item in config["config"]["layers"] if item["class_name"] == "Dense")
    layer["config"].update(keys)
    file.write_text(json.dumps({**strings, "config": json.dumps(config)}), encoding="utf-8")


@THOROUGH
def test_code_in_a_config_does_not_run(whole: Path, private: Path) -> None:
    """The converted file is checked like every other file before it runs."""
    code = {"class_name": "__lambda__", "config": {"value": "4wEAAAA="}}
    with_config(whole, activation=code)
    with HandOver() as hand_over, pytest.raises(ModelFileError) as raised:
        take(hand_over, whole)
    assert raised.value.code == "runs-code"
    assert raised.value.path == SHOWN
    assert list(private.iterdir()) == []


@pytest.mark.parametrize("case", ["weights_only", "weights3.13"])
def test_weights_alone_are_an_error(case: str) -> None:
    """A checkpoint without a config cannot run, and the message names the command that joins it."""
    with HandOver() as hand_over:
        with pytest.raises(ModelFileError, match="policytool migrate ARCHITECTURE --weights"):
            take(hand_over, ORBAX / case)
        with pytest.raises(ModelFileError, match="policytool migrate ARCHITECTURE --weights"):
            hand_over.copy_weights(ORBAX / case)


def test_missing_library_is_named(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TensorStore, the message names the extra that reads the values."""
    monkeypatch.setattr(values, "find_spec", lambda _: None)
    with HandOver() as hand_over, pytest.raises(ModelFileError, match=r"policytool\[orbax\]"):
        take(hand_over, whole)


def test_link_out_of_the_checkpoint_is_an_error(whole: Path, tmp_path: Path) -> None:
    """A link that leads out of the checkpoint is not followed."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    data = next((whole / "1" / "pytree" / "d").iterdir())
    data.unlink()
    data.symlink_to(secret)
    with HandOver() as hand_over, pytest.raises(ModelFileError, match="not a regular file"):
        take(hand_over, whole)


@THOROUGH
def test_options_convert_the_checkpoint(whole: Path) -> None:
    """The command that a check prints converts the checkpoint; other models have no target."""
    with HandOver() as hand_over:
        copy = take(hand_over, whole)
        options = copy.migration(Options(to="mixed_bfloat16"))
        assert (options.target, options.target_name) == ("keras3.15", "keras3")
        other = hand_over.take(ORBAX.parent / "keras3.15" / "rnn.keras", "m")
        assert other.migration(Options()).target is None
