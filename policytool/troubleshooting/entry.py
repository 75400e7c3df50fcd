"""One error message that people search for, with its cause, a check and a fix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

KERAS: Final = re.compile(r"keras|tensorflow|tf_keras|h5py", re.IGNORECASE)
"""
What a text about Keras contains: the context of messages that other Python programs print as well.
"""


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
    needs: re.Pattern[str] | None = None
    """What the text must also contain, anywhere; None for nothing."""


def exact(regex: str, needs: re.Pattern[str] | None = None) -> Pattern:
    """Return a pattern that only one cause prints."""
    return Pattern(regex=re.compile(regex), specificity=Specificity.EXACT, needs=needs)


def likely(regex: str, needs: re.Pattern[str] | None = None) -> Pattern:
    """Return a pattern that usually has one cause."""
    return Pattern(regex=re.compile(regex), specificity=Specificity.LIKELY, needs=needs)


def general(regex: str, needs: re.Pattern[str] | None = None) -> Pattern:
    """Return a pattern that has several causes."""
    return Pattern(regex=re.compile(regex), specificity=Specificity.GENERAL, needs=needs)


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


def issue(repository: str, number: int) -> str:
    """Return the address of an issue on GitHub."""
    return f"https://github.com/{repository}/issues/{number}"


def one_of(names: Iterable[str]) -> str:
    """Return a regular expression for any of these names."""
    return f"(?:{'|'.join(names)})"
