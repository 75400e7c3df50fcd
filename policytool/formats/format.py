"""What a format declares of itself."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.formats.document import Document
    from policytool.formats.stored_values import OpenValues
    from policytool.formats.writers import Creator, Rewriter
    from policytool.support.files.remote_path import AnyPath


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

    rewriter_maker: str = ""
    """Its function without arguments that returns how models are rewritten."""

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
        return bool(self.rewriter_maker)

    @property
    def rewriter(self) -> Rewriter | None:
        """The rewriter of its models; None if they cannot be rewritten."""
        return resolve_name(self.rewriter_maker)() if self.rewriter_maker else None

    @property
    def creator(self) -> Creator | None:
        """The creator of new models; None if the format cannot be created."""
        return resolve_name(self.creator_maker)() if self.creator_maker else None

    @property
    def open_values(self) -> OpenValues | None:
        """The function that opens the values of its variables; None if there are none."""
        return resolve_name(self.values_opener) if self.values_opener else None
