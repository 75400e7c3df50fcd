"""
The error messages that people search for, each with its cause, a check and a fix.

They are in ``data/FAMILY.toml``, as ``data/schemas/`` describes them, and refer to the steps and
expressions of ``data/shared.toml`` by name.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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


FAMILIES: Final = ("policies", "layers", "formats", "files", "optimizers", "numerics")
"""The files of entries, in the order of the documentation."""

_REFERENCE: Final = re.compile(r"\(\?&(\w+)\)")
"""A reference to an expression, as regular expressions of Perl refer to groups."""


@cache
def families() -> tuple[Family, ...]:
    """Return all entries, by subject, in the order of the documentation."""
    shared = _parsed("shared")
    return tuple(_family(_parsed(name), shared) for name in FAMILIES)


def entries() -> Iterator[Entry]:
    """Yield all entries, in the order of the documentation."""
    for family in families():
        yield from family.entries


def _parsed(name: str) -> dict[str, Any]:
    path = Path(__file__).with_name("data") / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _family(family: Mapping[str, Any], shared: Mapping[str, Any]) -> Family:
    steps = {name: _step(step, {}) for name, step in shared["steps"].items()}
    return Family(
        title=family["title"],
        entries=tuple(
            Entry(
                id=entry["id"],
                title=entry["title"],
                patterns=tuple(_patterns(entry, shared["expressions"])),
                releases=entry["releases"],
                cause=_unwrapped(entry["cause"]),
                check=_step(entry["check"], steps),
                fix=tuple(_step(step, steps) for step in entry["fix"]),
                sources=tuple(entry.get("sources", ())),
            )
            for entry in family["entries"]
        ),
    )


def _step(step: Mapping[str, str], steps: Mapping[str, Step]) -> Step:
    """Return a step, or the shared step that it names."""
    if name := step.get("step"):
        return steps[name]
    return Step(text=_unwrapped(step["text"]), command=step.get("command", ""))


def _patterns(entry: Mapping[str, Any], expressions: Mapping[str, str]) -> Iterator[Pattern]:
    """Yield the patterns of an entry, the most specific first."""
    for specificity in Specificity:
        for pattern in entry.get(specificity.name.lower(), ()):
            regex, needs = (
                (pattern, "") if isinstance(pattern, str) else (pattern["regex"], pattern["needs"])
            )
            yield Pattern(
                regex=re.compile(_expanded(regex, expressions)),
                specificity=specificity,
                needs=_expanded(needs, expressions),
            )


def _expanded(regex: str, expressions: Mapping[str, str]) -> str:
    """Return a regular expression, with expressions instead of the references to them."""
    return _REFERENCE.sub(lambda reference: expressions[reference[1]], regex)


def _unwrapped(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())
