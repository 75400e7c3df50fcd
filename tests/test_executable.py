"""Files that loaders take for something else than what a quick look at them finds."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from policytool import executable, protobuf_messages, reading, recognition
from tests.conftest import FIXTURES
from tests.rules import remaking

if TYPE_CHECKING:
    from pathlib import Path

KERAS3 = "keras3.15/global_mixed_float16.keras"
SAVED = "tf2.15/global_mixed_float16"
METADATA = "keras_metadata.pb"
LAMBDA = {"class_name": "Lambda", "config": {"name": "hidden", "function": ["4wEAAAA=", None, None], "function_type": "lambda"}}


def reasons(path: Path, *, compiles: bool = False) -> list[executable.Reason]:
    """Return why a file is not given to TensorFlow."""
    return list(executable.reasons(reading.analysed(recognition.document(path, "model")), compiles=compiles))


def test_metadata_of_an_object_that_is_not_there_is_judged(tmp_path: Path) -> None:
    """Loaders build what it describes before they look for the object: byte code ran."""
    target = tmp_path / "saved"
    shutil.copytree(FIXTURES / SAVED, target)
    message = protobuf_messages.parse("KerasMetadata", (target / METADATA).read_bytes())
    message.nodes.add(node_id=99_999, node_path=b"root.more", identifier=b"_tf_keras_layer", metadata=json.dumps(LAMBDA).encode())
    (target / METADATA).write_bytes(message.SerializeToString())
    assert any("byte code" in reason.what for reason in reasons(target))


def test_a_graph_beside_the_one_that_is_reported_is_not_run(tmp_path: Path) -> None:
    """Keras takes the metadata of the first, whatever its tag is: byte code ran."""

    def doubled(message: Any) -> None:
        first = message.meta_graphs.add()
        first.CopyFrom(message.meta_graphs[0])
        message.meta_graphs[0].meta_info.tags[:] = [b"other"]

    path = remaking.saved_model(tmp_path, SAVED, doubled)
    assert any("holds 2 graphs" in reason.what for reason in reasons(path))


def test_assets_of_a_directory_that_are_links_out_of_it_are_not_read(tmp_path: Path) -> None:
    """Keras reads vocabularies there; links within the model, and in circles, lead nowhere else."""
    target = tmp_path / "model"
    shutil.unpack_archive(FIXTURES / KERAS3, target, "zip")
    words = target / "assets" / "words"
    words.mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (words / "own.txt").symlink_to(target / "config.json")
    (words / "circle.txt").symlink_to("circle.txt")
    assert not reasons(target)
    (words / "vocabulary.txt").symlink_to(tmp_path / "secret.txt")
    assert ["vocabulary.txt" in reason.what for reason in reasons(target)] == [True]


def test_an_asset_that_is_a_link_in_a_circle_is_told(tmp_path: Path) -> None:
    """Reading it ended with a fault of policytool's own."""
    path = remaking.saved_model(tmp_path, SAVED, lambda message: message.meta_graphs[0].assets.add(filename=b"circle"))
    (path / "assets").mkdir(exist_ok=True)
    (path / "assets" / "circle").symlink_to("circle")
    assert not reasons(path)
