"""Keras' weights in shards: the map, and the files that it can name."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import h5py
import pytest

import policytool
from policytool.support.errors import ModelFileError
from tests.conftest import run
from tests.contracts.format_contract import FormatContract
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Bounded

MAP: Final = FIXTURES / "keras3.15/sharded.weights.json"


class TestShardedWeights(FormatContract):
    package = "sharded_weights"
    document_format = ("weights",)
    samples = (MAP,)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    Return the working directory, which has a map and two shards with a layer that is split between
    them.
    """
    for number, dtype in enumerate(("float32", "float16")):
        with h5py.File(tmp_path / f"m_0000{number}.weights.h5", "w") as file:
            file.create_dataset(f"layers/dense/vars/{number}", (2 + number,), dtype)
            file["layers/dense/vars"].attrs["name"] = "dense_a"
    write(tmp_path, {"/layers/dense/vars": ["m_00000.weights.h5", "m_00001.weights.h5"]})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(directory: Path, mapped: object) -> None:
    """Write a map like Keras."""
    (directory / "m.weights.json").write_text(
        json.dumps({"metadata": {"total_size": 14.0}, "weight_map": mapped}, indent=4),
        encoding="utf-8",
    )


def models(*arguments: str) -> list[dict[str, Any]]:
    """Return the models in a report."""
    ended = run("inspect", "--format", "json", *arguments)
    assert ended.code == 0, ended.err
    result: list[dict[str, Any]] = ended.json["models"]
    return result


def test_map_of_a_release_gives_the_layers_of_its_shards() -> None:
    model = policytool.inspect(MAP)
    assert model.format == "weights"
    assert [layer.path for layer in model.layers] == ["layers/dense", "layers/dense_1"]
    assert (
        model.summary.bytes == json.loads(MAP.read_text(encoding="utf-8"))["metadata"]["total_size"]
    )


def test_layer_spread_over_shards_is_one(place: Path) -> None:
    (model,) = models("m.weights.json")
    (layer,) = model["layers"]
    assert (layer["name"], [variable["dtype"] for variable in layer["variables"]]) == (
        "dense_a",
        ["float32", "float16"],
    )
    assert model["summary"]["bytes"] == 14
    assert place.is_dir()


def test_shard_that_the_user_names_is_read_as_a_weights_file(place: Path) -> None:
    assert [model["path"] for model in models("m_00001.weights.h5")] == ["m_00001.weights.h5"]
    for found in (".", "*.h5", "*"):
        assert [model["path"] for model in models(found)] == ["m.weights.json"]
    (place / "m.weights.json").unlink()
    assert len(models(".")) == 2


@pytest.mark.parametrize(
    ("mapped", "code", "words"),
    [
        ({"/a/vars": ["../m_00000.weights.h5"]}, "escaping-link", "outside its directory"),
        (
            {"/a/vars": ["/etc/m_00000.weights.h5"]},
            "escaping-link",
            "outside its directory",
        ),
        ({"/a/vars": ["linked.weights.h5"]}, "escaping-link", "linked.weights.h5"),
        ({"/a/vars": ["gone.weights.h5"]}, "shard-missing", "gone.weights.h5"),
        ({"/a/vars": "model-00001-of-00002.safetensors"}, "json-not-keras", "safetensors"),
        ({"/a/vars": [1]}, "json-not-keras", "refers to 1"),
        (["m_00000.weights.h5"], "json-not-keras", "not an object"),
        ({"/a/vars": ["damaged.weights.h5"]}, "damaged-h5", "damaged.weights.h5"),
    ],
)
def test_map_may_refer_only_to_files_in_its_directory(
    mapped: object, code: str, words: str, place: Path
) -> None:
    """
    A map that names a file outside its directory, or an invalid file, is an error with the name.
    """
    shutil.move(place / "m_00001.weights.h5", place.parent / "elsewhere.weights.h5")
    (place / "linked.weights.h5").symlink_to(place.parent / "elsewhere.weights.h5")
    (place / "damaged.weights.h5").write_bytes(b"no HDF5")
    write(place, mapped)
    with pytest.raises(ModelFileError, match=words) as raised:
        policytool.inspect(place / "m.weights.json")
    assert raised.value.code == code


def test_map_may_refer_to_a_single_shard_without_a_list(place: Path) -> None:
    write(place, {"/layers/dense/vars": "m_00000.weights.h5"})
    assert models("m.weights.json")[0]["summary"]["bytes"] == 8


def test_number_of_shards_is_bounded(place: Path, bounded: Bounded) -> None:
    """The number of shards is limited, because each must be opened."""
    bounded("weights-shards", 1)
    with pytest.raises(ModelFileError, match="stores its weights in 2 files"):
        policytool.inspect(place / "m.weights.json")
