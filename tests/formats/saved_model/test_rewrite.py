"""Rewritten SavedModels: the metadata is as planned, and all other bytes are unchanged."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.formats import rewriting
from policytool.formats.edits import WriteOptions
from policytool.formats.rewriting import Changes
from policytool.formats.saved_model import GRAPH, KERAS
from policytool.formats.saved_model.rewrite import texts
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic
from policytool.support.text import protobuf_messages
from tests.conftest import MIXED_SAVEDMODEL
from tests.helpers.changes import all_changes, cast, document_of, edit, held
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import small_saved_model

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES: Final = {
    "graph": FIXTURES / "tf2.3/global_mixed_float16",
    "both": MIXED_SAVEDMODEL,
    "metadata": FIXTURES / "tf2.15/global_mixed_float16",
}
"""Metadata in ``saved_model.pb``, in both files, and in ``keras_metadata.pb``."""

CHANGED: Final = {"graph": {GRAPH}, "both": {GRAPH, KERAS}, "metadata": {KERAS}}


def copied(path: Path, directory: Path) -> Path:
    """Return a copy of a SavedModel."""
    shutil.copytree(path, directory / path.name)
    return directory / path.name


def messages(path: Path) -> list[object]:
    """Return the files with metadata as parsed messages, without the metadata."""
    found = []
    for file, kind in ((GRAPH, "SavedModel"), (KERAS, "KerasMetadata")):
        if (path / file).is_file():
            message = protobuf_messages.parse(kind, (path / file).read_bytes())
            for node in (
                message.nodes
                if kind == "KerasMetadata"
                else [node.user_object for node in message.meta_graphs[0].object_graph.nodes]
            ):
                node.metadata = b""
            found.append(message)
    return found


@pytest.mark.parametrize("where", SAMPLES)
def test_only_metadata_changes(where: str, tmp_path: Path) -> None:
    """Protobuf reads the edited metadata as planned."""
    source, target = copied(SAMPLES[where], tmp_path), tmp_path / "new"
    (source / "assets").mkdir(exist_ok=True)  # often empty, and always there
    changes = all_changes(source)
    rewriting.write(source, target, changes, document_format="savedmodel")
    before, after = held(source), held(target)
    assert before.keys() == after.keys()
    assert (target / "assets").is_dir()
    assert {name for name in before if before[name] != after[name]} == CHANGED[where]
    assert messages(source) == messages(target)
    old, new = texts(source), texts(target)
    assert {part for part in old if old[part] != new[part]} == {
        edit.address.part for edit in changes.edits
    }
    assert len(target.joinpath(next(iter(CHANGED[where]))).read_bytes()) > len(
        source.joinpath(next(iter(CHANGED[where]))).read_bytes()
    )


@THOROUGH
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_500, 2_100_000])
def test_lengths_grow_and_shrink(separate: bool, size: int, tmp_path: Path) -> None:  # noqa: FBT001
    """The reverse edit of a text that needs more bytes restores the file."""
    source = small_saved_model(tmp_path / "model", separate=separate)
    file = KERAS if separate else GRAPH
    there = edit(f"{file}#1", "/name", "dense_a", "n" * size)
    back = edit(f"{file}#1", "/name", "n" * size, "dense_a")
    written = rewriting.write(
        source, tmp_path / "new", Changes(edits=(there,)), document_format="savedmodel"
    ).target
    assert document_of(written).parts[f"{file}#1"]["name"] == "n" * size  # type: ignore[index,call-overload]
    again = rewriting.write(
        written, tmp_path / "again", Changes(edits=(back,)), document_format="savedmodel"
    ).target
    assert held(again) == held(source)


def test_in_place_edit_replaces_only_the_changed_file(tmp_path: Path) -> None:
    source = copied(SAMPLES["metadata"], tmp_path)
    before = held(source)
    inodes = {name: (source / name).stat().st_ino for name in before}
    written = rewriting.write(
        source,
        source,
        all_changes(source),
        document_format="savedmodel",
        options=WriteOptions(in_place=True),
    )
    assert written.backup == source / f"{KERAS}.bak"
    assert {name for name in before if (source / name).stat().st_ino != inodes[name]} == {KERAS}
    assert (source / f"{KERAS}.bak").read_bytes() == before[KERAS]
    assert held(tmp_path).keys() == {f"{source.name}/{name}" for name in (*before, f"{KERAS}.bak")}
    assert document_of(source).format == "savedmodel"


def test_two_changed_files_make_a_new_directory(tmp_path: Path) -> None:
    """The complete original is the backup."""
    source = copied(SAMPLES["both"], tmp_path)
    before = held(source)
    written = rewriting.write(
        source,
        source,
        all_changes(source),
        document_format="savedmodel",
        options=WriteOptions(in_place=True),
    )
    assert written.backup == tmp_path / f"{source.name}.bak"
    assert held(written.backup) == before
    assert held(source) != before
    assert sorted(path.name for path in tmp_path.iterdir()) == [source.name, f"{source.name}.bak"]


def test_a_cache_of_links_becomes_a_whole_model(tmp_path: Path) -> None:
    """
    If files and folders of the model are links, as in a download cache, their targets are copied;
    other links stay links.
    """
    real = copied(SAMPLES["metadata"], tmp_path / "blobs")
    source = tmp_path / "snapshot"
    source.mkdir()
    for entry in real.iterdir():
        (source / entry.name).symlink_to(os.path.relpath(entry, source))
    (source / "notes").symlink_to("/nonexistent")
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    target = rewriting.write(
        source, tmp_path / "elsewhere/deep/new", all_changes(source), document_format="savedmodel"
    ).target
    assert not any(path.is_symlink() for path in target.rglob("*") if path.name != "notes")
    assert (target / "notes").readlink().as_posix() == "/nonexistent"
    found = held(target)
    assert {name: data for name, data in held(real).items() if name != KERAS} == {
        name: data for name, data in found.items() if name != KERAS
    }


def test_the_architecture_of_an_export_is_rewritten(tmp_path: Path) -> None:
    """TF 1 stores it as an asset; the graph and the checkpoint are copied."""
    source = FIXTURES / "tf1.15/global_mixed_float16.export"
    policytool.migrate(source, to="mixed_bfloat16", output=tmp_path / "new")
    before, after = held(source), held(tmp_path / "new")
    assert {
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    } == {"assets/saved_model.json"}
    assert {layer.policy for layer in policytool.inspect(tmp_path / "new").layers} >= {
        "mixed_bfloat16"
    }


def test_casts_and_edits_that_do_not_fit_are_rejected(tmp_path: Path) -> None:
    """
    Casts of a checkpoint, an edit that does not fit, and an invalid message are errors, and nothing
    is written.
    """
    source = copied(SAMPLES["metadata"], tmp_path)
    before = held(tmp_path)
    part = f"{KERAS}#0"
    for changes, code in (
        (Changes(casts=(cast(("kernel",), "float32", "float16"),)), "not-rewritable"),
        (Changes(edits=(edit(part, "/name", "other", "new"),)), "source-changed"),
        (Changes(edits=(edit(f"{KERAS}#999", "/name", "other", "new"),)), "source-changed"),
    ):
        with pytest.raises(ModelFileError) as caught:
            rewriting.write(source, tmp_path / "new", changes, document_format="savedmodel")
        assert caught.value.code == code
        assert held(tmp_path) == before
    (source / KERAS).write_bytes((source / KERAS).read_bytes()[:-5])
    with pytest.raises(ModelFileError) as caught:
        rewriting.write(
            source,
            tmp_path / "new",
            Changes(edits=(edit(part, "/name", "mlp", "new"),)),
            document_format="savedmodel",
        )
    assert caught.value.code == "not-rewritable"


@pytest.mark.parametrize("place", ["changed", "before", "after", "longer"])
def test_draft_with_a_changed_byte_is_rejected(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = copied(SAMPLES["metadata"], tmp_path)
    before, changes = held(tmp_path), all_changes(source)

    def spoil(draft: atomic.Draft) -> None:
        data = bytearray(draft.path.read_bytes())
        if b"another" not in data:
            return
        where = {
            "changed": data.index(b"another"),
            "before": 10,
            "after": len(data) - 1,
            "longer": 0,
        }[place]
        data = (
            data + b"\x08\x01"
            if place == "longer"
            else data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :]
        )
        draft.path.write_bytes(bytes(data))

    monkeypatch.setattr(atomic.Draft, "flush", spoil)
    with pytest.raises(ModelFileError) as caught:
        rewriting.write(
            source,
            source,
            changes,
            document_format="savedmodel",
            options=WriteOptions(in_place=True),
        )
    assert caught.value.code == "write-differs"
    monkeypatch.undo()
    assert held(tmp_path) == before


def test_single_metadata_file_is_rewritten_as_in_a_savedmodel(tmp_path: Path) -> None:
    source = tmp_path / "metadata_of_a_model.pb"
    source.write_bytes((SAMPLES["metadata"] / KERAS).read_bytes())
    alone = rewriting.write(
        source, tmp_path / "new.pb", all_changes(source), document_format="keras-metadata"
    ).target
    whole = rewriting.write(
        SAMPLES["metadata"],
        tmp_path / "new",
        all_changes(SAMPLES["metadata"]),
        document_format="savedmodel",
    ).target
    assert alone.read_bytes() == (whole / KERAS).read_bytes()
    with pytest.raises(ModelFileError):
        rewriting.write(
            source,
            tmp_path / "other.pb",
            Changes(casts=(cast(("kernel",), "float32", "float16"),)),
            document_format="keras-metadata",
        )


def test_linked_file_is_verified_under_the_name_of_the_link(tmp_path: Path) -> None:
    """Download caches name the target after its hash."""
    model, blob = tmp_path / "model", tmp_path / "blobs" / "0123abcd"
    shutil.copytree(SAMPLES["metadata"], model)
    blob.parent.mkdir()
    (model / KERAS).rename(blob)
    (model / KERAS).symlink_to(blob)
    names, views = sorted(path.name for path in model.iterdir()), []

    def verify(view: Path) -> None:
        views.append((view.name, sorted(path.name for path in view.iterdir())))
        assert document_of(view).parts != document_of(model).parts

    written = rewriting.write(
        model,
        model,
        all_changes(model),
        document_format="savedmodel",
        options=WriteOptions(in_place=True, verify=verify),
    )
    assert views == [("model", names)]
    assert (written.target, written.followed_link) == (blob, True)
