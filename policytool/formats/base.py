"""
Code that all formats share: the declaration of a format, the probe, Keras' JSON, and the detection
of other files that users specify by mistake, by their first bytes.
"""

from __future__ import annotations

import os
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final, TypeGuard

from msgspec import Struct

from policytool.formats.document import Observation, Writer
from policytool.releases import keras_objects
from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from policytool.formats.document import Document, Values
    from policytool.formats.writers import Creator, FindChanges
    from policytool.support.files.remote_path import AnyPath
    from policytool.support.limits import Limit
    from policytool.support.text.jsontext import Json

    OpenValues = Callable[["Probe", Document, ExitStack], Values]
    """Opens the values of a document's variables; the stack closes what it opened."""


TAIL_BYTES: Final = 8
"""The length of the only signature at the end of a file: that of a checkpoint's index."""

HEAD_BYTES: Final = 4096
"""
Enough bytes for all signatures, for a complete git-lfs pointer, and for the first three offsets of
HDF5's signature.
"""


ASSETS: Final = "assets"
"""The folder of a SavedModel or an unpacked ``.keras`` model with files such as vocabularies."""


class Probe:
    """A path, and the parts of the file or directory that show its format."""

    def __init__(self, path: AnyPath, display_path: str) -> None:
        self.path = path
        self.shown = display_path
        """The path as reports show it."""

    @cached_property
    def is_directory(self) -> bool:
        """Whether the path is a directory."""
        return opening.is_directory(self.path)

    @cached_property
    def head(self) -> bytes:
        """The first :data:`HEAD_BYTES` bytes of the file; empty for a directory."""
        if self.is_directory:
            return b""
        return opening.read_head(self.path, HEAD_BYTES)

    @cached_property
    def tail(self) -> bytes:
        """
        The last :data:`TAIL_BYTES` bytes of the file; empty for a directory or a shorter file.
        """
        if self.is_directory:
            return b""
        with opening.regular_stream(self.path) as stream:
            size = stream.seek(0, os.SEEK_END)
            if size < TAIL_BYTES:
                return b""
            stream.seek(-TAIL_BYTES, os.SEEK_END)
            return stream.read(TAIL_BYTES)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names directly in the directory; empty for a file."""
        return opening.names(self.path) if self.is_directory else frozenset()

    def content(self, limit: Limit, code: str, claim: str, name: str = "") -> bytes:
        """
        Return the bytes of the file, or of a file in the directory.

        :param claim: the beginning of the message if the file exceeds the limit, such as
            ``is JSON of``
        :raises ModelFileError: with this code, if the file exceeds the limit.
        :raises OSError: if the file cannot be read.
        """
        try:
            return opening.read_bounded(self.path / name if name else self.path, limit)
        except opening.TooLargeError as error:
            raise self.failure(code, f"{claim} {error.excess}") from error

    def check_limit(
        self, limit: Limit, count: int, code: str, claim: str, *, counting: bool = False
    ) -> None:
        """
        Check that a count does not exceed a limit.

        :param claim: the beginning of the message if the count exceeds it, such as ``is JSON of``
        :param counting: as in :meth:`policytool.support.limits.Limit.exceeded_message`
        :raises ModelFileError: with this code, if the count exceeds the limit.
        """
        if excess := limit.exceeded_message(count, counting=counting):
            raise self.failure(code, f"{claim} {excess}")

    def tensor_path(self, name: str, code: str) -> tuple[str, ...]:
        """
        Return the parts of a tensor's name.

        :raises ModelFileError: with this code, if the number of parts exceeds the limit for the
            depth of objects in a model.
        """
        parts = tuple(name.split("/"))
        self.check_limit(
            limits.OBJECT_DEPTH, len(parts), code, "has a tensor whose name consists of"
        )
        return parts

    def leads_out(self, path: AnyPath) -> bool:
        """Return whether a path, with links resolved, is outside the model's directory."""
        return opening.links_out(path, self.path if self.is_directory else self.path.parent)

    def failure(self, code: str, message: str) -> ModelFileError:
        """Return the error for this path."""
        return ModelFileError(self.shown, code, message)


def parse_json(probe: Probe, text: str | bytes, part: str, observations: list[Observation]) -> Json:
    """
    Return the value of the JSON ``text`` of ``part``. Add an observation for duplicate keys.
    """
    try:
        value, repeated = jsontext.parse(text)
    except jsontext.JsonError as error:
        raise probe.failure(error.code, f"{part} {error}") from error
    if repeated:
        keys = ", ".join(repr(key) for key in repeated[:5])
        observations.append(
            Observation(
                code="duplicate-key",
                message=(
                    f"{part} has duplicate keys in one object ({keys}); Keras uses the last value"
                ),
                where=part,
            )
        )
    return value


def escaping_asset(name: str, reason: str) -> Observation:
    """Return the observation about an asset outside the model's directory."""
    return Observation(
        code="escaping-asset",
        message=f"the asset {name!r} {reason} and was not read",
        where=ASSETS,
    )


def is_serialised(config: Json) -> TypeGuard[dict[str, Json]]:
    """
    Return whether JSON has the keys of a serialised Keras object: the name of a class, and a
    config.
    """
    return (
        isinstance(config, dict)
        and keras_objects.class_of(config) is not None
        and "config" in config
    )


def writer_of(config: dict[str, Json]) -> Writer:
    """Return the writer of an architecture, from the keys next to the model's class."""
    version, backend = config.get("keras_version"), config.get("backend")
    return Writer(
        keras=version if isinstance(version, str) else None,
        backend=backend if isinstance(backend, str) else None,
    )


EXPECTED: Final = (
    "expected HDF5, a .keras file, a SavedModel directory, architecture JSON or YAML, a "
    "TensorFlow.js layers model, a checkpoint's index, or an Orbax checkpoint"
)
_LFS: Final = b"version https://git-lfs.github.com/spec/"
_HTML: Final = (b"<!doctype html", b"<html")
_FOREIGN: Final = (
    (0, b"\x80\x02", "a Python pickle (PyTorch or scikit-learn)"),
    (0, b"\x80\x03", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (0, b"\x80\x05", "a Python pickle"),
    (0, b"\x1f\x8b", "a gzip archive; unpack it first"),
    (0, b"7z\xbc\xaf", "a 7-Zip archive; unpack it first"),
    (0, b"BZh", "a bzip2 archive; unpack it first"),
    (257, b"ustar", "a tar archive; unpack it first"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x89PNG", "an image"),
)
"""Offset, signature, and description of other file formats."""


def failed_download(head: bytes) -> tuple[str, str] | None:
    """
    Return the code and the message for the result of a failed download; None for any other file.
    """
    if not head:
        return "empty", "is empty (0 bytes); copy or download it again"
    if head.startswith(_LFS):
        return (
            "lfs-pointer",
            "is a git-lfs pointer, not the model itself; run `git lfs pull` in its repository",
        )
    if head.lstrip()[:200].lower().startswith(_HTML):
        return (
            "html-page",
            ("is an HTML page, not a model; download the raw file"),
        )
    return None


def foreign_file(head: bytes) -> tuple[str, str]:
    """Return the code and the message for a file in an unrecognized format."""
    if problem := failed_download(head):
        return problem
    if b"_tf_keras_" in head:
        return (
            "metadata-alone",
            (
                "contains Keras objects, but is not a complete keras_metadata.pb; specify the "
                "directory of the SavedModel, which also contains saved_model.pb"
            ),
        )
    for offset, signature, format_name in _FOREIGN:
        if head[offset:].startswith(signature):
            return "foreign", f"is {format_name}; {EXPECTED}"
    return "foreign", f"has an unrecognized file format; {EXPECTED}"


class Format(Struct, frozen=True, kw_only=True):
    """
    A file format of models. The module or package of each format declares it as ``FORMAT``.

    That module recognises the files of the format. The other functions are named as
    ``MODULE:FUNCTION`` and imported at first use, because imports take time and a file has only one
    format. An empty text means that the format lacks the feature.
    """

    package: str
    """The full name of the module or package."""

    reader: str
    """The function that reads a document."""

    changes_finder: str = ""
    """The function that returns the files of a model that change."""

    companions_finder: str = ""
    """
    The function that returns the files that a model names, relative to its directory, which a copy
    of the model needs in its directory.
    """

    creator_maker: str = ""
    """The function, without arguments, that returns the creator of new models."""

    values_opener: str = ""
    """The function that opens the values of the variables."""

    document_format: str
    """The value of :attr:`policytool.formats.document.Document.format` for complete models."""

    title: str
    """The name of the format in reports."""

    suffixes: tuple[str, ...] = ()
    """The file suffixes, the usual one first; empty for directories and if any suffix works."""

    recognise: Callable[[Probe], bool]
    """Whether a file is of this format, by content. At most one format recognises a file."""

    owns: Callable[[Path], bool] | None = None
    """
    Whether a file or folder with this relative path in the directory is part of the model; None for
    a format whose models are files.
    """

    whole: Callable[[AnyPath], AnyPath | None] | None = None
    """Return the model that a file is a part of; None if it is not a part of a model."""

    parts_are_models: bool = False
    """Whether a part is a model itself if a user specifies it, such as a shard of HDF5."""

    names_parts: bool = False
    """Whether a model is a file that refers to other files, which may have any name."""

    def read(self, probe: Probe) -> Document:
        """
        Return the document of a file. No code of the file is executed, and no link to another file
        is followed.

        :raises ModelFileError: with a specific code and message for each kind of invalid file.
        """
        document: Document = resolve_name(self.reader)(probe)
        return document

    @property
    def is_directory(self) -> bool:
        """Whether models of this format are directories."""
        return self.owns is not None

    @property
    def is_rewritten(self) -> bool:
        """Whether models of this format can be rewritten; other formats can only be read."""
        return bool(self.changes_finder)

    @property
    def file_changes(self) -> FindChanges | None:
        """The function that returns the files that change; None if models cannot be rewritten."""
        return resolve_name(self.changes_finder) if self.changes_finder else None

    def companions(self, path: Path) -> tuple[str, ...]:
        """
        Return the files that a model names, which a copy of the model needs in its directory.

        :raises WriteError: if such a file is outside the model's directory.
        """
        names: tuple[str, ...] = ()
        return resolve_name(self.companions_finder)(path) if self.companions_finder else names

    @property
    def creator(self) -> Creator | None:
        """The creator of new models; None if the format cannot be created."""
        return resolve_name(self.creator_maker)() if self.creator_maker else None

    @property
    def open_values(self) -> OpenValues | None:
        """The function that opens the values of variables; None if the format stores no values."""
        return resolve_name(self.values_opener) if self.values_opener else None
