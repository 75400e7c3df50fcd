"""Drafts: whole or not at all, with a name or without."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from policytool.support.files import atomic
from policytool.support.files.atomic import DirectoryDraft, Draft, _placing
from tests.helpers.changes import held
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def kind(draft_kind: str) -> str:
    """Return whether drafts have a name, as on systems where every file has one."""
    return draft_kind


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file system without links."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)


def _publish(target: Path, data: bytes, **how: Any) -> None:
    with Draft.beside(target) as draft:
        draft.path.write_bytes(data)
        draft.publish(target, **how)


def test_unpublished_draft_leaves_no_file(tmp_path: Path) -> None:
    """The same holds if the block ends with an exception."""
    with Draft.beside(tmp_path / "x") as draft:
        draft.path.write_bytes(b"data")
    with pytest.raises(KeyboardInterrupt), Draft.beside(tmp_path / "x"):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_unnamed_drafts_have_no_name(tmp_path: Path, kind: str) -> None:
    """Nothing is in the directory while they are written."""
    with Draft.beside(tmp_path / "x"):
        assert len(list(tmp_path.iterdir())) == (kind == "named")


@pytest.mark.parametrize("links", [True, False])
def test_publishing(links: bool, tmp_path: Path, request: pytest.FixtureRequest) -> None:  # noqa: FBT001
    """A new file, one over another, one with a backup; never without being asked."""
    if not links:
        request.getfixturevalue("no_links")
    target, backup = tmp_path / "x", tmp_path / "x.bak"
    _publish(target, b"one")
    assert held(tmp_path) == {"x": b"one"}
    with pytest.raises(FileExistsError):
        _publish(target, b"two")
    assert held(tmp_path) == {"x": b"one"}
    _publish(target, b"two", overwrite=True)
    assert held(tmp_path) == {"x": b"two"}
    _publish(target, b"three", backup=backup)
    assert held(tmp_path) == {"x": b"three", "x.bak": b"two"}
    with pytest.raises(FileExistsError):
        _publish(target, b"four", backup=backup)
    assert held(tmp_path) == {"x": b"three", "x.bak": b"two"}
    _publish(target, b"four", backup=backup, overwrite=True)
    assert held(tmp_path) == {"x": b"four", "x.bak": b"three"}
    _publish(tmp_path / "y", b"five", overwrite=True, backup=tmp_path / "y.bak")
    assert held(tmp_path) == {"x": b"four", "x.bak": b"three", "y": b"five"}


@pytest.mark.parametrize(
    "how", [{}, {"overwrite": True}, {"backup": True}, {"backup": True, "overwrite": True}], ids=str
)
@pytest.mark.parametrize("links", [True, False])
def test_a_directory_that_does_not_reach_the_disk_is_put_back(
    how: dict[str, Any],
    links: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """If the flush after the rename fails, the original is restored."""
    if not links:
        request.getfixturevalue("no_links")
    target, backup = tmp_path / "x", tmp_path / "x.bak"
    if how:
        target.write_bytes(b"original")
    if "overwrite" in how:
        backup.write_bytes(b"older")
    before = held(tmp_path)

    monkeypatch.setattr(_placing, "sync_directory", _fail)
    with pytest.raises(OSError, match="failing"):
        _publish(target, b"new", **{**how, **({"backup": backup} if "backup" in how else {})})
    if links or "backup" in how:
        assert held(tmp_path) == before
    else:
        assert held(tmp_path).keys() <= {*before, "x"}


@THOROUGH
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("backup", [False, True])
@pytest.mark.parametrize("folder", [False, True])
def test_a_name_that_cannot_be_looked_at_is_not_taken_for_a_free_one(
    folder: bool,  # noqa: FBT001
    backup: bool,  # noqa: FBT001
    older: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever look at a name fails, the replacement is complete, or nothing was changed."""
    lstat, looks = os.lstat, 0

    def replaced(place: Path, failing: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Return what is there before and after a replacement of which one look fails."""
        nonlocal looks
        looks = 0

        def looking(*arguments: Any, **named: Any) -> os.stat_result:
            nonlocal looks
            looks += 1
            if looks == failing:
                _fail()
            return lstat(*arguments, **named)

        for name in ("x", *(["x.bak"] if older else [])):
            (place / name if folder else place).mkdir(parents=True, exist_ok=True)
            (place / name / "a" if folder else place / name).write_bytes(name.encode())
        before, target = held(place), place / "x"
        how: dict[str, Any] = {"backup": place / "x.bak"} if backup else {}
        with monkeypatch.context() as disk, contextlib.suppress(OSError):
            disk.setattr(os, "lstat", looking)
            (_directory if folder else _publish)(target, b"new", like=target, overwrite=True, **how)
        hidden = {name for name in held(place) if name.partition("/")[0].endswith(atomic.SUFFIX)}
        return before, {name: data for name, data in held(place).items() if name not in hidden}

    before, done = replaced(tmp_path / "0", 0)
    assert done != before
    for failing in range(1, looks + 1):
        assert replaced(tmp_path / str(failing), failing)[1] in (before, done)


def test_full_disk_during_the_copy_of_extended_attributes_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Attributes that the file system does not support are skipped, and other failures are errors.
    """
    like = tmp_path / "like"
    like.write_bytes(b"")

    def listed(_: object) -> list[str]:
        return ["user.a"]

    def setting(error: int) -> Callable[..., None]:
        def call(*_: object) -> None:
            raise OSError(error, "no")

        return call

    monkeypatch.setattr(os, "listxattr", listed, raising=False)
    monkeypatch.setattr(os, "getxattr", lambda *_: b"", raising=False)
    monkeypatch.setattr(os, "setxattr", setting(errno.EOPNOTSUPP), raising=False)
    _publish(tmp_path / "x", b"one", like=like)
    monkeypatch.setattr(os, "setxattr", setting(errno.ENOSPC), raising=False)
    with pytest.raises(OSError, match="no"):
        _publish(tmp_path / "y", b"one", like=like)
    assert held(tmp_path).keys() == {"like", "x"}


def test_file_without_the_original_owner_loses_the_setuid_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that runs as its owner must not run as another user."""
    like = tmp_path / "like"
    like.write_bytes(b"")
    like.chmod(0o4755)
    monkeypatch.setattr(_placing, "_change_owner", lambda *_: False)
    _publish(tmp_path / "x", b"one", like=like)
    assert (tmp_path / "x").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("has_range", [True, False])
def test_bytes_are_copied_with_and_without_copy_file_range(
    has_range: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files have any size, and a file that ends early is an error."""
    if not has_range:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    source = tmp_path / "source"
    for size in (0, 1, 3 * 2**20 + 7):
        source.write_bytes(os.urandom(size))
        with Draft.beside(tmp_path / "x") as draft:
            atomic.copy_file(source, draft.path)
            assert draft.path.read_bytes() == source.read_bytes()
    too_many = source.stat().st_size + 1
    with (
        Draft.beside(tmp_path / "x") as draft,
        atomic.open_descriptor(source, os.O_RDONLY) as one,
        atomic.open_descriptor(draft.path, os.O_WRONLY) as other,
    ):
        assert os.fstat(other).st_size == 0
        with pytest.raises(OSError, match="ended"):
            atomic.copy_bytes(one, other, too_many)


def test_long_names_have_drafts_too(tmp_path: Path) -> None:
    """A hidden name is never longer than file systems allow."""
    target = tmp_path / ("é" * 125)
    _publish(target, b"one")
    _publish(target, b"two", overwrite=True)
    assert held(tmp_path) == {target.name: b"two"}


def _directory(target: Path, data: bytes, like: Path, **how: Any) -> None:
    with DirectoryDraft.beside(target) as result:
        result.member(Path("a")).path.write_bytes(data)
        result.member(Path("below/b")).path.write_bytes(data)
        result.links[Path("link")] = "a"
        result.publish(target, like=like, **how)


@pytest.fixture
def like(tmp_path: Path) -> Path:
    """Make a directory whose attributes others get."""
    path = tmp_path / "like"
    (path / "below").mkdir(parents=True)
    (path / "a").write_bytes(b"")
    (path / "below/b").write_bytes(b"")
    (path / "below").chmod(0o750)
    return path


def test_directories_are_published(like: Path, tmp_path: Path) -> None:
    """A new one, one over another, one with a backup; never without being asked."""
    place = tmp_path / "place"
    place.mkdir()
    target, backup = place / "x", place / "x.bak"
    _directory(target, b"one", like)
    assert held(target) == {"a": b"one", "below/b": b"one", "link": b"one"}
    assert (target / "below").stat().st_mode & 0o777 == 0o750
    with pytest.raises(FileExistsError):
        _directory(target, b"two", like)
    _directory(target, b"two", like, backup=backup)
    assert (held(target)["a"], held(backup)["a"]) == (b"two", b"one")
    with pytest.raises(FileExistsError):
        _directory(target, b"three", like, backup=backup)
    _directory(target, b"three", like, backup=backup, overwrite=True)
    assert (held(target)["a"], held(backup)["a"]) == (b"three", b"two")
    assert {file.name for file in place.iterdir()} == {"x", "x.bak"}
    _directory(place / "y", b"four", like)
    _directory(place / "y", b"five", like, overwrite=True)
    assert {file.name for file in place.iterdir()} == {"x", "x.bak", "y"}
    assert held(place / "y")["a"] == b"five"


@pytest.mark.parametrize("how", [{}, {"overwrite": True}, {"backup": True}], ids=str)
def test_a_directory_that_cannot_be_renamed_is_put_back(
    how: dict[str, Any], like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The old directory is restored after a failure of each rename, and of the flush of the directory
    above.
    """
    rename = os.rename
    for failing in range(1, 6):
        place = tmp_path / f"place{failing}"
        place.mkdir()
        target = place / "x"
        if how:
            _directory(target, b"original", like)
        before, count = held(place), 0

        def renaming(one: Any, other: Any, failing: int = failing) -> None:
            nonlocal count
            count += 1
            if count == failing:
                raise OSError(errno.EIO, "failing")
            rename(one, other)

        monkeypatch.setattr(os, "rename", renaming)
        try:
            _directory(
                target,
                b"new",
                like,
                **{**how, **({"backup": place / "x.bak"} if "backup" in how else {})},
            )
        except OSError:
            assert held(place) == before
        monkeypatch.setattr(os, "rename", rename)
        assert not [name for name in held(place) if atomic.SUFFIX in name]


def test_backup_is_a_copy_without_hard_links(no_links: None, tmp_path: Path) -> None:
    """A copy that fails leaves no file."""
    del no_links
    target = tmp_path / "x"
    target.write_bytes(b"original")

    def fail_beside_the_backup() -> None:
        assert {"x": b"original", "x.bak": b"original"}.items() <= held(tmp_path).items()
        _fail()

    with pytest.raises(OSError, match="failing"):
        _publish(target, b"new", backup=tmp_path / "x.bak", check=fail_beside_the_backup)
    assert held(tmp_path) == {"x": b"original"}


def test_backup_equal_to_the_original_is_reused(tmp_path: Path) -> None:
    """A backup that a killed process left is reused without an option to replace it."""
    target, backup = tmp_path / "x", tmp_path / "x.bak"
    target.write_bytes(b"original")
    for make in (os.link, shutil.copyfile):
        make(target, backup)
        _publish(target, b"new", backup=backup)
        assert held(tmp_path) == {"x": b"new", "x.bak": b"original"}
        backup.replace(target)


@pytest.mark.parametrize("failing", [False, True])
def test_older_backup_is_kept_until_the_new_backup_exists(
    failing: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that is killed while it replaces a backup leaves one of the two backups."""
    target, backup = tmp_path / "x", tmp_path / "x.bak"
    target.write_bytes(b"original")
    backup.write_bytes(b"older")
    seen = []

    def looking(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            seen.append((target.read_bytes(), backup.read_bytes()))
            return function(*arguments, **named)

        return call

    for name in ("link", "rename", "replace", "unlink", "fsync"):
        monkeypatch.setattr(os, name, looking(getattr(os, name)))
    if failing:
        monkeypatch.setattr(_placing, "sync_directory", _fail)
        with pytest.raises(OSError, match="failing"):
            _publish(target, b"new", backup=backup, overwrite=True)
    else:
        _publish(target, b"new", backup=backup, overwrite=True)
    assert set(seen) <= {(b"original", b"older"), (b"original", b"original"), (b"new", b"original")}
    assert held(tmp_path) == (
        {"x": b"original", "x.bak": b"older"} if failing else {"x": b"new", "x.bak": b"original"}
    )


@pytest.mark.parametrize(
    ("how", "said", "left"),
    [
        ({}, "x may be the new file", {"x": b"new"}),
        ({"overwrite": True}, "x may be the new file", {"x": b"new"}),
        (
            {"backup": True},
            r"x may be the new file or missing, and x\.bak the original",
            {"x": b"new", "x.bak": b"original"},
        ),
    ],
    ids=str,
)
def test_failed_recovery_is_reported(
    how: dict[str, Any],
    said: str,
    left: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the disk fails after the rename and during the recovery, the error says so."""
    target = tmp_path / "x"
    if how:
        target.write_bytes(b"original")

    def fail_from_now_on(directory: Path) -> None:
        for name in ("rename", "replace", "unlink", "link"):
            monkeypatch.setattr(os, name, _fail)
        _fail(directory)

    monkeypatch.setattr(_placing, "sync_directory", fail_from_now_on)
    with pytest.raises(
        atomic.NotTakenBackError, match=f"failing, and the change could not be undone: {said}$"
    ):
        _publish(
            target, b"new", **{**how, **({"backup": tmp_path / "x.bak"} if "backup" in how else {})}
        )
    assert {name: data for name, data in held(tmp_path).items() if not name.startswith(".")} == left


@pytest.mark.parametrize("how", [{"overwrite": True}, {"backup": True}], ids=str)
def test_failed_recovery_of_a_directory_names_the_original(
    how: dict[str, Any], like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk fails between the two renames, the error names the path of the original."""
    target = tmp_path / "place/x"
    target.parent.mkdir()
    _directory(target, b"original", like)
    before = held(target)
    rename = os.rename

    def renaming(one: Any, other: Any) -> None:
        if not target.exists():
            _fail()
        rename(one, other)

    monkeypatch.setattr(os, "rename", renaming)
    with pytest.raises(
        atomic.NotTakenBackError,
        match=r"x may be the new file or missing, and x\.bak the original$",
    ):
        _directory(
            target,
            b"new",
            like,
            **{**how, **({"backup": target.with_name("x.bak")} if "backup" in how else {})},
        )
    assert held(target.with_name("x.bak")) == before
    assert [name.name for name in target.parent.iterdir()] == ["x.bak"]


def test_a_hidden_name_that_cannot_be_removed_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has its place, and the next run removes what stays."""
    monkeypatch.setattr(os, "unlink", _fail)
    _publish(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"


@pytest.mark.parametrize("one_step", [True, False])
def test_incomplete_file_never_has_the_output_name_without_hard_links(
    one_step: bool,  # noqa: FBT001
    no_links: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del no_links
    if not one_step:
        monkeypatch.setattr(_placing, "rename_exclusively", lambda *_: False)
    target = tmp_path / "x"
    seen = []
    for name in ("pwrite", "fsync", "fchmod", "copy_file_range", "close", "replace", "open"):
        function = getattr(os, name)

        def looking(*arguments: Any, function: Any = function, **named: Any) -> Any:
            seen.append(_content(target))
            return function(*arguments, **named)

        monkeypatch.setattr(os, name, looking)
    _publish(target, b"new")
    assert set(seen) <= {None, b"new", *([] if one_step else [b""])}
    with pytest.raises(FileExistsError):
        _publish(target, b"two")
    assert held(tmp_path) == {"x": b"new"}


def _content(path: Path) -> bytes | None:
    with contextlib.suppress(FileNotFoundError), io.FileIO(path) as stream:
        return stream.read()
    return None


def _fail(*_: Any, **__: Any) -> None:
    raise OSError(errno.EIO, "failing")


@pytest.mark.parametrize("older", [False, True])
def test_backup_of_another_process_is_kept(older: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """If two processes replace a file, the second does not remove the backup of the first."""
    target, backup = tmp_path / "x", tmp_path / "x.bak"
    target.write_bytes(b"original")
    if older:
        backup.write_bytes(b"older")

    def someone_else() -> None:
        _publish(target, b"theirs", backup=backup)  # which finds its backup made already
        raise OSError(errno.EIO, "changed meanwhile")

    with pytest.raises(OSError, match="changed meanwhile"):
        _publish(target, b"new", backup=backup, overwrite=older, check=someone_else)
    assert held(tmp_path) == {"x": b"theirs", "x.bak": b"original"}


def test_file_saved_by_another_process_is_not_replaced(tmp_path: Path) -> None:
    """Neither the new file nor the restored original replaces the file of another process."""
    target = tmp_path / "x"
    for how in ({"overwrite": True}, {"backup": tmp_path / "x.bak"}):
        target.write_bytes(b"original")

        def someone_else() -> None:
            (tmp_path / "theirs").write_bytes(b"theirs")
            (tmp_path / "theirs").replace(target)
            raise OSError(errno.EIO, "changed meanwhile")

        with pytest.raises(OSError, match="changed meanwhile"):
            _publish(target, b"new", **how, check=someone_else)
        assert target.read_bytes() == b"theirs"


def test_error_on_closing_does_not_fail_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file already has its final name."""
    close = os.close

    def closing(descriptor: int) -> None:
        close(descriptor)
        _fail()

    monkeypatch.setattr(os, "close", closing)
    _publish(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"


def test_file_with_the_temporary_name_of_the_original_is_kept(tmp_path: Path) -> None:
    for name in ("file", "folder"):
        target, aside = tmp_path / name, tmp_path / f"{name}{atomic.ASIDE}"
        target.mkdir()
        (target / "old").write_bytes(b"old")
        if name == "file":
            aside.write_bytes(b"mine")
        else:
            aside.mkdir()
        with atomic.DirectoryDraft.beside(target) as made:
            made.member(Path("old"))
            made.publish(target, like=target, overwrite=True)
        assert (target / "old").read_bytes() == b""
        assert aside.exists()
    assert (tmp_path / f"file{atomic.ASIDE}").read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "file",
        "file.bak",
        "folder",
        "folder.bak",
    ]


def test_interrupt_during_creation_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.mkdir

    def interrupted(self: Path, *how: Any, **named: Any) -> None:
        real(self, *how, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), DirectoryDraft.beside(tmp_path / "x") as made:
        made.create()
    assert not list(tmp_path.iterdir())
