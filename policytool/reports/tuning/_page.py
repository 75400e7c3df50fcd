"""
The page of ``tune``: which layers stay in float32, what was written, what ran and how the search
ended, why each of them is kept, and the margin of the others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.commands.migrate import Status
from policytool.formats.discovery import display_path
from policytool.numerics.tuning.results import Ending, Split
from policytool.reports import checks, plans
from policytool.reports.page import Block, Command, Fact, Facts, Notes, Page, Section, Tone
from policytool.reports.tuning._layers import (
    converted_section,
    curve_chart,
    curve_section,
    fixed_section,
    kept_section,
)
from policytool.reports.tuning._verdict import (
    allowed_error,
    command,
    goals,
    is_error_only,
    largest_excess,
    times,
    verdict,
)
from policytool.reports.words import failure_facts, figure, many, upward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.migrate import Migration
    from policytool.numerics.tuning.results import Trial, Tuning
    from policytool.reports.layout import View
    from policytool.reports.tuning._verdict import Tunings


_OTHERS: Final = {
    Split.BATCHES: "every second batch, which the search did not use",
}
_SAME_INPUTS: Final = {
    Split.NONE: "none: the inputs cannot be split, so the search used all of them",
    Split.USED: (
        "none: a set that met the objective failed on the other inputs, so the search used all of "
        "them"
    ),
}
_FAILED: Final = frozenset({Status.BLOCKED, Status.MISSED})


def output_facts(migration: Migration) -> Iterator[Fact]:
    """Yield the facts about the output model."""
    status = migration.status
    tone = Tone.GOOD if status is Status.WRITTEN else Tone.BAD if status in _FAILED else Tone.PLAIN
    words = plans.headline(migration)
    if status in {Status.WRITTEN, Status.PLANNED} and migration.target is not None:
        words = f"{display_path(migration.target)}, {words}"
    yield Fact(label="output", text=words, tone=tone)
    yield from (
        Fact(label="problem", text=refusal.message, tone=Tone.BAD)
        for refusal in migration.plan.refusals
    )


def facts(tuning: Tuning) -> Iterator[Fact]:
    """Yield what was asked for, what it was measured on, and how the search ended."""
    yield Fact(label="objective", text="; ".join(goals(tuning)))
    if tuning.metric is not None:
        yield Fact(
            label="metric", text=checks.metric_sentence(tuning.metric).removeprefix("metric ")
        )
    yield Fact(label="policy", text=_policy(tuning))
    yield Fact(label="reference", text=" · ".join(_reference(tuning)))
    yield Fact(label="inputs", text=checks.input_words(tuning.inputs))
    yield Fact(label="validation", text=_validation(tuning))
    yield Fact(label="device", text=" · ".join(checks.device_words(tuning.device)))
    yield Fact(label="versions", text=" · ".join(_versions(tuning)))
    yield Fact(label="search", text="; ".join(_search(tuning)))
    yield Fact(label="ended", text=_ended(tuning))


def _policy(tuning: Tuning) -> str:
    if not tuning.passed:
        return f"{tuning.policy} for up to {many(len(tuning.layers), 'layer')}"
    ruled = sum(layer.rule is not None for layer in tuning.converted)
    by_rule = f", including {ruled:,} that migrate keeps in float32 by default" if ruled else ""
    return (
        f"{tuning.policy} for {len(tuning.converted):,} of {many(len(tuning.layers), 'layer')}"
        f"{by_rule}"
    )


def _reference(tuning: Tuning) -> Iterator[str]:
    yield f"the same model in {tuning.reference.policy or 'its own policies'}"
    _, *more = checks.side_words(tuning.reference)
    yield from more


def _validation(tuning: Tuning) -> str:
    """
    Return the inputs that validated the set, and the share of the limit that their error uses.
    """
    if tuning.split in _SAME_INPUTS:
        return _SAME_INPUTS[tuning.split]
    words = _OTHERS[tuning.split]
    if tuning.best is None or tuning.best.validation is None:
        return words
    return f"{words}: {times(tuning.best.validation)} the limit"


def _versions(tuning: Tuning) -> Iterator[str]:
    tensorflow = tuning.versions.get("tensorflow")
    if tensorflow is not None:
        yield f"TensorFlow {tensorflow}"
    library = tuning.reference.library
    if library and library.lower() != f"tensorflow {tensorflow}":
        yield library
    yield f"{tuning.reference.backend} backend"


def _search(tuning: Tuning) -> Iterator[str]:
    yield (f"{many(len(tuning.trials), 'trial')} in {figure(tuning.seconds)} s, seed {tuning.seed}")
    if tuning.resumed:
        verb = "is" if tuning.resumed == 1 else "are"
        yield f"{tuning.resumed:,} of the trials {verb} from an earlier search (--resume)"


def _ended(tuning: Tuning) -> str:
    """Return why the search ended, and what follows for the set."""
    match tuning.ending:
        case Ending.MINIMAL if not tuning.kept:
            return "the objective is met with all layers converted"
        case Ending.MINIMAL:
            return _minimality(tuning)
        case Ending.IMPOSSIBLE:
            return "the objective is not met with all layers in float32"
        case Ending.TRIALS:
            return "the search reached the number of trials in --budget"
        case Ending.TIME:
            return "the search reached the time in --budget"
        case Ending.INTERRUPTED:
            return "the search was interrupted"


def _minimality(tuning: Tuning) -> str:
    tried = (
        "the objective is not met if the layer in float32 is converted"
        if len(tuning.kept) == 1
        else "the objective is not met if any one of the float32 layers is converted"
    )
    if tuning.is_minimum:
        return (
            f"{tried}; no smaller set meets it, if additional layers in float32 never increase "
            "the error"
        )
    return f"{tried} (each was tried); a smaller set of other layers may exist"


_SAME: Final = frozenset({Split.NONE, Split.USED})
_ROUNDING: Final = 1e-9
_INCOMPLETE: Final = {
    Ending.TRIALS: "--budget",
    Ending.TIME: "--budget",
    Ending.INTERRUPTED: "",
}
"""Endings that leave something to try, with the option that allows it."""


def page(tunings: Tunings, view: View) -> Page:
    """Return the page; an empty one if nothing could run."""
    failures = failure_facts(tunings.failures)
    if tunings.tuning is None:
        return Page(groups=(), failures=failures)
    return Page(groups=(tuple(_blocks(tunings, tunings.tuning, view)),), failures=failures)


def caveats(tuning: Tuning) -> Iterator[str]:
    """Yield what the result leaves open."""
    yield from checks.input_caveats(tuning.inputs)
    if tuning.split in _SAME and tuning.best is not None:
        yield "the set was not validated on other inputs, which may need more layers in float32"
    yield from checks.side_caveats(tuning.reference)
    yield from checks.device_caveats(tuning.device)


def advice(tunings: Tunings, tuning: Tuning) -> Iterator[str]:
    """Yield how to continue an incomplete search, and what to do if no set of layers was found."""
    if tuning.ending in _INCOMPLETE and (tuning.kept or not tuning.passed):
        options = {word.partition("=")[0] for word in tunings.arguments}
        yield _continuation(tuning.ending, is_recorded="--resume" in options)
    if not tuning.passed and is_error_only(tuning.objective):
        yield from _tolerance_advice(tuning, tuning.best or tuning.closest)


def _tolerance_advice(tuning: Tuning, trial: Trial | None) -> Iterator[str]:
    """Yield which tolerance a set would meet, if only the errors of whole outputs are too large."""
    allowed = allowed_error(tuning.objective)
    if trial is None or trial.error is None or allowed is None:
        return
    if math.isclose(largest_excess(trial) * allowed, trial.error, rel_tol=_ROUNDING):
        yield (
            f"the closest set, with {many(len(trial.kept), 'layer')} in float32, would meet "
            f"--tolerance {upward(trial.error)}"
        )


def _continuation(ending: Ending, *, is_recorded: bool) -> str:
    option = _INCOMPLETE[ending]
    larger = f" with a larger {option}" if option else ""
    if is_recorded:
        return f"the same command{larger} continues the search"
    return (
        f"add --resume FILE to record the trials, so that the same command{larger} can continue "
        "the search later"
    )


def _blocks(tunings: Tunings, tuning: Tuning, view: View) -> Iterator[Block]:
    everything = tunings.everything or view.is_searchable
    yield verdict(tuning)
    if words := command(tunings):
        yield Command(label="to apply", words=words)
    output = output_facts(tunings.migration) if tunings.migration is not None else ()
    yield Facts(facts=(*output, *facts(tuning)))
    if left_open := tuple(caveats(tuning)):
        yield Section(title="caveats", blocks=(Notes(texts=left_open),))
    if tuning.ending is not Ending.IMPOSSIBLE:
        yield from kept_section(tuning, everything=everything)
        yield from converted_section(tuning, everything=everything)
    if view.is_searchable:
        yield from curve_chart(tuning)
    yield from curve_section(tuning, everything=everything)
    yield from fixed_section(tuning, everything=everything)
    notes = [
        *advice(tunings, tuning),
        *(note.message for note in tuning.notes),
        *tuning.inputs.notes,
    ]
    if notes:
        yield Section(title="notes", blocks=(Notes(texts=tuple(dict.fromkeys(notes))),))
