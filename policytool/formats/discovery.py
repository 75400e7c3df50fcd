"""
Discovery of the models that command-line arguments specify.

A path to a file must be a model. In a directory, and among the matches of a glob, other files are
skipped.
"""

from __future__ import annotations

import glob
import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.formats import FORMATS
from policytool.formats.format_detection import document, is_model
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.files import opening, remote_path
from policytool.support.files.remote_path import AnyPath, RemotePath
from policytool.support.grouping import EachOnce

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BACKUP: Final = ".bak"

_MAX_CANDIDATES: Final = 100
"""The maximum number of files that are read to name a model in a directory."""


class Input(Struct, frozen=True, kw_only=True):
    """One path to read."""

    path: AnyPath
    exact: bool
    """Whether the user specified this path, so that it must be a model."""

    shown: str | None = None
    """The name in reports, such as the URL of a local copy; None for the path itself."""

    @property
    def local_path(self) -> Path:
        """
        The path, for a command that reads or writes only files of this machine.

        :raises UsageError: for a URL.
        """
        if isinstance(self.path, RemotePath):
            raise _url_error(self.path.shown)
        return self.path

    @property
    def display_path(self) -> str:
        """
        The path as reports show it: POSIX, relative if it is below the working directory.
        """
        return self.shown or display_path(self.path)


def display_path(path: AnyPath) -> str:
    """
    Return a path in POSIX form, relative to the working directory if it is below it. A URL, and a
    path that resembles a URL, is returned without credentials. A path that could be mistaken for a
    URL starts with ``./``.
    """
    if isinstance(path, RemotePath):
        return path.shown
    absolute = Path(
        os.path.abspath(path)
    )  # resolve() would follow links, but reports show the path that the user specified
    try:
        text = absolute.relative_to(Path.cwd()).as_posix()
    except ValueError:
        text = absolute.as_posix()
    return f"{'./' if remote_path.is_url(text) else ''}{remote_path.without_secrets(text)}"


def inputs(arguments: Iterable[str], *, remote: bool = False) -> Iterator[Input]:
    """
    Yield the inputs that the arguments specify, without duplicates and in their order; without
    arguments, all inputs below the working directory.

    A part of a SavedModel or of an unpacked ``.keras`` model yields its directory; a part of a
    checkpoint yields its index.

    :param remote: whether the caller reads URLs
    :raises UsageError: for a URL if ``remote`` is false, and for an invalid path.
    """
    listed = list(arguments) or ["."]
    if remote and any(map(remote_path.is_url, listed)):
        opening.forget()  # objects, and aliases of a registry, may differ from the last search
    yielded: set[RemotePath | str] = set()
    searched = _SearchedDirectories()
    for candidate in _expand(listed, searched, remote=remote):
        named = Input(
            path=containing_model(candidate.path, exact=candidate.exact), exact=candidate.exact
        )
        path = named.path
        identity = path if isinstance(path, RemotePath) else searched.real_path(path)
        if identity not in yielded:
            yielded.add(identity)
            yield named


def named_input(path: str | Input, *, remote: bool = False) -> Input:
    """
    Return the model that a path specifies, or the only one in a directory.

    :param path: a path; an input is returned itself
    :param remote: whether the caller reads URLs
    :raises ModelFileError: for a directory or a glob with no model or with several.
    :raises UsageError: as in :func:`inputs`.
    """
    if isinstance(path, Input):
        return path
    source = next(iter(inputs([path], remote=remote)), None)
    if source is None or not source.exact:
        candidates = inputs([path], remote=remote)
        readable = filter(_is_readable, islice(candidates, _MAX_CANDIDATES))
        models = [*islice(readable, 2)]
        if len(models) == 1 and next(candidates, None) is None:
            return models[0]
        advice = f" in it, such as {models[0].display_path}" if models else ""
        raise ModelFileError(
            remote_path.without_secrets(path),
            "no-model",
            f"is a pattern, or a directory that is not a model; specify one model{advice}",
        )
    return source


def _is_readable(source: Input) -> bool:
    try:
        document(source.path, source.display_path)
    except ModelFileError:
        return False
    return True


class _SearchedDirectories(Struct, frozen=True):
    """The directories that a search has visited, so that it visits each directory only once."""

    by_path: dict[str, str] = field(default_factory=dict)
    """The path of each visited directory, with links resolved."""

    real: set[str] = field(default_factory=set)

    def enter(self, directory: str) -> bool:
        """Record a directory; return whether it is new, also if reached by different paths."""
        resolved = self.real_path(Path(directory))
        is_new = resolved not in self.real
        self.real.add(resolved)
        self.by_path[directory] = resolved
        return is_new

    def real_path(self, path: Path) -> str:
        """
        Return a path with links resolved.

        The whole path is resolved only outside of visited directories; otherwise the number of
        steps would be the square of the depth.
        """
        parent = self.by_path.get(str(path.parent))
        if parent is None or path.name in {"", ".."} or os.path.islink(path):  # noqa: PTH114  # raises where paths are too long
            return os.path.realpath(path)
        return os.path.join(parent, path.name)  # noqa: PTH118  # as fast as possible


def _expand(
    arguments: list[str], searched: _SearchedDirectories, *, remote: bool
) -> Iterator[Input]:
    """Yield the inputs that each argument specifies, a local path or a URL."""
    for argument in arguments:
        is_local = "://" not in argument and os.path.lexists(argument)  # a directory models:
        if remote_path.is_url(argument) and not is_local:
            if not remote:
                raise _url_error(remote_path.without_secrets(argument))
            yield from _expand_url(remote_path.parse(argument))
        else:
            yield from _expand_local(argument, searched)


def _url_error(url: str) -> UsageError:
    return UsageError(
        f"the path {url} is a URL, but this command reads only local files; download it first"
    )


def _expand_local(argument: str, searched: _SearchedDirectories) -> Iterator[Input]:
    """
    Yield the inputs that a path, a directory or a glob specifies.

    :raises UsageError: for an invalid path.
    """
    if "\0" in argument:
        first = argument.partition("\0")[0]
        raise UsageError(
            f"a path contains a NUL character after {first!r}; paths cannot contain it"
        )
    path = Path(argument)
    if os.path.isdir(path) and not is_model(
        path
    ):  # Path.is_dir raises if the user may not enter a parent
        yield from _below(path, searched)
    elif remote_path.GLOB & set(argument) and not os.path.exists(path):
        matches = sorted(_matches(argument))
        if not matches:
            yield Input(
                path=path, exact=True
            )  # no match: reading it as a path reports that it does not exist
        for match in matches:
            matched = Path(match)
            if matched.is_dir() and not is_model(matched):
                yield from _below(matched, searched)
            elif not _is_skipped(matched.name):
                yield Input(path=matched, exact=False)
    else:
        yield Input(path=path, exact=True)


def _expand_url(path: RemotePath) -> Iterator[Input]:
    """
    Yield the inputs at a URL. A URL that cannot be read is yielded itself, so that reading it
    reports the reason.
    """
    try:
        yield from list(_inputs_at(path))
    except ModelFileError:
        yield Input(path=path, exact=True)


def _inputs_at(path: RemotePath) -> Iterator[Input]:
    """
    Yield the inputs at a URL.

    :raises ModelFileError: if the request to the server fails.
    """
    if opening.is_directory(path) and not is_model(path):
        yield from _below_remote(path)
    elif not path.before_pattern() or opening.exists(path):
        yield Input(path=path, exact=True)
    elif matches := opening.matches(path):
        for match in matches:
            if opening.is_directory(match) and not is_model(match):
                yield from _below_remote(match)
            elif not _is_skipped(match.name):
                yield Input(path=match, exact=False)
    else:
        yield Input(path=path, exact=True)  # reading it reports that it does not exist


def _below_remote(directory: RemotePath) -> Iterator[Input]:
    """
    Yield the inputs below a remote directory, as :func:`_below` does. A directory that cannot be
    listed is yielded itself.
    """
    pending = [directory]
    while pending:
        current = pending.pop()
        try:
            names = sorted(name for name in opening.names(current) if not _is_skipped(name))
            folders = [name for name in names if opening.is_directory(current / name)]
            models = {name for name in folders if is_model(current / name)}
        except ModelFileError:
            yield Input(path=current, exact=True)
            continue
        for name in (*sorted(models), *(name for name in names if name not in folders)):
            yield Input(path=current / name, exact=False)
        pending += [current / name for name in reversed(folders) if name not in models]


def _below(directory: Path, searched: _SearchedDirectories) -> Iterator[Input]:
    """
    Yield the files below a directory, in name order. A model's directory is one input; hidden
    entries and backups are skipped.
    """
    errors: list[OSError] = []
    pending = [directory]  # os.walk recurses in Python 3.11, which ends at 1,000 levels
    while pending:
        root = pending.pop()
        if not searched.enter(str(root)):
            continue
        try:
            entries = _visible_entries(root)
        except OSError as error:
            errors.append(error)
            continue
        folders = [entry for entry in entries if _is_directory(entry)]
        models = {entry.name for entry in folders if is_model(root / entry.name)}
        inner = {entry.name for entry in folders if not entry.is_symlink()} - models
        names = {entry.name for entry in folders}
        for name in (
            *sorted(models),
            *(entry.name for entry in entries if entry.name not in names),
        ):
            yield Input(path=root / name, exact=False)
        pending += [root / name for name in sorted(inner, reverse=True)]
    for closing in errors:  # report a directory without permission instead of skipping it
        yield Input(path=Path(closing.filename), exact=True)


def _visible_entries(directory: str | Path) -> list[os.DirEntry[str]]:
    """
    Return the entries of a directory in name order, without hidden entries and backups.

    :raises OSError: if it cannot be read.
    """
    with os.scandir(str(directory)) as scanned:
        entries = [entry for entry in scanned if not _is_skipped(entry.name)]
    return sorted(entries, key=lambda entry: entry.name)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circular link; reading it reports the error
        return False


def _matches(pattern: str) -> Iterable[str]:
    """
    Return the matches of a glob.

    As in the search of a directory, ``**`` skips hidden directories and does not follow links.
    Two links to their own directory would yield as many paths as the system allows links.
    """
    parts = Path(pattern).parts
    if "**" not in parts:
        return glob.glob(pattern)  # Path.glob does not support absolute patterns
    paths: Iterable[str] = ("",)
    for number, part in enumerate(parts):
        if part != "**":
            paths = [
                match
                for path in paths
                for match in glob.glob(os.path.join(glob.escape(path), part))  # noqa: PTH118  # of texts
            ]
        else:
            paths = dict.fromkeys(_tree(paths, with_files=number == len(parts) - 1))
    return paths


def _tree(roots: Iterable[str], *, with_files: bool) -> Iterator[str]:
    """Yield directories and their subdirectories, each once, and optionally the files in them."""
    walk = EachOnce(roots)
    for root in walk:
        try:
            entries = _visible_entries(root or os.curdir)
        except OSError:  # not a directory, or not readable
            continue
        if root or not with_files:  # the working directory does not match, but its files do
            yield root
        for entry in entries:
            path = os.path.join(root, entry.name)  # noqa: PTH118  # as above
            if entry.is_dir(follow_symlinks=False):
                walk.add([path])
            elif with_files:
                yield path


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name.endswith(_BACKUP)


def containing_model(path: AnyPath, *, exact: bool = False) -> AnyPath:
    """
    Return the directory, the checkpoint's index or the map of shards that a path is a part of, or
    the path itself.

    :param exact: whether the user specified the path; a part that is a model itself is then
        returned unchanged
    """
    wholes = (
        file_format.whole(path)
        for file_format in FORMATS
        if file_format.whole is not None and not (exact and file_format.parts_are_models)
    )
    try:
        return next((container for container in wholes if container is not None), path)
    except ModelFileError:  # from a server: keep the path, so that reading it reports the reason
        return path
