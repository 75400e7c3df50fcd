"""
Rewritten ``.keras`` archives and directories: unchanged members, and the rearranged state of the
optimizer.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import h5py
import ml_dtypes
import numpy as np
import pytest

from policytool.formats import casting, rewriting
from policytool.formats.edits import Cast, StateSlot, WriteOptions
from policytool.formats.keras_archive.rewrite import new_member
from policytool.formats.rewriting import Changes
from policytool.support.errors import ModelFileError
from tests.conftest import UNPACKED
from tests.helpers.changes import all_changes, cast, document_of, edit, held
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import keras_members, keras_zip, sequential

if TYPE_CHECKING:
    from collections.abc import Sequence

EDIT: Final = edit(
    "config.json", "/config/layers/0/config/dtype", "float32", "a dtype of another length"
)
KERNEL: Final = ("layers", "dense", "vars", "0")
TRAINED: Final = FIXTURES / "keras3.15/adam_autowrap_mf16.keras"
OPTIMIZER: Final = ("optimizer", "inner_optimizer", "vars")


def rewrite(path: Path, changes: Changes) -> Path:
    """Write a changed copy next to a model."""
    return rewriting.write(
        path,
        path.with_name("new.keras"),
        changes,
        document_format="keras",
        options=WriteOptions(overwrite=True),
    ).target


def weights(path: Path, name: str = "model.weights.h5") -> h5py.File:
    """Open the weights of an archive."""
    with zipfile.ZipFile(path) as archive:
        return h5py.File(io.BytesIO(archive.read(name)))


def _described(archive: zipfile.ZipFile) -> list[tuple[object, ...]]:
    return [
        (
            info.filename,
            info.date_time,
            info.compress_type,
            info.external_attr,
            info.create_system,
            info.comment,
        )
        for info in archive.infolist()
    ]


@pytest.mark.parametrize(
    "compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
@pytest.mark.parametrize("casts", [False, True])
def test_members_keep_order_and_attributes(
    compression: int,
    casts: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.comment = b"about the archive"
        for name, data in {
            "assets/a": b"a" * 5000,
            **keras_members(),
            "assets/b": b"b" * 50,
            "empty/": b"",
        }.items():
            info = zipfile.ZipInfo(name, (1999, 12, 31, 23, 59, 58))
            info.compress_type, info.external_attr, info.comment = (
                compression,
                0o640 << 16,
                name.encode(),
            )
            archive.writestr(info, data)
    new = rewrite(
        path, Changes(edits=(EDIT,), casts=(cast(KERNEL, "float32", "float16"),) if casts else ())
    )
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(new) as archive:
        assert archive.testzip() is None
        assert archive.comment == old.comment
        assert _described(archive) == _described(old)
        for name in ("assets/a", "metadata.json", "assets/b"):
            assert archive.read(name) == old.read(name)
        assert archive.read("config.json") == old.read("config.json").replace(
            b'"float32"', b'"a dtype of another length"'
        )
    assert weights(new)["/".join(KERNEL)].dtype == ("float16" if casts else "float32")


def _local(path: Path, name: str) -> bytes:
    """Return the local header of a member."""
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo(name).header_offset
    data = path.read_bytes()
    name_length, extra_length = struct.unpack_from("<HH", data, start + 26)
    return data[start : start + 30 + name_length + extra_length]


def test_members_with_data_descriptors_or_64_bit_sizes_are_unchanged(tmp_path: Path) -> None:
    """Members with data descriptors or 64-bit sizes are copied unchanged."""
    path = tmp_path / "model.keras"

    class Pipe(io.RawIOBase):
        """A stream without seeking."""

        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: object, /) -> int:
            self.data += bytes(data)  # type: ignore[call-overload]
            return len(bytes(data))  # type: ignore[call-overload]

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, data in keras_members().items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)
    path.write_bytes(pipe.data)
    new = rewrite(path, Changes(edits=(EDIT,)))
    with zipfile.ZipFile(new) as archive:
        assert archive.testzip() is None
    for name in ("metadata.json", "model.weights.h5"):
        assert _local(new, name) == _local(path, name)


def test_duplicate_member_is_copied_but_not_changed(tmp_path: Path) -> None:
    members = [*keras_members().items(), ("assets/a", b"1"), ("assets/a", b"2")]
    with pytest.warns(UserWarning, match="Duplicate"):
        path = keras_zip(tmp_path / "model.keras", members)
    new = rewrite(path, Changes(edits=(EDIT,)))
    with zipfile.ZipFile(new) as archive:
        assert [
            archive.read(info) for info in archive.infolist() if info.filename == "assets/a"
        ] == [b"1", b"2"]
    with pytest.warns(UserWarning, match="Duplicate"):
        path = keras_zip(
            tmp_path / "double.keras", [*keras_members().items(), ("config.json", b"{}")]
        )
    with pytest.raises(ModelFileError) as caught:
        rewrite(path, Changes(edits=(edit("config.json", "", {}, 1),)))
    assert caught.value.code == "not-rewritable"


def test_changed_config_keeps_the_byte_order_mark(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + json.dumps(sequential()).encode()
    new = rewrite(keras_zip(tmp_path / "model.keras", keras_members(text)), Changes(edits=(EDIT,)))
    assert zipfile.ZipFile(new).read("config.json") == text.replace(
        b'"float32"', b'"a dtype of another length"'
    )
    assert isinstance(document_of(new).parts["config.json"], dict)


def test_bfloat16_is_stored_as_keras_does(tmp_path: Path) -> None:
    """bfloat16 is stored like in Keras 3.15: two opaque bytes, with the name in an attribute."""
    path = tmp_path / "default_float32.keras"
    shutil.copyfile(FIXTURES / "keras3.15/default_float32.keras", path)
    tensors = [tensor.path for tensor in document_of(path).tensors or ()]
    new = rewrite(
        path, Changes(casts=tuple(cast(tensor, "float32", "bfloat16") for tensor in tensors))
    )
    theirs = weights(FIXTURES / "keras3.15/global_bfloat16.keras")["layers/dense/vars/0"]
    old, created = weights(path)["layers/dense/vars/0"], weights(new)["layers/dense/vars/0"]
    assert created.id.get_type().equal(theirs.id.get_type())
    assert created.attrs.get_id("dtype").get_type().equal(theirs.attrs.get_id("dtype").get_type())
    assert created.attrs["dtype"] == "bfloat16"
    assert created[()].tobytes() == old[()].astype(ml_dtypes.bfloat16).tobytes()
    back = rewrite(
        new, Changes(casts=tuple(cast(tensor, "bfloat16", "float32") for tensor in tensors))
    )
    widened = weights(back)["layers/dense/vars/0"]
    assert widened.dtype == "float32"
    assert not dict(widened.attrs)


def _slots(paths: Sequence[tuple[str, ...]], at: tuple[str, ...]) -> tuple[StateSlot, ...]:
    return tuple(StateSlot(tensor=(*at, path[-1]), source=path) for path in paths)


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, list[tuple[str, ...]]]:
    """
    Copy a model with a wrapped optimizer; return the copy and the paths of the inner optimizer's
    variables.
    """
    path = tmp_path / TRAINED.name
    shutil.copyfile(TRAINED, path)
    inner = [
        tensor.path for tensor in document_of(path).tensors or () if tensor.path[:3] == OPTIMIZER
    ]
    assert len(inner) > 3
    return path, inner


def test_state_moves_out_of_a_wrapper(trained: tuple[Path, list[tuple[str, ...]]]) -> None:
    """
    If the wrapper is removed, its inner optimizer's variables move unchanged to its place, and its
    other variables are dropped.
    """
    path, inner = trained
    new = rewrite(path, Changes(state=_slots(inner, ("optimizer", "vars"))))
    old, created = weights(path), weights(new)
    assert sorted(created["optimizer/vars"]) == sorted(place[-1] for place in inner)
    assert set(created["optimizer"]) == {"vars"}
    for place in inner:
        assert (
            created["optimizer/vars"][place[-1]][()].tobytes() == old["/".join(place)][()].tobytes()
        )
    assert dict(created["optimizer/vars"].attrs) == dict(old["optimizer/vars"].attrs)


def test_state_moves_into_a_wrapper_with_new_variables(
    trained: tuple[Path, list[tuple[str, ...]]],
) -> None:
    """
    If a wrapper is added, the optimizer's variables move into it, with new scalars of any dtype and
    with casts.
    """
    path, inner = trained
    floats = [
        tensor.path
        for tensor in document_of(path).tensors or ()
        if tensor.path in inner and tensor.dtype == "float32"
    ]
    slots = (
        *_slots(inner, ("optimizer", "inner", "vars")),
        StateSlot(tensor=("optimizer", "vars", "0"), dtype="int64", value=7.0),
        StateSlot(tensor=("optimizer", "vars", "1"), dtype="float32", value=128.5),
        StateSlot(tensor=("optimizer", "vars", "2"), dtype="bfloat16", value=3.0),
        StateSlot(tensor=("optimizer", "vars", "3"), dtype="bool", value=1.0),
        StateSlot(tensor=("optimizer", "vars", "4"), source=inner[0]),
    )
    casts = tuple(
        Cast(tensor=place, path=None, before="float32", after="bfloat16", reason="")
        for place in floats
    )
    written = rewriting.write(
        path,
        path.with_name("new.keras"),
        Changes(state=slots, casts=casts),
        document_format="keras",
    )
    old, created = weights(path), weights(written.target)
    assert [created["optimizer/vars"][str(index)][()].tolist() for index in (0, 1, 3)] == [
        7,
        128.5,
        True,
    ]
    assert {tensor.path: tensor.dtype for tensor in document_of(written.target).tensors or ()}[
        ("optimizer", "vars", "2")
    ] == "bfloat16"
    for place in inner:
        expected = old["/".join(place)][()]
        expected = casting.cast(expected, "float32", "bfloat16")[0] if place in floats else expected
        assert created["optimizer/inner/vars"][place[-1]][()].tobytes() == expected.tobytes()
    assert created["optimizer/vars/4"][()] == old["/".join(inner[0])][()]
    assert set(written.counts) == set(floats)


def test_state_may_be_dropped_or_begun(trained: tuple[Path, list[tuple[str, ...]]]) -> None:
    """A state without slots removes the group, and slots without sources create it."""
    path, _ = trained
    without = rewrite(path, Changes(state=()))
    assert "optimizer" not in weights(without)
    assert "layers" in weights(without)
    again = rewriting.write(
        without,
        path.with_name("again.keras"),
        Changes(state=(StateSlot(tensor=("optimizer", "vars", "0"), dtype="int64", value=0.0),)),
        document_format="keras",
    )
    assert weights(again.target)["optimizer/vars/0"].dtype == "int64"


def test_slot_with_a_missing_source_is_rejected(
    trained: tuple[Path, list[tuple[str, ...]]],
) -> None:
    """A slot whose source is missing is an error, because the plan was made for another file."""
    path, _ = trained
    before = held(path.parent)
    with pytest.raises(ModelFileError) as caught:
        rewrite(
            path,
            Changes(
                state=(
                    StateSlot(
                        tensor=("optimizer", "vars", "0"), source=("optimizer", "vars", "99")
                    ),
                )
            ),
        )
    assert caught.value.code == "source-changed"
    assert held(path.parent) == before


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """Copy an unpacked model and add an asset, a link and a backup to it."""
    path = tmp_path / "model.keras.d"
    shutil.copytree(UNPACKED, path)
    (path / "assets").mkdir()
    (path / "assets/vocabulary.txt").write_text("a\nb\n")
    (path / "assets/vocabulary.txt").chmod(0o640)
    (path / "link").symlink_to("assets")
    (path / "config.json.bak").write_text("older")
    return path


def test_a_directory_becomes_a_new_one(unpacked: Path) -> None:
    """
    A rewritten copy of a directory contains assets and links but no backups, and the original is
    unchanged.
    """
    before = held(unpacked)
    changes = all_changes(unpacked)
    written = rewriting.write(unpacked, unpacked.with_name("new"), changes, document_format="keras")
    assert held(unpacked) == before
    result = held(written.target)
    assert result.keys() == before.keys() - {"config.json.bak"}
    assert result["metadata.json"] == before["metadata.json"]
    assert result["assets/vocabulary.txt"] == b"a\nb\n"
    assert (written.target / "assets/vocabulary.txt").stat().st_mode == (
        unpacked / "assets/vocabulary.txt"
    ).stat().st_mode
    assert (written.target / "link").readlink() == Path("assets")
    assert sorted(file.name for file in unpacked.parent.iterdir()) == ["model.keras.d", "new"]


def test_several_files_in_place_keep_the_whole_original(unpacked: Path) -> None:
    before = held(unpacked)
    written = rewriting.write(
        unpacked,
        unpacked,
        all_changes(unpacked),
        document_format="keras",
        options=WriteOptions(in_place=True),
    )
    assert written.backup == unpacked.with_name("model.keras.d.bak")
    assert held(written.backup) == before
    assert held(unpacked) != before
    with pytest.raises(ModelFileError) as caught:
        rewriting.write(
            unpacked,
            unpacked,
            Changes(casts=all_changes(unpacked).casts, edits=all_changes(unpacked).edits),
            document_format="keras",
            options=WriteOptions(in_place=True),
        )
    assert caught.value.code == "target-exists"


def test_in_place_edit_replaces_only_the_changed_file(unpacked: Path) -> None:
    (unpacked / "config.json.bak").unlink()
    before = held(unpacked)
    config = unpacked / "config.json"
    written = rewriting.write(
        unpacked,
        unpacked,
        Changes(edits=all_changes(unpacked).edits),
        document_format="keras",
        options=WriteOptions(in_place=True),
    )
    assert (written.target, written.backup) == (config, config.with_name("config.json.bak"))
    after = held(unpacked)
    assert after.pop("config.json.bak") == before["config.json"]
    assert b"another " in after.pop("config.json")
    assert after == {name: data for name, data in before.items() if name != "config.json"}


@pytest.mark.parametrize("in_place", [False, True])
def test_a_directory_without_backup(in_place: bool, unpacked: Path) -> None:  # noqa: FBT001
    target = unpacked if in_place else unpacked.with_name("new")
    if not in_place:
        target.mkdir()
        (target / "old").write_text("old")
    written = rewriting.write(
        unpacked,
        target,
        all_changes(unpacked),
        document_format="keras",
        options=WriteOptions(in_place=in_place, backup=False, overwrite=True),
    )
    assert written.backup is None
    assert sorted(file.name for file in unpacked.parent.iterdir()) == sorted(
        {"model.keras.d", target.name}
    )
    assert "old" not in held(target)


def test_only_shards_with_cast_tensors_change(unpacked: Path) -> None:
    (unpacked / "model.weights.h5").unlink()
    for index in range(2):
        with h5py.File(unpacked / f"model_{index:05d}.weights.h5", "w") as file:
            file[f"layers/dense/vars/{index}"] = np.ones(3, "float32")
    (unpacked / "model.weights.json").write_text("{}")
    before = held(unpacked)
    expected = (cast(("layers", "dense", "vars", "1"), "float32", "float16"),)
    assert rewriting.measure(unpacked, "keras", expected) == {
        ("layers", "dense", "vars", "1"): casting.Counts(values=3)
    }
    written = rewriting.write(
        unpacked, unpacked.with_name("new"), Changes(casts=expected), document_format="keras"
    )
    after = held(written.target)
    assert {name for name in after if after[name] != before[name]} == {"model_00001.weights.h5"}


def test_change_of_state_in_several_shards_is_rejected(unpacked: Path) -> None:
    """The target shard is ambiguous."""
    for index in range(2):
        with h5py.File(unpacked / f"model_{index:05d}.weights.h5", "w") as file:
            file["optimizer/vars/0"] = 1
    with pytest.raises(ModelFileError) as caught:
        rewriting.write(
            unpacked, unpacked.with_name("new"), Changes(state=()), document_format="keras"
        )
    assert caught.value.code == "not-rewritable"


@pytest.mark.parametrize("declared", [0, zipfile.ZIP64_LIMIT])
def test_a_member_is_written_in_place(declared: int, tmp_path: Path) -> None:
    """The same bytes as zipfile writes; with many values, the header has room for large sizes."""
    written, expected = tmp_path / "written.zip", io.BytesIO()
    with written.open("w+b") as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo("config.json"), b"{}")
        with new_member(archive, stream, zipfile.ZipInfo("weights"), declared) as start:
            assert start == stream.tell()
            with written.open("r+b") as other:
                other.seek(start)
                other.write(b"values" * 500_000)
    with zipfile.ZipFile(expected, "w") as archive:
        archive.writestr(zipfile.ZipInfo("config.json"), b"{}")
        with archive.open(zipfile.ZipInfo("weights"), "w", force_zip64=declared > 0) as member:
            member.write(b"values" * 500_000)
    assert written.read_bytes() == expected.getvalue()
