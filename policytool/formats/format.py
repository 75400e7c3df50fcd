"""What a format declares of itself."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.formats.creating.base import Creator
    from policytool.formats.document import Document
    from policytool.formats.rewriting.base import Rewriter
    from policytool.formats.stored_values.base import OpenValues
    from policytool.support.files.remote_path import AnyPath


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """
    A way in which models are stored; each package of a format declares one as ``FORMAT``.

    The package itself says which files are of the format. Its modules ``read``, ``rewrite``,
    ``create`` and ``values`` are imported when they are used: they cost time at start, and a file
    is of one format. A format whose package lacks one of the last three cannot do what it is for.
    """

    package: str
    """The full name of the package."""

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
        Return the document of a file, without executing anything, following no link out of it.

        :raises ModelFileError: with a sentence and a code of its own for each way in which the file
            can be wrong.
        """
        found: Document = self._find("read", "read")(probe)
        return found

    @property
    def is_directory(self) -> bool:
        """Whether its models are directories."""
        return self.owns is not None

    @property
    def is_rewritten(self) -> bool:
        """Whether its models can be rewritten; others are only read."""
        return find_spec(f"{self.package}.rewrite") is not None

    @property
    def rewriter(self) -> Rewriter | None:
        """How its models are rewritten."""
        found: Rewriter | None = self._find("rewrite", "REWRITER")
        return found

    @property
    def creator(self) -> Creator | None:
        """How its models are written from nothing."""
        found: Creator | None = self._find("create", "CREATOR")
        return found

    @property
    def open_values(self) -> OpenValues | None:
        """How the values of its variables are opened."""
        found: OpenValues | None = self._find("values", "open_values")
        return found

    def _find(self, module: str, name: str) -> Any:  # noqa: ANN401  # typed by what calls it
        path = f"{self.package}.{module}"
        return getattr(import_module(path), name) if find_spec(path) is not None else None
