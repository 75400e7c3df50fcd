"""The fields of ``explain``, of which its JSON consists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.explanations._page import PAGE, link
from policytool.reports.fields import (
    OPTIONAL_TEXT,
    POSITIVE,
    SENTENCE,
    TEXT,
    Field,
    Record,
    Report,
    Type,
    fields_of,
    items,
    text_type,
)
from policytool.support import project
from policytool.troubleshooting.matching import MOST

if TYPE_CHECKING:
    from policytool.troubleshooting.entry import Step
    from policytool.troubleshooting.matching import Explanation, Match

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
        Field("confidence", Type({"type": "number", "exclusiveMinimum": 0, "maximum": 1})),
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

REPORT: Final[Report[Explanation]] = Report(
    "explain",
    1,
    "The entries that explain an error message, the most likely first. Additions keep the version "
    "number; any other change increases it.",
    (
        Field("matches", items(_MATCH, maxItems=MOST), "Empty if no entry matches."),
        Field(
            "page",
            SENTENCE,
            "The address of the list of all entries.",
            value=lambda _explanation: project.page(PAGE),
        ),
    ),
)
