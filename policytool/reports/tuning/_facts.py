"""What ran, what was asked for, and how the search ended; each fact with its label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.commands.migrate import Status
from policytool.formats.discovery import display_path
from policytool.numerics.tuning.results import Ending, Preference, Split
from policytool.reports import checks, plans
from policytool.reports.figures import figure, many
from policytool.reports.page import Fact, Tone
from policytool.reports.tuning._verdict import goals, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.migrate import Migration
    from policytool.numerics.tuning.results import Tuning

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
_PREFERENCES: Final = {
    Preference.SPEED: "layers with the slowest calls are converted first (--prefer speed)",
    Preference.MEMORY: "layers with the largest outputs are converted first (--prefer memory)",
}
_FAILED: Final = frozenset({Status.BLOCKED, Status.MISSED})


def written(migration: Migration) -> Iterator[Fact]:
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
    """Return which inputs validated the set, and how much of the limit it uses there."""
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
    if tuning.preference in _PREFERENCES:
        yield _PREFERENCES[tuning.preference]


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
            return "the search reached --max-trials"
        case Ending.TIME:
            return "the search reached --time"
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
