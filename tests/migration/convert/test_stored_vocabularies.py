"""Vocabularies that the archives of TF 2.12 store in assets move into the configs of lookups."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import h5py

import policytool
from tests.helpers.convertible_models import input2, layer2
from tests.helpers.small_models import Config, instance, keras_zip

if TYPE_CHECKING:
    from pathlib import Path

_CONTAINER = "_layer_checkpoint_dependencies"


def _model(name: str, vocabularies: dict[str, list[str] | None], *more: Config) -> Config:
    """Return a functional model with lookups of one input."""
    lookups = [
        layer2(
            "StringLookup",
            lookup,
            [["words", 0, 0, {}]],
            dtype="string",
            max_tokens=None,
            num_oov_indices=1,
            mask_token=None,
            vocabulary=vocabulary,
            output_mode="int",
        )
        for lookup, vocabulary in vocabularies.items()
    ]
    words = input2("words", 1)
    words["config"]["dtype"] = "string"
    layers = [words, *lookups, *more]
    outputs = [[layer["config"]["name"], 0, 0] for layer in layers[1:]]
    return instance(
        "Functional",
        name=name,
        trainable=True,
        layers=layers,
        input_layers=[["words", 0, 0]],
        output_layers=outputs,
    )


def _archive(path: Path, config: Config, assets: dict[str, str]) -> Path:
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        file.create_group(f"{_CONTAINER}/string_lookup/vars")
    members = {
        "config.json": json.dumps({"module": "keras", **config, "registered_name": None}).encode(),
        "metadata.json": b'{"keras_version": "2.12.0", "date_saved": "2023-01-01@00:00:00"}',
        "model.weights.h5": stream.getvalue(),
        **{f"assets/{name}/vocabulary.txt": text.encode() for name, text in assets.items()},
    }
    return keras_zip(path, members)


def test_vocabularies_belong_to_the_lookups_without_one(tmp_path: Path) -> None:
    """TF 2.12 counts a lookup with a table twice, and one whose config has the words once."""
    inner = {
        **_model("inner", {"c": None}),
        "name": "inner",
        "inbound_nodes": [[["words", 0, 0, {}]]],
    }
    config = _model("net", {"a": None, "given": ["x"], "b": None}, inner)
    path = _archive(
        tmp_path / "model.keras",
        config,
        {
            f"{_CONTAINER}/string_lookup": "[UNK]\np",
            f"{_CONTAINER}/string_lookup_3": "[UNK]\nq\né",
            f"{_CONTAINER}/functional/{_CONTAINER}/string_lookup": "[UNK]\nr",
        },
    )
    written = tmp_path / "out.keras"
    policytool.migrate(path, output=written, target="keras3", verify=False)
    layers = json.loads(zipfile.ZipFile(written).read("config.json"))["config"]["layers"]
    words = {layer["config"]["name"]: layer["config"].get("vocabulary") for layer in layers}
    assert words["a"] == ["[UNK]", "p"]
    assert words["given"] == ["x"]
    assert words["b"] == ["[UNK]", "q", "é"]
    nested = next(layer for layer in layers if layer["config"]["name"] == "inner")
    assert nested["config"]["layers"][1]["config"]["vocabulary"] == ["[UNK]", "r"]


def test_vocabularies_without_a_place_are_refused(tmp_path: Path) -> None:
    """If a vocabulary is missing, it is unknown to which lookups the others belong."""
    assets = {
        f"{_CONTAINER}/string_lookup": "[UNK]\np",
        f"{_CONTAINER}/string_lookup_{'9' * 5000}": "x",
    }
    path = _archive(tmp_path / "model.keras", _model("net", {"a": None, "b": None}), assets)
    plan: Any = policytool.migrate(path, target="keras3", preview=True).plan
    messages = [refusal.message for refusal in plan.refusals if refusal.code == "vocabulary"]
    assert len(messages) == 2
    assert all("save the model as a SavedModel" in message for message in messages)
