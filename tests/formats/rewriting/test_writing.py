"""Writing a file to its place: targets, backups, links, modes, and architecture JSON."""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import TYPE_CHECKING, Final

import pytest

from policytool.formats import rewriting
from policytool.formats.edits import WriteOptions
from policytool.formats.rewriting import Changes
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic
from tests.helpers.changes import all_changes, cast, edit, held
from tests.helpers.small_models import h5_model, sequential

if TYPE_CHECKING:
    from pathlib import Path

EDIT: Final = edit("model", "/config/layers/0/config/dtype", "float32", "float64")
TEXT: Final = json.dumps(sequential(), indent=1).replace("\n", "\r\n")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write an architecture."""
    path = tmp_path / "model.json"
    path.write_bytes(TEXT.encode())
    return path


def write(
    source: Path,
    target: Path,
    *,
    in_place: bool = False,
    backup: bool = True,
    overwrite: bool = False,
) -> rewriting.Written:
    """Write an architecture with one edit."""
    return rewriting.write(
        source,
        target,
        Changes(edits=(EDIT,)),
        document_format="json",
        options=WriteOptions(in_place=in_place, backup=backup, overwrite=overwrite),
    )


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_edit_of_an_architecture_changes_only_the_edited_value(mark: bytes, model: Path) -> None:
    """An edit of an architecture keeps white space, line ends and a byte order mark."""
    model.write_bytes(mark + TEXT.encode())
    written = write(model, model.with_name("new.json"))
    assert written.target.read_bytes() == mark + TEXT.replace("float32", "float64").encode()
    assert (written.backup, written.followed_link, written.counts) == (None, False, {})


def test_an_architecture_has_nothing_to_cast(model: Path) -> None:
    """A cast of an architecture is an error, because the plan was made for another file."""
    with pytest.raises(ModelFileError) as caught:
        rewriting.measure(model, "json", (cast(("a",), "float32", "float16"),))
    assert caught.value.code == "source-changed"
    assert rewriting.measure(model, "json", ()) == {}


def test_in_place_keeps_a_backup(model: Path) -> None:
    inode = model.stat().st_ino
    written = write(model, model, in_place=True)
    assert written.backup == model.with_name("model.json.bak")
    assert written.backup.stat().st_ino == inode
    assert written.backup.read_bytes() == TEXT.encode()
    assert held(model.parent).keys() == {"model.json", "model.json.bak"}


def test_in_place_without_backup(model: Path) -> None:
    """A change in place without a backup leaves only the new file."""
    assert write(model, model, in_place=True, backup=False).backup is None
    assert held(model.parent).keys() == {"model.json"}


def test_an_older_backup_is_not_overwritten(model: Path) -> None:
    older = model.with_name("model.json.bak")
    older.write_text("older")
    before = held(model.parent)
    with pytest.raises(ModelFileError) as caught:
        write(model, model, in_place=True)
    assert caught.value.code == "target-exists"
    assert held(model.parent) == before
    write(model, model, in_place=True, overwrite=True)
    assert older.read_bytes() == TEXT.encode()
    assert held(model.parent).keys() == {"model.json", "model.json.bak"}


def test_a_target_is_not_overwritten(model: Path) -> None:
    """An existing target, including a dangling link, is overwritten only on request."""
    target = model.with_name("new.json")
    target.write_text("other")
    with pytest.raises(ModelFileError) as caught:
        write(model, target)
    assert caught.value.code == "target-exists"
    write(model, target, overwrite=True)
    assert b"float64" in target.read_bytes()
    link = model.with_name("link.json")
    link.symlink_to(model.with_name("nowhere.json"))
    written = write(model, link)
    assert (written.target.name, written.followed_link) == ("nowhere.json", True)


def test_target_created_during_the_write_is_not_overwritten(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step checks it."""
    target = model.with_name("new.json")
    monkeypatch.setattr(atomic.Draft, "flush", lambda _: target.write_text("other"))
    with pytest.raises(ModelFileError) as caught:
        write(model, target)
    assert caught.value.code == "target-exists"
    assert target.read_text() == "other"


def test_a_link_is_followed_in_place(model: Path, tmp_path: Path) -> None:
    """A change in place of a link changes the file that it refers to and keeps the link."""
    folder = tmp_path / "links"
    folder.mkdir()
    link = folder / "link.json"
    link.symlink_to(model)
    written = write(link, link, in_place=True)
    assert (written.target, written.followed_link) == (model.resolve(), True)
    assert link.is_symlink()
    assert b"float64" in model.read_bytes()
    assert [file.name for file in folder.iterdir()] == ["link.json"]


@pytest.mark.parametrize("in_place", [False, True])
def test_mode_and_attributes_are_kept(in_place: bool, model: Path) -> None:  # noqa: FBT001
    """
    The new file keeps the mode and attributes of the original and has a new modification time.
    """
    model.chmod(0o640)
    os.utime(model, (1, 1))
    if sys.platform == "linux":
        os.setxattr(model, "user.note", b"kept")
        os.utime(model, (1, 1))
    target = write(
        model, model if in_place else model.with_name("new.json"), in_place=in_place
    ).target
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert target.stat().st_mtime > 1
    if sys.platform == "linux":
        assert os.getxattr(target, "user.note") == b"kept"


def test_paths_relative_to_the_working_directory(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    relative = model.relative_to(model.parent)
    assert (
        write(relative, relative.with_name("new.json")).target
        == model.parent.resolve() / "new.json"
    )
    write(relative, relative, in_place=True)


def test_drafts_of_killed_runs_are_removed(model: Path) -> None:
    """
    Temporary files of ended processes are removed, and those of running processes and of other
    hosts are kept.
    """
    host = atomic._placing.hidden_path(model).name.split(".")[-2].split("-")[0]  # noqa: SLF001
    names = [
        f".a.{host}-{pid}-00.policytool-draft" for pid in (2**22 + 1, os.getpid(), os.getppid())
    ]
    names += [
        f".a.00000000-{2**22 + 1}-00.policytool-draft",
        ".a.policytool-draft",
        "a.policytool-draft",
    ]
    for name in names:
        model.with_name(name).touch()
    folder = model.with_name(f".d.{host}-{2**22 + 1}-00.policytool-draft")
    folder.mkdir()
    (folder / "x").touch()
    write(model, model.with_name("new.json"))
    assert held(model.parent).keys() == {*names[1:], "model.json", "new.json"}
    assert not folder.exists()


def test_missing_directory_and_unsupported_format_are_errors(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        write(model, tmp_path / "none" / "new.json")
    assert caught.value.code == "write-failed"
    with pytest.raises(ModelFileError) as caught:
        rewriting.write(model, tmp_path / "new", Changes(), document_format="savedmodel")
    assert caught.value.code == "not-rewritable"
    with pytest.raises(ModelFileError, match="can only be read"):
        rewriting.write(model, tmp_path / "new", Changes(), document_format="weights")


def test_write_result_contains_times_and_counts(tmp_path: Path) -> None:
    path = h5_model(tmp_path / "model.h5", sequential())
    written = rewriting.write(path, tmp_path / "new.h5", all_changes(path), document_format="h5")
    assert written.write_seconds > 0
    assert written.compare_seconds > 0
    assert sum(count.values for count in written.counts.values()) == 14
