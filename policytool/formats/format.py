"""What a format declares of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.formats.creating.base import Creator
    from policytool.formats.document import Document
    from policytool.formats.rewriting.base import Rewriter
    from policytool.formats.stored_values.base import OpenValues


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """
    A way in which models are stored; each package of a format declares one as ``FORMAT``.

    ``rewriter``, ``creator`` and ``values`` import their module when they are called: reading a
    model needs none of them, and they cost time at start.
    """

    name: str
    document_format: str
    """What :attr:`policytool.formats.document.Document.format` says of its whole models."""

    title: str
    """What reports call its documents."""

    suffixes: tuple[str, ...] = ()
    """How its files end, the usual suffix first; empty for directories and where any will do."""

    recognise: Callable[[Probe], bool]
    """By content; exactly one format recognises a file."""

    read: Callable[[Probe], Document]
    """
    Read without executing anything, following no link out of the file.

    :raises ModelFileError: with a sentence and a code of its own for each way in which the file can
        be wrong.
    """

    owns: Callable[[Path], bool] | None = None
    """
    Whether a file or folder with this relative path in the directory is part of the model; None for
    a format whose models are files.
    """

    whole: Callable[[Path], Path | None] | None = None
    """Return the model that a file is a part of; None for a file that is no part of one."""

    parts_are_models: bool = False
    """Whether a part is a model itself if a user names it, as a shard of HDF5 is."""

    rewriter: Callable[[], Rewriter] | None = None
    """Return how its models are rewritten; None for a format that is only read."""

    creator: Callable[[], Creator] | None = None
    """Return how its models are written from nothing; None if they are not."""

    values: Callable[[], OpenValues] | None = None
    """Return how the values of its variables are opened; None if it stores none."""

    @property
    def is_directory(self) -> bool:
        """Whether its models are directories."""
        return self.owns is not None
