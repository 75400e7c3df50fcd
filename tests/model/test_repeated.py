"""
Duplicate keys in JSON and duplicate members of archives are findings in all documents of all
formats.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

import h5py
import pytest

from policytool.support.text import protobuf_messages
from tests.conftest import MIXED_YAML, UNPACKED, run
from tests.helpers.small_models import (
    h5_model,
    keras_members,
    keras_zip,
    sequential,
    small_saved_model,
    weights_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TWICE: Final = '{"twice": 1, "twice": 2, '
"""How a document begins, in the place of its first bracket."""


def _twice(text: str | bytes) -> str:
    return (text.decode() if isinstance(text, bytes) else text).replace("{", TWICE, 1)


def _h5(directory: Path, attribute: str) -> Path:
    path = h5_model(directory / "a.h5", sequential())
    with h5py.File(path, "a") as file:
        config = {
            "model_config": json.dumps(sequential()),
            "training_config": json.dumps(
                {"optimizer_config": {"class_name": "Adam", "config": {}}}
            ),
        }
        for name, text in config.items():
            file.attrs[name] = _twice(text) if name == attribute else text
    return path


def _archive(directory: Path, member: str) -> Path:
    members = keras_members()
    return keras_zip(directory / "a.keras", {**members, member: _twice(members[member]).encode()})


def _directory(directory: Path, member: str) -> Path:
    path = directory / "a.keras.d"
    shutil.copytree(UNPACKED, path)
    (path / member).write_text(
        _twice((path / member).read_text(encoding="utf-8")), encoding="utf-8"
    )
    return path


def _architecture(directory: Path) -> Path:
    path = directory / "a.json"
    path.write_text(_twice(json.dumps(sequential())), encoding="utf-8")
    return path


def _yaml(directory: Path) -> Path:
    path = directory / "a.yaml"
    path.write_text(MIXED_YAML.read_text(encoding="utf-8") + "backend: other\n", encoding="utf-8")
    return path


def _tfjs(directory: Path) -> Path:
    path = directory / "model.json"
    path.write_text(
        json.dumps({"modelTopology": sequential(), "weightsManifest": []}).replace(
            '"name"', '"twice": 1, "twice": 2, "name"', 1
        ),
        encoding="utf-8",
    )
    return path


def _map(directory: Path) -> Path:
    (directory / "m_00000.weights.h5").write_bytes(weights_bytes())
    path = directory / "m.weights.json"
    path.write_text(
        json.dumps(
            {"metadata": {}, "weight_map": {"/layers/dense/vars": ["m_00000.weights.h5"]}}
        ).replace('"/lay', '"/x": [], "/x": [], "/lay'),
        encoding="utf-8",
    )
    return path


def _saved_model(directory: Path, *, separate: bool) -> Path:
    path = small_saved_model(directory / "a", separate=separate)
    name, kind = (
        ("keras_metadata.pb", "KerasMetadata") if separate else ("saved_model.pb", "SavedModel")
    )
    message = protobuf_messages.parse(kind, (path / name).read_bytes())
    nodes = (
        message.nodes
        if separate
        else [node.user_object for node in message.meta_graphs[0].object_graph.nodes]
    )
    nodes[1].metadata = _twice(nodes[1].metadata).encode()
    (path / name).write_bytes(message.SerializeToString())
    return path


def _exported(directory: Path) -> Path:
    path = directory / "a"
    (path / "assets").mkdir(parents=True)
    saved = protobuf_messages.parse("SavedModel", b"")
    saved.meta_graphs.add()
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    (path / "assets/saved_model.json").write_text(
        _twice(json.dumps(sequential())), encoding="utf-8"
    )
    return path


def _member(directory: Path) -> Path:
    members = keras_members()
    return keras_zip(
        directory / "a.keras", [*members.items(), ("metadata.json", members["metadata.json"])]
    )


DOCUMENTS: Final[dict[str, tuple[Callable[[Path], Path], str]]] = {
    "HDF5's config": (
        lambda directory: _h5(directory, "model_config"),
        "model_config has duplicate keys",
    ),
    "HDF5's training config": (
        lambda directory: _h5(directory, "training_config"),
        "training_config has duplicate keys",
    ),
    "an archive's config": (
        lambda directory: _archive(directory, "config.json"),
        "config.json has duplicate keys",
    ),
    "an archive's metadata": (
        lambda directory: _archive(directory, "metadata.json"),
        "metadata.json has duplicate keys",
    ),
    "a directory's config": (
        lambda directory: _directory(directory, "config.json"),
        "config.json has duplicate keys",
    ),
    "a directory's metadata": (
        lambda directory: _directory(directory, "metadata.json"),
        "metadata.json has duplicate keys",
    ),
    "architecture JSON": (_architecture, "the file has duplicate keys"),
    "architecture YAML": (_yaml, "the file has duplicate keys"),
    "TensorFlow.js": (_tfjs, "the file has duplicate keys"),
    "the map of shards": (_map, "the file has duplicate keys"),
    "a SavedModel's objects": (
        lambda directory: _saved_model(directory, separate=False),
        "saved_model.pb#1 has duplicate keys",
    ),
    "keras_metadata.pb": (
        lambda directory: _saved_model(directory, separate=True),
        "keras_metadata.pb#1 has duplicate keys",
    ),
    "what TF 1 exports": (_exported, "assets/saved_model.json has duplicate keys"),
    "an archive's members": (_member, "the archive contains metadata.json 2 times"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_duplicate_keys_and_members_are_findings(name: str, tmp_path: Path) -> None:
    """Releases and scanners may read different copies."""
    build, words = DOCUMENTS[name]
    ended = run("audit", build(tmp_path), "--select", "PT607", "--format", "json")
    assert ended.code == 1, ended.err
    (finding,) = ended.json["models"][0]["findings"]
    assert (finding["rule"], words in finding["message"]) == ("PT607", True), finding
