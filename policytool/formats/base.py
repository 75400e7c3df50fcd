"""
What the formats share: the declaration of a format, the probe, what Keras' JSON has in common, and
files that users pass to a model loader by mistake, which their first bytes show.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final, TypeGuard

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
"""Enough for the one signature that stands at the end, that of a checkpoint's index."""

HEAD_BYTES: Final = 4096
"""
Enough for every signature, for a git-lfs pointer whole, and for HDF5's first three signature
offsets.
"""


ASSETS: Final = "assets"
"""The folder of a SavedModel, or an unpacked ``.keras`` model, with vocabularies and the like."""


class Probe:
    """A path, and the little that is read of it to recognise its format."""

    def __init__(self, path: AnyPath, display_path: str) -> None:
        self.path = path
        self.shown = display_path
        """How reports name the path."""

    @cached_property
    def is_directory(self) -> bool:
        """Whether the path is a directory."""
        return opening.is_directory(self.path)

    @cached_property
    def head(self) -> bytes:
        """The first :data:`HEAD_BYTES` bytes; none of a directory."""
        if self.is_directory:
            return b""
        return opening.read_head(self.path, HEAD_BYTES)

    @cached_property
    def tail(self) -> bytes:
        """
        The last :data:`TAIL_BYTES` bytes; none of a directory, or of a file that has not so many.
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
        """The names directly in the directory; none for a file."""
        return opening.names(self.path) if self.is_directory else frozenset()

    def content(self, limit: Limit, code: str, claim: str, name: str = "") -> bytes:
        """
        Return the bytes of the file, or of a file in the directory.

        :param claim: how a sentence about more bytes than the limit begins, such as ``is JSON of``
        :raises ModelFileError: with this code, beyond the limit.
        :raises OSError: where it cannot be read.
        """
        try:
            return opening.read_bounded(self.path / name if name else self.path, limit)
        except opening.TooLargeError as error:
            raise self.failure(code, f"{claim} {error.excess}") from error

    def check_limit(
        self, limit: Limit, count: int, code: str, claim: str, *, counting: bool = False
    ) -> None:
        """
        Make sure that a count is within a limit.

        :param claim: how a sentence about more begins, such as ``is JSON of``
        :param counting: as :meth:`policytool.support.limits.Limit.exceeded_message` takes it
        :raises ModelFileError: with this code, beyond the limit.
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
        """Return whether a path lies outside the model's directory once links are followed."""
        return opening.links_out(path, self.path if self.is_directory else self.path.parent)

    def failure(self, code: str, message: str) -> ModelFileError:
        """Return the error for this path."""
        return ModelFileError(self.shown, code, message)


def parse_json(probe: Probe, text: str | bytes, part: str, observations: list[Observation]) -> Json:
    """
    Return the JSON ``text`` of ``part``; duplicate keys become observations, anything else that is
    wrong a failure.
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


def escaping_asset(name: str, how: str) -> Observation:
    """Return what is observed of an asset that lies outside the model's directory."""
    return Observation(
        code="escaping-asset",
        message=f"the asset {name!r} {how} and was not read",
        where=ASSETS,
    )


def is_serialised(config: Json) -> TypeGuard[dict[str, Json]]:
    """
    Return whether JSON says what Keras' serialised objects all say: a class by its name, and a
    config.
    """
    return (
        isinstance(config, dict)
        and keras_objects.class_of(config) is not None
        and "config" in config
    )


def writer_of(config: dict[str, Json]) -> Writer:
    """Return who wrote an architecture, as it says beside the model's class."""
    version, backend = config.get("keras_version"), config.get("backend")
    return Writer(
        keras=version if isinstance(version, str) else None,
        backend=backend if isinstance(backend, str) else None,
    )


EXPECTED: Final = (
    "expected HDF5, a .keras file, a SavedModel directory, architecture JSON or YAML, a "
    "TensorFlow.js layers model, or a checkpoint's index"
)
_LFS: Final = b"version https://git-lfs.github.com/spec/"
_HTML: Final = (b"<!doctype html", b"<html")
_FOREIGN: Final = (
    (0, b"\x80\x02", "a Python pickle (PyTorch or scikit-learn)"),
    (0, b"\x80\x03", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (0, b"\x80\x05", "a Python pickle"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"\x1f\x8b", "a gzip archive; unpack it first"),
    (0, b"7z\xbc\xaf", "a 7-Zip archive; unpack it first"),
    (0, b"BZh", "a bzip2 archive; unpack it first"),
    (257, b"ustar", "a tar archive; unpack it first"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"GGUF", "a GGUF model"),
    (8, b'{"', "a safetensors file"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x89PNG", "an image"),
)
"""Offset, signature, and what it is."""


def failed_download(head: bytes) -> tuple[str, str] | None:
    """
    Return code and sentence for what a failed download leaves in a file's place; None for anything
    else.
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
    for offset, signature, what in _FOREIGN:
        if head[offset:].startswith(signature):
            return "foreign", f"is {what}; {EXPECTED}"
    return "foreign", f"has an unrecognized file format; {EXPECTED}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """
    A way in which models are stored; the module or package of each format declares one as
    ``FORMAT``.

    That module says which files are of the format. What the format can do with them is given as
    ``MODULE:FUNCTION`` and imported when it is used: it costs time at start, and a file is of one
    format. An empty text stands for what it cannot do.
    """

    package: str
    """The full name of the module or package."""

    reader: str
    """Its function that reads a document."""

    changes_finder: str = ""
    """Its function that returns the files of a model that change."""

    companions_finder: str = ""
    """
    Its function that returns the files that a model names relative to its directory, and that a
    copy of it needs beside itself.
    """

    creator_maker: str = ""
    """Its function without arguments that returns how models are written from nothing."""

    values_opener: str = ""
    """Its function that opens the values of the variables."""

    document_format: str
    """What :attr:`policytool.formats.document.Document.format` says of its whole models."""

    title: str
    """What reports call its documents."""

    suffixes: tuple[str, ...] = ()
    """How its files end, the usual suffix first; empty for directories and where any will do."""

    recognise: Callable[[Probe], bool]
    """By content; exactly one format recognises a file."""

    owns: Callable[[Path], bool] | None = None
    """
    Whether a file or folder with this relative path in the directory is part of the model; None for
    a format whose models are files.
    """

    whole: Callable[[AnyPath], AnyPath | None] | None = None
    """Return the model that a file is a part of; None for a file that is no part of one."""

    parts_are_models: bool = False
    """Whether a part is a model itself if a user names it, as a shard of HDF5 is."""

    names_parts: bool = False
    """Whether its models are files that name others, which may have any name."""

    def read(self, probe: Probe) -> Document:
        """
        Return the document of a file, without executing code and without following links out of the
        file.

        :raises ModelFileError: with a specific code and message for each kind of invalid file.
        """
        document: Document = resolve_name(self.reader)(probe)
        return document

    @property
    def is_directory(self) -> bool:
        """Whether its models are directories."""
        return self.owns is not None

    @property
    def is_rewritten(self) -> bool:
        """Whether its models can be rewritten; others are only read."""
        return bool(self.changes_finder)

    @property
    def file_changes(self) -> FindChanges | None:
        """The function that returns the files that change; None if models cannot be rewritten."""
        return resolve_name(self.changes_finder) if self.changes_finder else None

    def companions(self, path: Path) -> tuple[str, ...]:
        """
        Return the files that a model names, and that a copy of it needs beside itself.

        :raises WriteError: for a file that lies elsewhere.
        """
        names: tuple[str, ...] = ()
        return resolve_name(self.companions_finder)(path) if self.companions_finder else names

    @property
    def creator(self) -> Creator | None:
        """The creator of new models; None if the format cannot be created."""
        return resolve_name(self.creator_maker)() if self.creator_maker else None

    @property
    def open_values(self) -> OpenValues | None:
        """The function that opens the values of its variables; None if there are none."""
        return resolve_name(self.values_opener) if self.values_opener else None
