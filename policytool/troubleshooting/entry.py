"""One error message that people search for, with its cause, a check and a fix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re


class Specificity(Enum):
    """How much a pattern reveals about the cause; the value is the confidence of a full match."""

    EXACT = 0.95
    """Only this cause prints the message."""

    LIKELY = 0.75
    """This is the usual cause of the message."""

    GENERAL = 0.4
    """The message has several causes; an entry that names one of them is preferred."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """
    A regular expression for a message.

    It is searched in text whose white space is collapsed to single spaces. Repetitions are bounded,
    so that the time is linear in the length of the text.
    """

    regex: re.Pattern[str]
    specificity: Specificity
    needs: str = ""
    """
    A regular expression that the text must also contain, anywhere; empty for nothing. It is
    compiled only if ``regex`` matches.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Something to do: a sentence, and a command if one does it."""

    text: str
    command: str = ""
    """
    A policytool command in which ``model.h5``, ``model.keras``, ``model.json``, ``model.yaml`` and
    ``exported/`` stand for the model.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An error message, its cause, and what to do."""

    id: str
    """A stable name in kebab case, and the anchor in the documentation."""

    title: str
    """The message as people see it."""

    patterns: tuple[Pattern, ...]
    releases: str
    """The releases that print the message."""

    cause: str
    check: Step
    fix: tuple[Step, ...]
    sources: tuple[str, ...] = ()
    """Public reports of the message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Entries about one subject."""

    title: str
    entries: tuple[Entry, ...]
