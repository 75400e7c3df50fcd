"""No text that users read has words and phrases that have no correct use in it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

import pytest

from tests.helpers.marks import PARSING, THOROUGH
from tests.helpers.user_texts import Text, all_texts

PATTERNS: Final = {
    # literary and archaic phrases
    r"\bin vain\b": "say what is unnecessary",
    r"\bwithout a word\b": "silently",
    r"\bof (?:its|their|his|your|one's|someone's) own\b": "own, separate",
    r"\banew\b": "again; re-export",
    r"\bheed(?:s|ed)?\b": "apply, use",
    r"\bbit for bit\b": "unchanged, identical",
    r"\bfor ever\b": "forever, does not end",
    r"\bfarther off\b": "larger errors",
    r"\bslip of the pen\b": "a typo",
    r"\bas (?:it|they) (?:was|were)\b": "unchanged",
    r"\b(?:stands|stood)\b|\bwhere it stands\b": "is, is in",
    r"\b(?:lies|lie) (?:in|below|above|beside|outside|within)\b": "is in",
    r"\bspoilt\b": "damaged",
    r"\bwhoever\b|\bfor who\b": "anyone who",
    # words that the glossary replaces
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bbest effort\b": "untested",
    r"\brefus(?:e|es|ed|ing|al|als)\b": "fails to load, incompatible, rejects",
    r"\bloader'?s?\b": "release",
    r"\bgenerations?\b": "Keras 2 config, release",
    r"\bspell(?:s|ed|ing|ings)?\b": "policy format; write",
    r"\bjudg(?:e|es|ed|ing|ment)\b": "check, unknown",
    r"\blet(?:s|ting)? (?:\w+ )?pass\b": "suppress",
    r"\bpassed over\b": "skipped",
    r"\bheld against\b": "compared with, reference",
    r"\bcomputes? (?:the same|otherwise|differently)\b": "predictions unchanged; other results",
    # failures in everyday words
    r"\btakes? no\b": "has no, does not support",
    r"\btold\b": "reported",
    r"\basked\b": "requested, checked",
    r"\bof ours\b": "in policytool",
    r"\b(?:nobody|somebody|anybody)\b": "the user, no measurement",
    r"\bspeaks? against\b": "name the reason",
    r"\bat hand\b": "available",
    r"\b(?:is|are) to (?:take|run|be|go|have)\b": "must, should",
    r"\bmakes? of (?:it|them|the|a|this|every)\b": "handles",
    # constructions
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b)\w+": "is not a",
    r"\bwhat (?:mends|fixes|stdout|applies|stands|goes|lies|is no|they|it) ": "use a noun",
    r"\bsays? (?:so|how|what|which|why|where|whether)\b": "describes, shows",
    r"\b(?:and|or) (?:say|says|said) (?:so|it|nothing|how|why)\b|, and said\b": "reports",
    r"(?:, alone\b|\balone\b)": "only",
    r"\bwhere (?:there|that|it|they|nothing|none) (?:is|are|has|have)\b": "if",
    r"\b(?:in|with) (?:the \w+|its|their)(?:'s)? words\b": "format",
    r"\bnothing (?:is|was) (?:said|known|open|told)\b": "unknown",
    # translated idioms
    r"\bwhatever\b": "regardless of",
    r"\bnow and then\b": "before and after",
    r"\bfares? (?:well|badly|otherwise)\b": "differ, results",
    r"\bof which each\b|\bof which elements\b": "which differ; with",
    r"\bit was there\b": "available from X to Y",
    r"\bif need be\b": "if necessary, repeatable",
    r"\bmerely\b": "only",
    r"\bgoes in circles\b|\bnever let(?:s)? it go\b": "loops endlessly, hangs",
    r"[;.] name (?:a|an|another|the|one) (?!output\b)\w+": "specify",
    r"\bnamed with `?--config\b": "specified with",
    r"\bother (?:names|values|results|numbers)\b": "different",
    r"\b(?:gives?|gets?|needs?) (?:it |them )?none\b": "does not need one, has no",
    r"\bprogram that loads it decides\b": "set by the program that loads it",
    r"\b(?:nest|nests) below\b": "stays below",
    r"\bwithin (?:calls|layers|scopes|functions|groups|objects) within\b": "nested",
    r"(?<![\w./`\"'=-])(?:keras|tf|tf_keras)\d+\.\d+ (?:does|has|cannot|fails|lacks|needs)\b": (
        "Keras 3.15, by release_name()"
    ),
}
"""Regular expressions that match nothing written in plain technical English, and what to write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """A use of a pattern that stays."""

    place: str
    """A regular expression for the place."""

    text: str
    """A regular expression for the words around the match."""

    reason: str


pytestmark = PARSING

EXCEPTIONS: Final = (
    Allowed(
        place=r"^docs/evidence/public\.md$",
        text="Icon-Generation-cGANs",
        reason="the name of a public repository",
    ),
)

_CONTEXT: Final = 40
_COMPILED: Final = {text: re.compile(text, re.IGNORECASE) for text in PATTERNS}


def matches(texts: list[Text]) -> list[tuple[str, str, str]]:
    """Return each match that no exception allows: its pattern, place and context."""
    return [
        (pattern, place, context)
        for place, text in texts
        for pattern, compiled in _COMPILED.items()
        for match in compiled.finditer(text)
        if not _is_allowed(
            place, context := text[max(0, match.start() - _CONTEXT) : match.end() + _CONTEXT]
        )
    ]


def _is_allowed(place: str, context: str) -> bool:
    return any(
        re.search(item.place, place) and re.search(item.text, context) for item in EXCEPTIONS
    )


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    """Every text that users read."""
    return list(all_texts())


@THOROUGH
def test_texts_have_no_phrase_without_a_correct_use(texts: list[Text]) -> None:
    """A match is rewritten, or is one of the few exceptions."""
    result = matches(texts)
    shown = "\n".join(
        f"{place}: ...{context}...  ({PATTERNS[pattern]})"
        for pattern, place, context in result[:40]
    )
    assert not result, f"{len(result)} matches:\n{shown}"


@THOROUGH
def test_exceptions_are_few_and_used(texts: list[Text]) -> None:
    """An exception without a match would hide a later one."""
    assert len(EXCEPTIONS) <= 20
    unused = [
        item
        for item in EXCEPTIONS
        if not any(
            re.search(item.place, place) and re.search(item.text, text) for place, text in texts
        )
    ]
    assert not unused
    assert all(item.reason for item in EXCEPTIONS)


@pytest.mark.parametrize(
    "text",
    [
        "a loss scale that newer releases drop without a word",
        "base.json is no model that policytool knows",
        "Let pass what this file knows already.",
        "What it is held against.",
        "1 file that is no model was passed over",
    ],
)
def test_translated_sentences_are_found(text: str) -> None:
    """The patterns match what they were written for."""
    assert matches([("made up", text)])


if __name__ == "__main__":  # the counts, for whoever rewrites texts
    counts = Counter(pattern for pattern, _, _ in matches(list(all_texts())))
    for name, count in counts.most_common():
        print(f"{count:6} {name}")  # noqa: T201
    print(f"{counts.total():6} in all")  # noqa: T201
