"""
The search that reports show, its result in one sentence with its numbers, and the command that
writes the model.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.commands.destinations import default_name
from policytool.commands.migrate import Status
from policytool.formats.discovery import display_path
from policytool.numerics.tuning.results import Ending
from policytool.reports import shell
from policytool.reports.figures import figure, many
from policytool.reports.migrate_command import migrate_command
from policytool.reports.page import Sentence, Tone, Verdict
from policytool.reports.tuning._objective import is_error_only, reached

if TYPE_CHECKING:
    from policytool.commands.inspect import Failure
    from policytool.commands.migrate import Migration
    from policytool.numerics.tuning.results import Trial, Tuning

_EARLY: Final = {
    Ending.TRIALS: "the search stopped at --max-trials, so fewer layers may be enough",
    Ending.TIME: "the search stopped at --time, so fewer layers may be enough",
    Ending.INTERRUPTED: "the search was interrupted, so fewer layers may be enough",
}
"""What an early end means for a set that was found."""


def verdict(tuning: Tuning) -> Verdict:
    """Return the first sentence of the page."""
    tone = Tone.GOOD if tuning.passed else Tone.BAD
    parts = [Sentence(text=_outcome(tuning), tone=tone)]
    if tuning.passed and tuning.kept and tuning.ending in _EARLY:
        parts.append(Sentence(text=_EARLY[tuning.ending], tone=Tone.CAUTION))
    return Verdict(parts=tuple(parts), subject=tuning.reference.path)


def headline(tuning: Tuning) -> str:
    """Return what a search comes to, in a line without the model's path."""
    return verdict(tuning).text


def _outcome(tuning: Tuning) -> str:
    trials = many(len(tuning.trials), "trial")
    if tuning.best is not None:
        return f"{_found(tuning, tuning.best)}; {trials}"
    if tuning.ending is Ending.IMPOSSIBLE:
        missed = (
            "the outputs exceed the tolerance"
            if is_error_only(tuning.objective)
            else "the objective is not met"
        )
        return f"{missed} even with every layer in float32{_closest(tuning, ': ')}; {trials}"
    sentence = _not_found(tuning, trials)
    return sentence + _closest(tuning, "; the closest set: ")


def _found(tuning: Tuning, best: Trial) -> str:
    results = "; ".join(reached(tuning, best))
    count, total = len(best.kept), len(tuning.layers)
    if not tuning.passed:
        return (
            f"the set that was found, {count:,} of {many(total, 'layer')} in float32, does not "
            f"meet the objective on the validation inputs: {results}"
        )
    if not count:
        return f"no layer has to stay in float32: {results}"
    verb = "stays" if count == 1 else "stay"
    return f"{count:,} of {many(total, 'layer')} {verb} in float32: {results}"


def _not_found(tuning: Tuning, trials: str) -> str:
    match tuning.ending:
        case Ending.TIME:
            return f"no set of layers was found within {figure(tuning.seconds)} s ({trials})"
        case Ending.INTERRUPTED:
            return f"the search was interrupted after {trials}, before a set of layers was found"
    return f"no set of layers was found within {trials}"


def _closest(tuning: Tuning, before: str) -> str:
    """Return what the closest set reaches, as the end of a sentence."""
    if tuning.closest is None:
        return ""
    return before + "; ".join(reached(tuning, tuning.closest))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tunings:
    """A search, and what became of the model."""

    tuning: Tuning | None = None
    """None if nothing could run, for which the failures give the reason."""

    migration: Migration | None = None
    """What ``migrate`` wrote or would write; None if nothing was to be written."""

    failures: tuple[Failure, ...] = ()
    everything: bool = False
    """Whether to show every converted layer, not only those with the smallest margin."""

    arguments: tuple[str, ...] = ()
    """The command line; nothing if Python called."""


_REPORT: Final = "--report"
_JSON: Final = "json="
_DONE: Final = frozenset({Status.WRITTEN, Status.UNCHANGED, Status.BLOCKED})
"""After these, a command would do nothing, or fail."""


def command(tunings: Tunings) -> tuple[str, ...]:
    """
    Return the words of the command that applies the result; empty if the model is already written,
    or if no set was found.
    """
    tuning, migration = tunings.tuning, tunings.migration
    if tuning is None or not tuning.passed or tuning.options is None:
        return ()
    if migration is not None and migration.status in _DONE:
        return ()
    output = _output(migration)
    plan = _plan(tunings.arguments)
    if plan is not None and migration is not None:
        return ("policytool", "migrate", "--plan", plan, *output)
    return (*migrate_command(tuning.reference.path, tuning.options), *output)


def _output(migration: Migration | None) -> tuple[str, ...]:
    """Return the option for an output that does not have the default name."""
    if migration is None or migration.target is None:
        return ()
    default = migration.source.with_name(default_name(migration.source, migration.plan.suffix))
    target = display_path(migration.target)
    return () if target == display_path(default) else ("-o", shell.file(target))


def _plan(arguments: tuple[str, ...]) -> str | None:
    """Return the file that the JSON report is written to, which ``--plan`` reads."""
    values = [
        word.removeprefix(f"{_REPORT}=") if word.startswith(f"{_REPORT}=") else after
        for word, after in itertools.pairwise((*arguments, ""))
        if word == _REPORT or word.startswith(f"{_REPORT}=")
    ]
    files = [value.removeprefix(_JSON) for value in values if value.startswith(_JSON)]
    return files[0] if files else None
