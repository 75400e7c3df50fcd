"""
Files that a model names and that have to lie beside it: copied with it into another directory,
whole or not at all.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from policytool.formats.writing.failures import WriteError, differs
from policytool.support.files import atomic, opening
from policytool.support.files.byte_ranges import same_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType


@dataclass
class Companions:
    """
    Copies in the making; a context manager that takes back what it made, unless :meth:`keep` is
    called.

    A file that is there already with the same bytes is left alone, and never replaced with others.
    Where someone else gave the model its place meanwhile, nothing is taken back: their model may
    need it.
    """

    source: Path
    target: Path
    """The directories of the model and of its copy."""

    model: Path
    """The place of the copy."""

    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _drafts: dict[Path, atomic.Draft] = field(default_factory=dict)
    _published: list[Path] = field(default_factory=list)
    _made: list[Path] = field(default_factory=list)
    """Directories."""

    _needed: list[Path] = field(default_factory=list)
    """Files that were there."""

    _before: os.stat_result | None = None

    def __enter__(self) -> Self:
        self._before = self._model()
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
                ):  # it is whole, and the next run takes it as it is
                    self._drafts[place].retract(place)
            for directory in reversed(self._made):
                with contextlib.suppress(OSError):  # someone else put a file there
                    directory.rmdir()
        finally:
            self._stack.close()

    def copy(self, names: Iterable[str]) -> None:
        """
        Make a draft of each file.

        :raises WriteError: for one that is not there, or that is in the target's directory as
            another file.
        :raises OSError: where the system fails.
        """
        for name in names:
            found, place = self.source / name, self.target / name
            if not found.exists() or not stat.S_ISREG(found.stat().st_mode):
                raise WriteError(
                    "not-rewritable",
                    f"refers to the missing file {name}, so a copy in another directory "
                    "cannot be loaded",
                )
            if opening.find_status(place) is not None:
                if not place.is_file() or not same_bytes(found, place):
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
                atomic.copy_file(found, draft.path)
                draft.flush()
                if not same_bytes(found, draft.path):
                    raise differs(name)

    def publish(self) -> None:
        """
        Give each draft its place.

        :raises OSError: where the system fails, or someone else made one of the files, or took one
            away that was there.
        """
        for place, draft in self._drafts.items():
            draft.publish(place, like=self.source / place.relative_to(self.target))
            self._published.append(place)
        for place in self._needed:
            place.lstat()

    def keep(self) -> None:
        """Let the copies stay: the model that needs them has its place."""
        self._published.clear()
        self._made.clear()

    def _model(self) -> os.stat_result | None:
        return opening.find_status(self.model)

    def _is_as_before(self) -> bool:
        try:
            now = self._model()
        except OSError:  # what cannot be looked at may be a model that needs them
            return False
        return now is None or (self._before is not None and os.path.samestat(now, self._before))

    def _make_directories(self, directory: Path) -> None:
        missing = [parent for parent in (directory, *directory.parents) if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir()
            self._made.append(parent)
