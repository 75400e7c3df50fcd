"""Reading of Orbax checkpoints that Keras 3.13 and 3.15 wrote."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.formats import FORMATS, Probe, format_detection, orbax
from policytool.formats.document import ValuesError
from policytool.formats.orbax import values
from policytool.model import reading
from policytool.model.model import Obstacle
from tests.conftest import run
from tests.contracts.format_contract import FormatContract
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.model.model import Verdict

ORBAX: Final = FIXTURES / "orbax"
TRUTH: Final = json.loads((ORBAX / "variables.json").read_text(encoding="utf-8"))
CASES: Final = sorted(TRUTH)
WITH_CONFIG: Final = [case for case in CASES if not case.startswith("weights")]
SEED: Final = "seed_generator"

needs_tensorstore = pytest.mark.skipif(
    find_spec("tensorstore") is None, reason="TensorStore is not installed"
)


@needs_tensorstore
@THOROUGH
class TestOrbax(FormatContract):
    package = "orbax"
    document_format = ("orbax", "weights")
    samples = (ORBAX / "devices4", *sampled("contract", map(ORBAX.joinpath, CASES), share=3))
    parts = ("0/pytree/_METADATA",)
    mutations = 20  # each copy starts a process


@pytest.fixture(name="whole")
def _whole(tmp_path: Path) -> Path:
    """Return a copy of the checkpoint with two steps."""
    return Path(shutil.copytree(ORBAX / "whole", tmp_path / "whole"))


def newest(case: str) -> Path:
    """Return the newest step of a fixture."""
    numbers = orbax.step_numbers(path.name for path in (ORBAX / case).iterdir())
    return ORBAX / case / str(numbers[0])


def verdict(path: Path) -> Verdict:
    """Return the verdict of Keras 3.15."""
    loaders = reading.model_of(format_detection.document(path, path.name)).loaders
    return next(item for item in loaders if item.loader == "keras3.15")


def expected(case: str) -> dict[str, tuple[Any, ...]]:
    """
    Return the shape, the dtype and the checksum of the variables that Keras saved, by path. The
    states of random generators belong to no layer of a config.
    """
    return {
        path: (tuple(shape), *rest)
        for path, shape, *rest in TRUTH[case]["variables"]
        if case not in WITH_CONFIG or not path.startswith(SEED)
    }


@THOROUGH
@needs_tensorstore
@pytest.mark.parametrize("case", CASES)
def test_variables_equal_those_that_keras_saved(case: str) -> None:
    """Names, shapes, dtypes and values are equal, also for variables that devices share."""
    path = ORBAX / case
    document = format_detection.document(path, case)
    with format_detection.open_values(path, document) as stored:
        assert stored is not None
        found = {
            "/".join(tensor.path): (
                tensor.shape,
                tensor.dtype,
                hashlib.sha256(
                    b"".join(block.tobytes() for block in stored.blocks(tensor))
                ).hexdigest(),
            )
            for tensor in document.tensors or ()
        }
    if case == "scalars":  # a backend that is not JAX stores scalars as Python's numbers
        assert found.keys() == expected(case).keys()
    else:
        assert found == expected(case)


@THOROUGH
@needs_tensorstore
@pytest.mark.parametrize("case", WITH_CONFIG)
def test_layers_that_keras_does_not_restore_are_reported(case: str) -> None:
    """
    Keras restores only variables whose path in the loaded model is stored, and loads the others
    with their initial values. The verdict names the layers with such variables.
    """
    loaded = {path for path in TRUTH[case]["loaded"] if not path.startswith(SEED)}
    lost = loaded - expected(case).keys()
    causes = verdict(ORBAX / case).causes
    assert all(cause.kind is Obstacle.STORAGE for cause in causes)
    layers = {path.rpartition("/")[2] for cause in causes for path in cause.layers}
    if TRUTH[case]["loads"]["compile=True"] == "loads":
        assert layers == {path.partition("/")[0] for path in lost}
    else:  # variables of two layers have the same path
        assert causes


def test_newest_step_is_read_and_all_steps_are_listed(whole: Path) -> None:
    """Keras loads the step with the largest number; other names are not steps."""
    (whole / "10").mkdir()
    for name in ("_CHECKPOINT_METADATA", "pytree", "model_config"):
        (whole / "1" / name).rename(whole / "10" / name)
    (whole / "1").rmdir() if not any((whole / "1").iterdir()) else shutil.rmtree(whole / "1")
    for name in ("011", "-12", "step_13", "14x"):
        (whole / name).mkdir()
    (whole / "15").write_bytes(b"")
    messages = [item.message for item in policytool.inspect(whole).observations]
    assert any("the steps 0 and 10; this report is about step 10" in text for text in messages)


@THOROUGH
def test_a_step_is_a_model_that_keras_does_not_load(whole: Path) -> None:
    """A step can be specified, but Keras loads only the directory above it."""
    step = verdict(whole / "0")
    assert step.reason == "Keras loads only the directory that contains the step"
    assert policytool.inspect(whole / "0/pytree/_METADATA").path.endswith("whole/0")


def test_unfinished_steps_are_named(whole: Path) -> None:
    """Keras ignores a step that Orbax has not renamed."""
    (whole / "7.orbax-checkpoint-tmp").mkdir()
    codes = {item.code: item.message for item in policytool.inspect(whole).observations}
    assert "7.orbax-checkpoint-tmp, which was not finished" in codes["orbax-unfinished"]


def test_checkpoint_with_only_unfinished_steps_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ckpt/0.orbax-checkpoint-tmp").mkdir(parents=True)
    ended = run("inspect", tmp_path / "ckpt")
    assert ended.code == 3
    assert "without a finished step. It contains 0.orbax-checkpoint-tmp" in ended.err


def test_empty_newest_step_is_an_error(whole: Path) -> None:
    """Keras loads the directory with the largest number, even if it is empty."""
    (whole / "3").mkdir()
    ended = run("inspect", whole)
    assert ended.code == 3
    assert "step 3, which Keras would load, contains no variables" in ended.err


@pytest.mark.parametrize("name", ["model_config/_strings.json", "pytree/_METADATA"])
def test_missing_file_of_a_step_is_named(whole: Path, name: str) -> None:
    """The error names the file, and not the directory, which exists."""
    (whole / "1" / name).unlink()
    said = run("inspect", whole)
    assert said.code == 3
    assert f"it lacks 1/{name}" in said.err


def test_other_numbered_directories_are_not_checkpoints(tmp_path: Path) -> None:
    """TensorFlow Serving and folders of images also use numbers as names."""
    (tmp_path / "1/variables").mkdir(parents=True)
    (tmp_path / "2").mkdir()
    probe = Probe(tmp_path, "x")
    assert not [item for item in FORMATS if item.recognise(probe)]


def test_other_trees_are_skipped_in_directories(whole: Path) -> None:
    """An Orbax checkpoint of another library is not a model."""
    change(whole / "1/pytree/_METADATA", lambda text: text.replace("trainable_variables", "params"))
    ended = run("inspect", whole)
    assert ended.code == 3
    assert "orbax-not-keras" in ended.err
    assert run("inspect", whole.parent).code == 4


def test_number_of_devices_is_reported() -> None:
    """Without a distribution, Keras fails to load the variables of more devices than it has."""
    (about,) = [
        item
        for item in policytool.inspect(ORBAX / "devices4").observations
        if item.code == "orbax-devices"
    ]
    assert about.message.startswith("it was written on 4 devices, which share ")


def test_dtypes_are_unknown_without_tensorstore(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, JSON has the config, the names, and the shapes of one device."""
    monkeypatch.setattr(values, "find_spec", lambda _: None)
    model = policytool.inspect(ORBAX / "whole")
    assert {item.dtype for layer in model.layers for item in layer.variables} == {"unknown"}
    hidden = next(layer for layer in model.layers if layer.name == "hidden")
    assert {item.shape for item in hidden.variables} == {(4, 3), (3,)}
    assert "pip install 'policytool[orbax]'" in model.observations[1].message
    shared = policytool.inspect(ORBAX / "devices4")
    assert {item.shape for layer in shared.layers for item in layer.variables} == {None}


def test_uncompiled_model_fails_to_load(whole: Path) -> None:
    """Keras 3.15 reads the optimizer of the model, and fails if there is none."""

    def without_training(text: str) -> str:
        strings = json.loads(text)
        config = json.loads(strings["config"])
        config["compile_config"] = None
        return json.dumps({"config": json.dumps(config)})

    change(whole / "1/model_config/_strings.json", without_training)
    assert "only if the model is compiled" in (verdict(whole).reason or "")


def change(path: Path, edit: Callable[[str], str]) -> None:
    """Edit a text file."""
    path.write_text(edit(path.read_text(encoding="utf-8")), encoding="utf-8")


def edited(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Edit a JSON file."""
    value = json.loads(path.read_text(encoding="utf-8"))
    edit(value)
    path.write_text(json.dumps(value), encoding="utf-8")


METADATA: Final = "1/pytree/_METADATA"
STRINGS: Final = "1/model_config/_strings.json"


def _large_text(path: Path) -> None:
    os.truncate(path, 2**29)


def _replace_with_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_with_link(path: Path) -> None:
    original = ORBAX.joinpath(*path.parts[path.parts.index("whole") :])
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(original)


def _entry(key: str, **metadata: object) -> dict[str, Any]:
    keys = [{"key": part, "key_type": 2} for part in key.split("/")]
    return {"key_metadata": keys, "value_metadata": metadata}


HOSTILE: Final[dict[str, tuple[str, Callable[[Path], object]]]] = {
    "a list for the metadata": (METADATA, lambda path: path.write_text("[]")),
    "no tree": (METADATA, lambda path: path.write_text("{}")),
    "nested lists": (METADATA, lambda path: path.write_text("[" * 10**6)),
    "a long file": (METADATA, _large_text),
    "not JSON": (METADATA, lambda path: path.write_bytes(b"\xff\x00")),
    "no metadata": (METADATA, lambda path: path.unlink()),
    "a FIFO": (METADATA, _replace_with_fifo),
    "a link to another directory": (METADATA, _replace_with_link),
    "many arrays": (
        METADATA,
        lambda path: edited(
            path,
            lambda value: value["tree_metadata"].update(
                {str(n): _entry(f"trainable_variables/{n}") for n in range(100_000)}
            ),
        ),
    ),
    "an array that is not stored": (
        METADATA,
        lambda path: edited(
            path,
            lambda value: value["tree_metadata"].update(x=_entry("trainable_variables/more")),
        ),
    ),
    "a name that leaves the directory": (
        METADATA,
        lambda path: edited(
            path,
            lambda value: value["tree_metadata"].update(
                x=_entry("trainable_variables/../../../whole/1/pytree")
            ),
        ),
    ),
    "a name that is not UTF-8": (
        METADATA,
        lambda path: edited(
            path,
            lambda value: value["tree_metadata"].update(x=_entry("trainable_variables/\udcff")),
        ),
    ),
    "a name of many parts": (
        METADATA,
        lambda path: edited(
            path,
            lambda value: value["tree_metadata"].update(
                x=_entry("trainable_variables" + "/a" * 100_000)
            ),
        ),
    ),
    "a step of another directory": ("1", _replace_with_link),
    "an unfinished newest step": ("2", lambda path: path.mkdir()),
    "a variable twice": (
        METADATA,
        lambda path: edited(
            path,
            lambda value: value["tree_metadata"].update(
                x=_entry("trainable_variables/y"), y=_entry("trainable_variables/y")
            ),
        ),
    ),
    "keys that are not texts": (
        METADATA,
        lambda path: edited(
            path,
            lambda value: value["tree_metadata"].update(
                x={"key_metadata": [{"key": 1}], "value_metadata": {}}
            ),
        ),
    ),
    "devices that are not base64": (
        "1/pytree/_sharding",
        lambda path: path.write_text('{"é": "{}"}'),
    ),
    "no config": (STRINGS, lambda path: path.write_text('{"config": 1}')),
    "a config of something else": (STRINGS, lambda path: path.write_text('{"config": "{}"}')),
    "a nested config": (
        STRINGS,
        lambda path: path.write_text(json.dumps({"config": "[" * 10**6})),
    ),
    "a damaged manifest": (
        "1/pytree/manifest.ocdbt",
        lambda path: path.write_bytes(path.read_bytes()[:40] + b"x" * 40),
    ),
    "an empty manifest": ("1/pytree/manifest.ocdbt", lambda path: path.write_bytes(b"")),
    "no manifest": ("1/pytree/manifest.ocdbt", lambda path: path.unlink()),
    "no data": ("1/pytree/d", shutil.rmtree),
    "data behind a link": ("1/pytree/d", _replace_with_link),
}


@THOROUGH
@needs_tensorstore
@pytest.mark.parametrize("what", HOSTILE)
def test_damaged_checkpoints_are_errors_with_a_sentence(what: str, whole: Path) -> None:
    """Each damage is an error with a code, and not a traceback or a crash."""
    name, damage = HOSTILE[what]
    damage(whole / name)
    ended = run("inspect", whole)
    assert ended.code == 3, ended.out
    assert len(ended.err.splitlines()) <= 4
    assert len(ended.err) < 2_000
    assert "Traceback" not in ended.err
    assert "TensorStore was terminated" not in ended.err
    assert f'"{whole}' not in ended.err, "TensorStore's paths may be those of private copies"


@needs_tensorstore
@pytest.mark.parametrize("number", ["9" * 60, "9" * 200])
def test_steps_have_numbers_of_any_size(number: str, whole: Path) -> None:
    """The largest number is the newest step."""
    shutil.copytree(whole / "1", whole / number)
    ended = run("inspect", whole, "--format", "json")
    assert ended.code == 0, ended.err
    assert number in ended.out


@THOROUGH
@needs_tensorstore
def test_values_of_a_damaged_file_are_an_error(whole: Path) -> None:
    """The checksum of OCDBT shows changed values."""
    document = format_detection.document(whole, "x")
    for path in (whole / "1/pytree").rglob("d/*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    with format_detection.open_values(whole, document) as stored:
        assert stored is not None
        tensors = document.tensors or ()
        with pytest.raises(ValuesError) as raised:
            list(chain.from_iterable(stored.blocks(tensor) for tensor in tensors))
    assert str(whole) not in str(raised.value)


def test_slabs_are_small_and_rows_of_chunks_are_limited() -> None:
    array = values.ArrayDescription(dtype="float32", shape=(10, 4), chunk=(3, 2))
    assert list(array.slabs()) == [(0, 10)]
    wide = values.ArrayDescription(dtype="float32", shape=(10, 2**20), chunk=(3, 2**20))
    assert list(wide.slabs()) == [(number, number + 1) for number in range(10)]
    huge = values.ArrayDescription(dtype="float32", shape=(10**6, 10**6), chunk=(10**6, 10**6))
    with pytest.raises(ValuesError, match="library-bytes limit"):
        list(huge.slabs())
    empty = values.ArrayDescription(dtype="float32", shape=(0, 4), chunk=(1, 4))
    assert list(empty.slabs()) == []
    scalar = values.ArrayDescription(dtype="int32", shape=(), chunk=())
    assert list(scalar.slabs()) == [(0, 1)]
