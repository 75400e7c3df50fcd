"""Values as text for people: releases, policies, sizes, measured numbers, and names of blocks."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Context, Decimal
from itertools import islice
from typing import TYPE_CHECKING, Final

from policytool.model.model import Effect, Outcome
from policytool.releases.policy import Dynamic, Fixed
from policytool.releases.releases import LOADERS, get, release_name
from policytool.reports import layout
from policytool.reports.page import Fact
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.commands.inspect import Failure
    from policytool.model.model import PartVerdict, Verdict


def generation_words(generation: str | None) -> str:
    """Return a generation as text: ``TF 2.3 to 2.4``, ``Keras 3.4 and later``."""
    if generation is None:
        return "unknown release"
    words = release_name(generation)
    if words == generation:
        return generation
    return f"{words[:-1]} and later" if words.endswith("+") else words.replace("-", " to ")


def loss_scale_words(scale: Dynamic | Fixed | None) -> str:
    """Return a loss scale as text; empty for None."""
    match scale:
        case Fixed(value=value):
            return f"fixed {value:g}"
        case Dynamic() if scale == Dynamic():
            return "dynamic"
        case Dynamic():
            multiplier = (
                "" if scale.multiplier == Dynamic().multiplier else f", times {scale.multiplier:g}"
            )
            return f"dynamic from {scale.initial:g}, {scale.growth_steps} steps{multiplier}"
    return ""


def bytes_words(count: int) -> str:
    """Return a number of bytes in the unit that keeps it readable."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":  # noqa: PLR2004  # binary units
            break
        size /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


EFFECTS: Final = {
    Effect.UNCHANGED: "predictions unchanged",
    Effect.RESCALED: "predictions unchanged, weights rescaled",
    Effect.CUSTOM_CODE: "predictions depend on the code of custom classes",
    Effect.CHANGED: "changes predictions or training",
}
"""The effect of a command on the results of the model, as text."""


def migrate_words(path: str, arguments: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a command that changes a model."""
    return ("policytool", "migrate", layout.file(path), *arguments)


LOADS: Final = "loads in"
FAILS: Final = "fails in"
UNKNOWN: Final = "unknown in"
COMPILE: Final = "compile"
"""Labels of verdicts on a file, and on its training configuration."""

OUTCOMES: Final = {Outcome.LOADS: LOADS, Outcome.UNKNOWN: UNKNOWN, Outcome.INCOMPATIBLE: FAILS}
"""The label of each outcome, in the order of reports."""


def loader_lines(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """
    Return a label and a text for the releases that load the file, for each reason why others are
    unknown, for each reason why others fail, and for each reason why releases need
    ``compile=False``.
    """
    if not verdicts:
        return []
    verdict_by_loader = [(verdict.loader, verdict) for verdict in verdicts]
    among = [verdict.loader for verdict in verdicts]
    loading = [verdict.loader for verdict in verdicts if verdict.outcome is Outcome.LOADS]
    unknown = _by_reason(Outcome.UNKNOWN, verdict_by_loader, among)
    none = [] if unknown else [(LOADS, "none of the tested releases")]
    return [
        *([(LOADS, loader_ranges(loading, among))] if loading else none),
        *unknown,
        *_by_reason(Outcome.INCOMPATIBLE, verdict_by_loader, among),
        *training_lines(verdicts),
    ]


def training_lines(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """Return the reasons why releases need, or may need, ``compile=False`` to load the model."""
    training = [
        (verdict.loader, verdict.training) for verdict in verdicts if verdict.training is not None
    ]
    return [
        (COMPILE, f"compile=True {label} {text}")
        for outcome in (Outcome.INCOMPATIBLE, Outcome.UNKNOWN)
        for label, text in _by_reason(outcome, training, [verdict.loader for verdict in verdicts])
    ]


def _by_reason(
    outcome: Outcome, verdicts: Sequence[tuple[str, Verdict | PartVerdict]], among: Sequence[str]
) -> list[tuple[str, str]]:
    """Return a line for each reason of an outcome, with the releases that have it."""
    releases = group_pairs(
        (verdict.explanation, release)
        for release, verdict in verdicts
        if verdict.outcome is outcome
    )
    label = OUTCOMES[outcome]
    return [
        (label, f"{loader_ranges(names, among)}: {reason}") for reason, names in releases.items()
    ]


def loader_ranges(loaders: Sequence[str], among: Sequence[str] = LOADERS) -> str:
    """
    Return releases as text, with ranges of each library: ``TF 2.4 to 2.15, tf_keras 2.21``.

    :param among: all releases in order, which determines ranges
    """
    parts: list[list[str]] = []
    for loader in loaders:
        last = parts[-1][-1] if parts else None
        if (
            last
            and among.index(loader) == among.index(last) + 1
            and get(loader).library == get(last).library
        ):
            parts[-1].append(loader)
        else:
            parts.append([loader])
    return ", ".join(
        generation_words(part[0]) + (f" to {get(part[-1]).version}" if len(part) > 1 else "")
        for part in parts
    )


def failure_facts(failures: Iterable[Failure]) -> tuple[Fact, ...]:
    """Return a fact for each file that a command failed on."""
    return tuple(Fact(label=failure.path, text=failure.message) for failure in failures)


_DIGITS: Final = 3
_LEAST_SHARE: Final = 1e-4
"""Shares below it, or as near to 1, are reported as such instead of rounded to 0 or 100 %."""

_GROUPED: Final = (1e3, 1e6)
"""
The range of numbers that are written with commas instead of an exponent; the end is exclusive.
"""

HEADROOM: Final = 16.0
"""Reports mention a smaller headroom, because other inputs may have larger values."""

_UPWARD: Final = Context(prec=_DIGITS, rounding=ROUND_CEILING)


def figure(value: float | None) -> str:
    """Return a number with three digits; empty for None."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return _short(f"{value:.{_DIGITS}g}")


def upward(value: float) -> str:
    """Return a number rounded up to three digits, as a tolerance for an option."""
    return f"{float(_UPWARD.create_decimal(Decimal(value))):.{_DIGITS}g}"


def share(fraction: float | None) -> str:
    """Return a fraction in percent; other values than 0 and 1 are never rounded to them."""
    if fraction is None:
        return ""
    if 0 < fraction < _LEAST_SHARE:
        return "<0.01%"
    if 1 - _LEAST_SHARE < fraction < 1:
        return ">99.99%"
    return f"{100 * fraction:.2f}".rstrip("0").rstrip(".") + "%"


def decibels(value: float | None) -> str:
    """Return a signal-to-noise ratio in decibels; ``exact`` if there is no noise."""
    if value is None or math.isnan(value):
        return ""
    if math.isinf(value):
        return "exact" if value > 0 else "-inf dB"
    return f"{value:.1f} dB"


def many(count: int, word: str) -> str:
    """Return a count with a word in the singular or plural."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


_PRONOUN: Final = re.compile(r"^it ")


def reason_words(reason: str, layers: int) -> str:
    """Return the reason for the policy of layers; reasons are sentences about one layer."""
    return _PRONOUN.sub("each ", reason) if layers > 1 else reason


LEAST_RUN: Final = 4
"""Neighbours whose names begin alike that make a block."""

_PART: Final = re.compile(r"(?<![^\W_])[^\W_]++(?=[_.-])")
"""A part of a name that has parts behind it; found in a time that grows with the name alone."""


def block_prefix(name: str, level: int) -> str:
    """
    Return the beginning of a name up to and including a part with a number: the first such part, or
    the one at index ``level``; empty if there is none.
    """
    numbered = (part for part in _PART.finditer(name) if any(map(str.isdecimal, part[0])))
    number_match = next(islice(numbered, level, None), None)
    return name[: number_match.end()] if number_match is not None else ""


def _short(text: str) -> str:
    """
    Return a number without exponent if that is short, and otherwise without the zero in the
    exponent: ``65,500``, ``4.2e-5``.
    """
    mantissa, e, exponent = text.partition("e")
    value = float(text)
    if _GROUPED[0] <= abs(value) < _GROUPED[1]:
        return f"{value:,.0f}"
    return f"{mantissa}e{int(exponent)}" if e else text
