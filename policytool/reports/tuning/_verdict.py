"""What a search comes to, in one sentence with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.numerics.tuning.results import Ending
from policytool.reports.figures import figure, many
from policytool.reports.page import Sentence, Tone, Verdict
from policytool.reports.tuning._objective import is_error_only, reached

if TYPE_CHECKING:
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
    said = "; ".join(reached(tuning, best))
    count, total = len(best.kept), len(tuning.layers)
    if not tuning.passed:
        return (
            f"the set that was found, {count:,} of {many(total, 'layer')} in float32, does not "
            f"meet the objective on the validation inputs: {said}"
        )
    if not count:
        return f"no layer has to stay in float32: {said}"
    verb = "stays" if count == 1 else "stay"
    return f"{count:,} of {many(total, 'layer')} {verb} in float32: {said}"


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
