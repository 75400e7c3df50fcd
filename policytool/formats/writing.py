"""
Writing of all models, whether edited, created or re-exported: write a draft, flush it to the disk,
read it back, compare and verify it, and rename it to the target. An
:class:`~policytool.formats.writing.Output` describes the content.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats.edits import WriteOptions, Written
from policytool.support.errors import CodedError, ModelFileError, PolicytoolError
from policytool.support.files import atomic, opening
from policytool.support.files.atomic import same_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from policytool.formats.edits import Counted


_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_WRITABLE: Final = {errno.EACCES, errno.EPERM, errno.EROFS}


class WriteError(CodedError, PolicytoolError):
    """
    A file that cannot be written as requested, or that does not read back correctly; ``code`` is
    stable.
    """


def difference_error(where: str) -> WriteError:
    """Return the error for a draft that does not read back correctly."""
    return WriteError(
        "write-differs",
        (f"the new file does not read back correctly: {where} differs; nothing was changed"),
    )


def require_same(is_same: bool, where: str) -> None:  # noqa: FBT001  # what the name asks for
    """
    Check that a part of a draft reads back correctly.

    :raises WriteError: if it does not.
    """
    if not is_same:
        raise difference_error(where)


def already_exists_error(name: str) -> WriteError:
    """Return the error for an output that exists and may not be replaced."""
    return WriteError(
        "target-exists",
        f"would be written to {name}, which already exists; use --existing replace, or -o for "
        "another name",
    )


@contextmanager
def report_failures(display_path: str, place: Path) -> Iterator[None]:
    """
    Convert every write failure into a :class:`ModelFileError`.

    :param display_path: the model's name in the message
    :param place: the file that is written
    :raises ModelFileError: instead of the original error.
    """
    try:
        yield
    except WriteError as error:
        raise ModelFileError(display_path, error.code, str(error)) from error
    except FileExistsError as error:
        raise ModelFileError(
            display_path,
            "target-exists",
            f"{place.name} was created by another process; nothing was changed",
        ) from error
    except OSError as error:
        _raise(error, display_path, place)


def _raise(error: OSError, display_path: str, place: Path) -> NoReturn:
    """Raise the error with a message about the reason why a model was not written."""
    reason = error.strerror or str(error)
    if isinstance(error, atomic.NotTakenBackError):
        raise ModelFileError(display_path, "write-failed", f"writing failed: {reason}") from error
    directory = place.parent if str(place.parent) != "." else "the working directory"
    code, problem = (
        ("no-space", f"not enough space for the new file in {directory}")
        if error.errno in _NO_SPACE
        else ("not-writable", f"cannot create a file in {directory}")
        if error.errno in _NOT_WRITABLE
        else ("write-failed", "writing failed")
    )
    raise ModelFileError(
        display_path, code, f"{problem} ({reason}); nothing was changed"
    ) from error


@dataclass
class Companions:
    """
    Copies of the files that a model needs; a context manager that removes the copies, unless
    :meth:`keep` is called.

    An existing file with the same bytes is kept; other existing files are never replaced. If
    another process created the model at the same time, no copy is removed, because that model may
    need it.
    """

    source: Path
    target: Path
    """The directories of the model and of its copy."""

    model: Path
    """The path of the model's copy."""

    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _drafts: dict[Path, atomic.Draft] = field(default_factory=dict)
    _published: list[Path] = field(default_factory=list)
    _made: list[Path] = field(default_factory=list)
    """The created directories."""

    _needed: list[Path] = field(default_factory=list)
    """Existing files that the model needs."""

    _before: os.stat_result | None = None

    def __enter__(self) -> Self:
        self._before = opening.find_status(self.model)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for place in reversed(
                self._published if self._published and self._is_as_before() else []
            ):
                with contextlib.suppress(
                    OSError
                ):  # the file is complete, and the next run can use it
                    self._drafts[place].retract(place)
            for directory in reversed(self._made):
                with contextlib.suppress(OSError):  # another process created a file in it
                    directory.rmdir()
        finally:
            self._stack.close()

    def copy(self, names: Iterable[str]) -> None:
        """
        Create a draft of each file.

        :raises WriteError: if a file is missing, or if the target's directory has a different file
            with its name.
        :raises OSError: if the operating system fails.
        """
        for name in names:
            source_file, place = self.source / name, self.target / name
            if not source_file.exists() or not stat.S_ISREG(source_file.stat().st_mode):
                raise WriteError(
                    "not-rewritable",
                    f"refers to the missing file {name}, so a copy in another directory "
                    "cannot be loaded",
                )
            if opening.find_status(place) is not None:
                if not place.is_file() or not same_bytes(source_file, place):
                    raise WriteError(
                        "target-exists",
                        f"{name} already exists in {self.target.name or self.target}, with "
                        "different content; use another directory",
                    )
                self._needed.append(place)
                continue
            if place not in self._drafts:
                self._make_directories(place.parent)
                draft = self._stack.enter_context(atomic.Draft.beside(place))
                self._drafts[place] = draft
                atomic.copy_file(source_file, draft.path)
                draft.flush()
                require_same(same_bytes(source_file, draft.path), name)

    def publish(self) -> None:
        """
        Publish each draft at its target.

        :raises OSError: if the operating system fails, or if another process created one of the
            files, or removed a needed file.
        """
        for place, draft in self._drafts.items():
            draft.publish(place, like=self.source / place.relative_to(self.target))
            self._published.append(place)
        for place in self._needed:
            place.lstat()

    def keep(self) -> None:
        """Keep the copies, because the model that needs them is published."""
        self._published.clear()
        self._made.clear()

    def _is_as_before(self) -> bool:
        try:
            current_status = opening.find_status(self.model)
        except OSError:  # an unreadable path may be a model that needs the copies
            return False
        return current_status is None or (
            self._before is not None and os.path.samestat(current_status, self._before)
        )

    def _make_directories(self, directory: Path) -> None:
        for parent in reversed(
            [parent for parent in (directory, *directory.parents) if not parent.exists()]
        ):
            parent.mkdir()
            self._made.append(parent)


DraftT = TypeVar("DraftT", atomic.Draft, atomic.DirectoryDraft)


class OutputPlace(Struct, frozen=True, kw_only=True):
    """The source and the target of a write, with links resolved."""

    source: Path
    target: Path
    home: Path
    """
    The directory of the source as specified, which differs from that of a resolved link.
    """

    replaces: bool
    """Whether the target is the source."""

    followed: bool
    """Whether the specified target is a link."""

    directory: Path | None = None
    """The directory of the source, if only this file of a model is replaced; otherwise None."""

    @classmethod
    def of(cls, source: Path, target: Path, *, in_place: bool = False) -> Self:
        """Return the place of ``target``, or of ``source`` if it is replaced."""
        name = source if in_place else target
        followed = name.is_symlink()
        return cls(
            source=source.resolve(),
            target=name.resolve() if followed else name.parent.resolve() / name.name,
            home=source.parent.resolve(),
            replaces=in_place,
            followed=followed,
        )

    def member(self, name: str) -> Self:
        """
        Return the place of a file in the replaced directory. A link is resolved, so that its target
        is replaced.
        """
        file = self.source / name
        return replace(
            self,
            source=file,
            target=file.resolve(),
            followed=self.followed or file.is_symlink(),
            directory=self.source,
        )

    @property
    def leaves_home(self) -> bool:
        """Whether the target is in another directory, without the files next to the source."""
        return not self.replaces and self.target.parent != self.home


class Output(Struct, Generic[DraftT], frozen=True, kw_only=True):
    """The functions that fill a draft and compare it after reading it back."""

    draft: type[DraftT]
    """The type of the draft: a file or a directory."""

    fill: Callable[[DraftT], Counted]
    """Write into the empty draft; return the effects of casts on the values."""

    compare: Callable[[DraftT], None]
    """
    Read the draft back; raise :class:`~policytool.formats.writing.WriteError` if it is not as
    expected.
    """

    member: str = ""
    """The only file of the source that is replaced; empty for a complete model."""

    companions: tuple[str, ...] = ()
    """Files next to the source that the output needs in its directory."""


AnyOutput: TypeAlias = Output[atomic.Draft] | Output[atomic.DirectoryDraft]


def write_output(
    source: Path,
    target: Path,
    options: WriteOptions,
    output: Callable[[OutputPlace], AnyOutput],
) -> Written:
    """
    Write an output to ``target``, or in place of ``source``.

    The output is complete, on the disk, compared and verified before it replaces anything; on
    failure, the target is unchanged. A file never replaces a directory.

    :param output: returns the output for a place
    :raises ModelFileError: with a sentence, and one of the codes ``target-exists``, ``no-space``,
        ``not-writable``, ``write-failed``, ``write-differs``, ``source-changed`` and
        ``not-rewritable``. Exceptions of ``fill``, ``compare`` and ``verify`` are propagated.
    """
    with report_failures(options.shown or str(source), source if options.in_place else target):
        place = OutputPlace.of(source, target, in_place=options.in_place)
        written = output(place)
        return _write(place.member(written.member) if written.member else place, written, options)


def _write(place: OutputPlace, output: Output[Any], options: WriteOptions) -> Written:
    """Create the draft, compare and verify it, and publish it."""
    backup = _free_backup(place, options) if options.backup and place.replaces else None
    is_directory = issubclass(output.draft, atomic.DirectoryDraft)
    _check_target(place, overwrite=options.overwrite, directory=is_directory)
    atomic.remove_stale(place.target.parent)
    before = _file_states(place.source)

    def check_source() -> None:
        if _file_states(place.source) != before:
            raise WriteError(
                "source-changed",
                (
                    "was changed by another process while policytool was reading it, so nothing "
                    "was written; run the command again"
                ),
            )

    step_times = [time.perf_counter()]
    with (
        Companions(place.home, place.target.parent, place.target) as companions,
        output.draft.beside(place.target) as draft,
    ):
        companions.copy(output.companions)
        counts = output.fill(draft)
        if not options.is_private:
            draft.flush()
        step_times.append(time.perf_counter())
        if not options.is_private:
            output.compare(draft)
        step_times.append(time.perf_counter())
        if options.verify is not None:
            with _view(place, draft) as path:
                options.verify(path)
        check_source()
        companions.publish()
        draft.publish(
            place.target,
            like=place.source if is_directory else _permissions_source(place.source),
            overwrite=options.overwrite or (place.replaces and backup is None),
            backup=backup,
            check=check_source,
        )
        companions.keep()
    return Written(
        target=place.target,
        backup=backup,
        followed_link=place.followed,
        write_seconds=step_times[1] - step_times[0],
        compare_seconds=step_times[2] - step_times[1],
        counts=counts,
    )


@contextmanager
def _view(place: OutputPlace, draft: atomic.Draft | atomic.DirectoryDraft) -> Iterator[Path]:
    """
    Yield a path by which other processes can read the draft under the target's name, in a hidden
    directory next to the target. For one file of a directory, the others are next to the draft.
    """
    siblings = place.directory.iterdir() if place.directory is not None else ()
    others = [sibling for sibling in siblings if sibling != place.source]
    with atomic.DirectoryDraft.beside(place.target) as hidden:
        if place.directory is None:
            path = hidden.create() / place.target.name
            draft.show(path)
        else:
            path = hidden.create() / place.directory.name
            path.mkdir()
            draft.show(path / place.source.name)
        for other in others:
            (path / other.name).symlink_to(other)
        yield path


def check_output(source: Path, target: Path, display_path: str, *, overwrite: bool) -> None:
    """
    Check that a rewritten copy of ``source`` may be written to ``target``.

    :param display_path: the model's name in error messages
    :raises ModelFileError: if ``target`` exists and may not be replaced, or if its directory cannot
        be read.
    """
    with report_failures(display_path, target):
        _check_target(
            OutputPlace.of(source, target), overwrite=overwrite, directory=source.is_dir()
        )


def _free_backup(place: OutputPlace, options: WriteOptions) -> Path:
    """Return the path of the backup."""
    backup = place.target.with_name(place.target.name + atomic.ASIDE)
    if (
        opening.find_status(backup) is not None
        and not options.overwrite
        and not atomic.same_file(backup, place.target)
    ):  # the backup of an interrupted run is the original
        raise WriteError(
            "target-exists",
            f"its backup {backup.name} already exists; remove it, or keep no backup",
        )
    return backup


def _check_target(place: OutputPlace, *, overwrite: bool, directory: bool) -> None:
    """Check that the output may have its name."""
    status = opening.find_status(place.target)
    if status is None:
        return
    if not stat.S_ISREG(status.st_mode) and not (stat.S_ISDIR(status.st_mode) and directory):
        raise WriteError(
            "target-exists", f"{place.target.name} is not a regular file; specify another output"
        )
    if not (overwrite or place.replaces):
        raise already_exists_error(place.target.name)


def _file_states(source: Path) -> dict[str, tuple[int, int, int]]:
    """Return inode, size and modification time of a model's files, to detect changes."""
    files = (
        [source]
        if not source.is_dir()
        else [Path(parent, name) for parent, _, names in os.walk(source) for name in names]
    )
    statuses = {str(file): file.stat() for file in files if file.exists()}
    return {
        name: (status.st_ino, status.st_size, status.st_mtime_ns)
        for name, status in statuses.items()
    }


def _permissions_source(source: Path) -> Path:
    """
    Return the file whose mode and owner a new file gets: the source, or the first file of a
    directory.
    """
    if not source.is_dir():
        return source
    return next((file for file in sorted(source.iterdir()) if file.is_file()), source)
