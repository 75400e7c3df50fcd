"""Parts of sentences: lists of names, and the known word that a user probably meant."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def join_and_count(names: Sequence[str], most: int | None) -> str:
    """
    Return the first of the names and how many more there are, ``a, b and 7 more``; all of them if
    only one would be left out, or if ``most`` is None.
    """
    hidden_count = 0 if most is None else len(names) - most
    return (
        ", ".join(names)
        if hidden_count <= 1
        else f"{', '.join(names[:most])} and {hidden_count:,} more"
    )


def join_first(names: Sequence[str], most: int = 3) -> str:
    """Return the first of the names, and dots if there are more: ``a, b, c, ...``."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


_MIN_SIMILARITY: Final = 0.6
"""The minimum similarity of a word that is suggested; the default of difflib."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """
    Return the end of a sentence about an unknown word, with a question if a known word is similar.
    """
    closest = most_similar(word, known)
    return f". Did you mean {closest!r}?" if closest else "."


def most_similar(word: str, known: Iterable[str]) -> str:
    """
    Return the known word that is most similar to an unknown one; empty if none is similar. If
    several are equally similar, it is the one with the longest common beginning.
    """
    from difflib import SequenceMatcher  # only after a mistake

    typed = word.casefold()
    ranked = [
        (ratio, len(posixpath.commonprefix([typed, known_word.casefold()])), known_word)
        for known_word in known
        if 2 * min(len(known_word), len(typed))
        >= _MIN_SIMILARITY * (len(known_word) + len(typed))  # a fast upper bound of the ratio
        and (ratio := SequenceMatcher(a=typed, b=known_word.casefold(), autojunk=False).ratio())
        >= _MIN_SIMILARITY
    ]
    return max(ranked, default=(0.0, 0, ""))[2]


_LEADS_OUT: Final = re.compile(
    r"(^|[/\\])\.\.([/\\]|$) | ^[/\\] | ^[A-Za-z]:[/\\] | :// | \x00", re.VERBOSE
)


def leads_out(path: str) -> bool:
    """Return whether a path leads out of the directory that it is relative to."""
    return bool(_LEADS_OUT.search(path))
