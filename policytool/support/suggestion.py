"""The known word that a user probably meant."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALIKE: Final = 0.6
"""The least similarity of a word that is suggested; difflib's own default."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """
    Return the end of a sentence about an unknown word, with a question if a known word is similar.
    If several are equally similar, the one with the longest common beginning is suggested.
    """
    from difflib import SequenceMatcher  # only after a mistake

    typed = word.casefold()
    ranked = [
        (ratio, len(posixpath.commonprefix([typed, known_word.casefold()])), known_word)
        for known_word in known
        if 2 * min(len(known_word), len(typed))
        >= _ALIKE * (len(known_word) + len(typed))  # else it is below
        and (ratio := SequenceMatcher(a=typed, b=known_word.casefold(), autojunk=False).ratio())
        >= _ALIKE
    ]
    _, _, near = max(ranked, default=(0.0, 0, ""))
    return f". Did you mean {near!r}?" if near else "."
