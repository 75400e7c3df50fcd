"""What rewriting a format takes, and what changes in a file."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from policytool.formats.writing.failures import WriteError
from policytool.support.text import jsonedit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.edits import Cast, Counted, Edit, StateSlot

    Apply: TypeAlias = Callable[[str, Sequence[jsonedit.Change]], str]
    """Returns a text with values replaced, added and removed in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What changes in one file."""

    edits: tuple[Edit, ...] = ()
    casts: tuple[Cast, ...] = ()
    state: tuple[StateSlot, ...] | None = None
    """The optimizer's state as it will be stored; None where it stays."""


class FileChange(Protocol):
    """What changes in one file of a model, and how the file is written with it."""

    def measure(self, source: Path) -> Counted:
        """Return what the casts do to the values."""
        ...

    def write(self, source: Path, draft: Path) -> Counted:
        """Write the changed source into an empty draft; return what :meth:`measure` does."""
        ...

    def compare(self, source: Path, draft: Path) -> None:
        """
        Raise :class:`~policytool.formats.writing.failures.WriteError` where the draft is not the
        source with the change, and nothing but it.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewriter:
    """
    How models of one format are rewritten; each ``rewrite`` module declares one as ``REWRITER``.
    """

    files: Callable[[Path, Changes], Mapping[str, FileChange]]
    """
    The files of a model that change, by their names in its directory; a model that is one file has
    an empty name.
    """

    companions: Callable[[Path], tuple[str, ...]] | None = None
    """
    The files that the model names relative to its directory, and that a copy of it needs beside
    itself.
    """


def refuse_casts(path: Path, casts: Sequence[Cast]) -> None:
    """
    Do nothing without casts, of which a file without tensors has none.

    :raises WriteError: if there are casts.
    """
    if casts:
        raise WriteError(
            "source-changed",
            f"{path.name} stores no tensors, but the plan casts some; run again with --preview",
        )


def edit_texts(
    texts: Mapping[str, str], edits: Sequence[Edit], apply: Apply = jsonedit.apply
) -> Mapping[str, str]:
    """
    Return the new text of each part that changes; ``apply`` knows the language of the texts.

    :raises WriteError: where the file does not hold what the edits say, or cannot be edited.
    """
    by_part: dict[str, list[jsonedit.Change]] = defaultdict(list)
    for edit in edits:
        by_part[edit.address.part].append((edit.address.pointer, edit.before, edit.after))
    missing = sorted(by_part.keys() - texts.keys())
    if missing:
        raise WriteError(
            "source-changed",
            f"has no {missing[0]}, which the plan changes; run again with --preview",
        )
    try:
        return {part: apply(texts[part], changes) for part, changes in by_part.items()}
    except jsonedit.EditError as error:
        raise WriteError(
            "source-changed", f"does not match the plan: {error}; run again with --preview"
        ) from error
