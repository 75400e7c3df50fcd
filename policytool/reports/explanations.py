"""
Reports of ``explain``: a page with the message, the cause, a check and a fix of each entry, and
JSON.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from policytool.reports.fields import (
    FLAG,
    OPTIONAL_TEXT,
    POSITIVE,
    SENTENCE,
    TEXT,
    TEXTS,
    Field,
    Record,
    Report,
    fields_of,
    items,
    nullable,
    text_type,
)
from policytool.reports.page import (
    Block,
    Command,
    Fact,
    Facts,
    Page,
    Section,
    Sentence,
    Tone,
    Verdict,
)
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.shared_fields import PATH_TEXT
from policytool.reports.words import migrate_words
from policytool.support import project
from policytool.troubleshooting.entries import MOST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.reports.layout import View
    from policytool.troubleshooting.entries import Explanation, Match, Step, TestedModel


PAGE: Final = "how-to/troubleshooting.md"
"""The page of the documentation with all entries."""

_SHOWN: Final = 300
"""The maximum number of characters of the matching line."""


def page(explanation: Explanation, _view: View) -> Page:
    """Return the page: the verdict on the model if there is one, and a group for each entry."""
    groups = [tuple(_blocks(match)) for match in explanation.matches]
    if explanation.model is not None:
        groups.insert(0, tuple(_model_blocks(explanation.model, has_entries=bool(groups))))
    return Page(groups=tuple(groups))


def headline(explanation: Explanation) -> str:
    """Return the best entry and the number of other matches, in one line."""
    if explanation.model is not None and explanation.model.loads:
        condition = "" if explanation.model.is_compiled else " with compile=False"
        return f"{explanation.model.path} loads in {explanation.model.release}{condition}"
    if not explanation.matches:
        return "no known error message matches"
    best, *others = explanation.matches
    further = f"; {len(others)} more" if others else ""
    return f"{best.entry.id}: {best.entry.cause}{further}"


def link(match: Match) -> str:
    """Return the address of an entry in the documentation."""
    return f"{project.page(PAGE)}#{match.entry.id}"


def _model_blocks(model: TestedModel, *, has_entries: bool) -> Iterator[Block]:
    """Yield the verdict on the model, and the command that fixes it."""
    words = {True: "loads in", False: "fails to load in", None: "may not load in"}[model.loads]
    condition = " with compile=False" if model.loads and not model.is_compiled else ""
    reason = f": {model.reason}" if model.reason is not None else ""
    yield Verdict.whole(f"{model.path} {words} {model.release}{condition}{reason}", Tone.TITLE)
    if model.arguments is not None:
        yield Command(label="fix", words=migrate_words(model.path, model.arguments))
    if model.loads and model.is_compiled and has_entries:
        yield Sentence(
            text="The file contradicts the causes below: the message is about another file or "
            "release, or about the code that loads the file."
        )


def _blocks(match: Match) -> Iterator[Block]:
    entry = match.entry
    line = match.text if len(match.text) <= _SHOWN else f"{match.text[:_SHOWN]}…"
    yield Verdict.whole(entry.cause, Tone.TITLE)
    yield Section(title="fix", blocks=tuple(_steps(*entry.fix)))
    yield Section(title="check", blocks=tuple(_steps(entry.check)))
    yield Facts(
        facts=(
            Fact(label=f"line {match.line}", text=line, tone=Tone.DIM),
            Fact(label="message", text=entry.title),
            Fact(label="printed by", text=entry.releases),
        )
    )
    yield Sentence(text=f"See {link(match)}", tone=Tone.DIM)


def _steps(*steps: Step) -> Iterator[Block]:
    for step in steps:
        yield from _step(step)


def _step(step: Step) -> Iterator[Block]:
    yield Sentence(text=step.text)
    if step.command:
        yield Command(label="run", words=tuple(shlex.split(step.command)))


_STEP: Final[Record[Step]] = Record(
    "step",
    (
        Field("text", SENTENCE),
        Field(
            "command",
            OPTIONAL_TEXT,
            "A policytool command; null if the step is not a command.",
            value=lambda step: step.command or None,
        ),
    ),
)
_MATCH: Final[Record[Match]] = Record(
    "match",
    (
        *fields_of(
            "entry",
            (
                Field("id", text_type("^[a-z0-9]+(-[a-z0-9]+)*$"), "A stable name."),
                Field("title", SENTENCE, "The message as people see it."),
            ),
        ),
        Field("line", POSITIVE, "The number of the line in which the match begins, from 1."),
        Field("text", TEXT, "That line, without colors."),
        *fields_of(
            "entry",
            (
                Field("releases", SENTENCE, "The releases that print the message."),
                Field("cause", SENTENCE),
                Field("check", _STEP),
                Field("fix", items(_STEP, minItems=1)),
            ),
        ),
        Field("url", SENTENCE, "The address of the entry in the documentation.", value=link),
    ),
)

_MODEL: Final[Record[TestedModel]] = Record(
    "model",
    (
        Field("path", SENTENCE, PATH_TEXT),
        Field("release", SENTENCE, "The release that the answer is for."),
        Field(
            "loads",
            nullable(FLAG),
            "Whether this release loads the model with `compile=False`; null if unknown.",
        ),
        Field(
            "reason",
            nullable(SENTENCE),
            "Why the model, or else its training configuration, fails to load or is unknown; null "
            "if both load.",
        ),
        Field(
            "arguments",
            nullable(TEXTS),
            "The arguments after `policytool migrate PATH` that fix the model; null without a fix.",
        ),
    ),
)

REPORT: Final[Report[Explanation]] = Report(
    "explain",
    1,
    "The entries that explain an error message, the most likely first. Additions keep the version "
    "number; any other change increases it.",
    (
        Field("matches", items(_MATCH, maxItems=MOST), "Empty if no entry matches."),
        Field("model", nullable(_MODEL), "The model that was named; null without one."),
        Field(
            "page",
            SENTENCE,
            "The address of the list of all entries.",
            value=lambda _explanation: project.page(PAGE),
        ),
    ),
)


EXPLANATION_REPORTERS: Final[tuple[Reporter[Explanation], ...]] = (
    *reporters_for_people(page, "policytool explain"),
    json_reporter(REPORT, ascii_only=True),
)
"""The first is the default."""

__all__ = ["EXPLANATION_REPORTERS", "PAGE", "headline", "page"]
