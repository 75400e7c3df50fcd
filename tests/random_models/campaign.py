"""Build models, convert them, load the results, and convert those back."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import policytool
from policytool.commands.migrate import Status
from policytool.migration.plan import WEIGHT_REWRITE
from policytool.support.errors import ModelFileError
from tests.random_models.children import answers
from tests.random_models.description import Recipe, Training, to_json, without_policies
from tests.random_models.outcomes import (
    GOOD,
    Outcome,
    arrays,
    differing_dtypes,
    judge_predictions,
    judge_state,
)
from tests.random_models.verdict_checks import wrong_verdicts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TARGETS: Final = {"tf_keras": "keras3", "keras": "tf_keras"}
"""The target of ``migrate`` for models of a library."""

OTHER: Final = {"tf_keras": "keras", "keras": "tf_keras"}
SUFFIXES: Final = {"h5": ".h5", "keras": ".keras", "tf": ""}
_LEFT_OUT: Final = frozenset({"optimizer-state-lost", "training-lost"})
"""Notes which say that the state of an optimizer is not in the result."""

_EXACT: Final = 1e-3
_ROUNDED: Final = 2.0**-8
"""How far the state of an optimizer may be off, the second one rounded to bfloat16."""


_OTHER_SEEDS: Final = 2**30
"""Where the seeds of other weights begin."""


@dataclass(kw_only=True)
class Case:
    """A model on its way."""

    recipe: Recipe
    folder: Path
    truth: dict[str, Any] = field(default_factory=dict)
    outcome: Outcome | None = None
    there: Path | None = None
    back: Path | None = None
    notes: frozenset[str] = frozenset()
    rewritten: bool = False
    predictions: tuple[str, str] = ("", "")

    @property
    def source(self) -> Path:
        """The file that the model's library writes."""
        return self.folder / f"model{SUFFIXES[self.recipe.container]}"

    def end(self, word: str, reason: str = "") -> None:
        """Keep the first outcome."""
        if self.outcome is None:
            self.outcome = Outcome(
                seed=self.recipe.seed,
                word=word,
                reason=reason,
                rewritten=self.rewritten,
                own=self.truth.get("own", ""),
                container=self.recipe.container,
                family=self.recipe.family,
            )


def run_campaign(recipes: Sequence[Recipe], python: Path, folder: Path) -> list[Outcome]:
    """Return what came of models of one library."""
    library = recipes[0].library
    cases = [
        Case(recipe=recipe, folder=folder / f"{number}-{recipe.seed}")
        for number, recipe in enumerate(recipes)
    ]
    for case in cases:
        case.folder.mkdir(parents=True)
    jobs = [
        {"recipe": to_json(case.recipe), "path": str(case.source), "folder": str(case.folder)}
        for case in cases
    ]
    for case, truth in zip(cases, answers(python, "build_models", library, jobs), strict=True):
        case.truth = truth
        if "error" in truth:
            case.end("reference failed", truth["error"])
        else:
            _convert_there(case)
    _load_results(cases, python)
    _load_back(cases, python)
    _judge_noted(cases, python, folder)
    _judge_verdicts(cases, python)
    return [replace(case.outcome) for case in cases if case.outcome is not None]


def _judge_verdicts(cases: Sequence[Case], python: Path) -> None:
    """End cases that are right but for what ``inspect`` says of one of their files."""
    built = [case for case in cases if "error" not in case.truth]
    owners = {
        file: case
        for case in built
        for file in (case.source, case.there, case.back)
        if file is not None and file.exists()
    }
    for file, text in wrong_verdicts(list(owners), python).items():
        case = owners[file]
        word = case.outcome.word if case.outcome is not None else ""
        if word in GOOD or word.startswith("refused"):
            case.outcome = None
            case.end("VERDICT", text)


def _judge_noted(cases: Sequence[Case], python: Path, folder: Path) -> None:
    """
    Judge models that predict something else where a note says when by models for which it does not
    hold: in float32, or with other weights.
    """
    doubtful = [
        case
        for case in cases
        if case.outcome and case.outcome.word == "DIFFERS" and _other(case) != case.recipe
    ]
    if not doubtful:
        return
    result = run_campaign([_other(case) for case in doubtful], python, folder / "others")
    for case, one in zip(doubtful, result, strict=True):
        if one.word in GOOD and case.outcome is not None:
            reason = f"{case.outcome.reason}, as noted; else {one.reason}"
            case.outcome = replace(case.outcome, word="near", reason=reason)


def _other(case: Case) -> Recipe:
    """Return a model for which what a note says does not hold; the same where there is no note."""
    recipe = case.recipe
    if "normalized-in-half" in case.notes:
        recipe = replace(recipe, policy="float32", graph=without_policies(recipe.graph))
    if "short-vectors" in case.notes and recipe.seed < _OTHER_SEEDS:
        recipe = replace(recipe, seed=recipe.seed + _OTHER_SEEDS)
    return recipe


def _convert_there(case: Case) -> None:
    target = TARGETS[case.recipe.library]
    suffixes = {"keras": (".keras",), "h5": (".keras", ".h5"), "tf": (".keras",)}
    result = suffixes[case.recipe.container]
    if target == "tf_keras":
        result = result[-1:]
    case.there = _convert_to(
        case, case.source, target, [case.folder / f"there{item}" for item in result]
    )


def _convert_to(case: Case, source: Path, target: str, outputs: Sequence[Path]) -> Path | None:
    """
    Return the first file that a conversion writes: HDF5 that holds variables of custom layers
    becomes HDF5 alone, which Keras 3 cannot have operations in. The first refusal ends the case.
    """
    for output in outputs:
        trial = replace(case, outcome=None)
        result = _convert(trial, source, target, output)
        if result is not None:
            case.notes |= trial.notes
            case.rewritten |= trial.rewritten
            case.outcome = None
            return result
        case.outcome = case.outcome or trial.outcome
    return None


def _convert(case: Case, source: Path, target: str, output: Path) -> Path | None:
    """Return the file that a conversion writes; None if it ends the case."""
    for is_allowed in (False, True):
        try:
            allow: tuple[Literal["weight-rewrite"], ...] = ("weight-rewrite",) if is_allowed else ()
            done = policytool.migrate(source, target=target, allow=allow, output=output)
        except ModelFileError as error:
            case.end(f"refused: {error.code}", str(error))
            return None
        except Exception as error:  # noqa: BLE001  # a crash is an outcome
            case.end("CRASH", f"{type(error).__name__}: {error} {_place(error)}")
            return None
        if done.status is Status.WRITTEN:
            case.notes |= {note.code for note in done.plan.notes}
            case.rewritten |= is_allowed
            return output
        codes = [refusal.code for refusal in done.plan.refusals]
        if codes != [WEIGHT_REWRITE] * len(codes) or not codes:
            break
    refusals = [refusal for refusal in done.plan.refusals if refusal.code != WEIGHT_REWRITE]
    reason = f"{refusals[0].path or ''}: {refusals[0].message}" if refusals else ""
    case.end(f"refused: {refusals[0].code}" if refusals else f"CRASH: {done.status}", reason)
    return None


def _place(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"[{last.filename.rpartition('/')[2]}:{last.lineno}]"


def _job(case: Case, path: Path | None, folder: str) -> Mapping[str, Any]:
    place = case.folder / folder
    place.mkdir()
    return {
        "path": str(path),
        "inputs": str(case.folder / "inputs.npz"),
        "folder": str(place),
        "compiled": case.recipe.training is not None,
        "structure": case.recipe.graph.structure,
        "names": [spec.name for spec in case.recipe.graph.inputs],
    }


def _load_results(cases: Sequence[Case], python: Path) -> None:
    open_cases = [case for case in cases if case.there is not None and case.outcome is None]
    jobs = [_job(case, case.there, "loaded") for case in open_cases]
    if not jobs:
        return
    library = OTHER[cases[0].recipe.library]
    for case, found in zip(open_cases, answers(python, "load_models", library, jobs), strict=True):
        _judge(case, found)


def _judge(case: Case, found: Mapping[str, Any]) -> None:
    """End a case that is wrong, and keep what its predictions come to."""
    for key, word in (
        ("error", "DOES NOT LOAD"),
        ("call", "DOES NOT LOAD"),
        ("error_compiled", "DOES NOT LOAD (compiled)"),
        ("call_compiled", "DOES NOT LOAD (compiled)"),
    ):
        if key in found:
            case.end(word, f"{'called: ' if key.startswith('call') else ''}{found[key]}")
            return
    place = case.folder / "loaded"
    before = arrays(case.folder / "outputs.npz")
    for file in sorted(place.glob("outputs*.npz")):
        case.predictions = judge_predictions(before, arrays(file), case.truth, case.notes)
        if case.predictions[0] not in GOOD:
            case.end(case.predictions[0], case.predictions[1])
            return
    wrong = differing_dtypes(case.truth["dtypes"], found["dtypes"])
    if wrong:
        case.end("DTYPES", wrong)
    training = case.recipe.training
    if training is not None and not case.notes & _LEFT_OUT and _has_state(case.recipe, training):
        wrong = judge_state(
            list(arrays(case.folder / "state.npz").values()),
            list(arrays(place / "state.npz").values()),
            _ROUNDED if "weights-rounded" in case.notes else _EXACT,
        )
        if wrong:
            case.end("STATE", f"{wrong}; notes: {', '.join(sorted(case.notes)) or 'none'}")


def _has_state(recipe: Recipe, training: Training) -> bool:
    """
    Return whether a file has a state of the optimizer that the other library has, too.

    Keras 2 keeps slots of SGD that nothing reads, and stores no state of legacy optimizers in
    archives.
    """
    wrapped = training.optimizer["config"].get("inner_optimizer", training.optimizer)
    is_idle = wrapped["class"] == "SGD" and not wrapped["config"].get("momentum")
    is_legacy = "optimizers.legacy" in (training.optimizer.get("of"), wrapped.get("of"))
    return not is_idle and not (is_legacy and recipe.container == "keras")


def _load_back(cases: Sequence[Case], python: Path) -> None:
    library = cases[0].recipe.library
    open_cases = []
    for case in cases:
        if case.outcome is None and case.there is not None:
            trial = replace(case, outcome=None)
            suffixes = [SUFFIXES[case.recipe.container] or ".h5"]
            if library == "keras":  # which reads no operations from HDF5
                suffixes.insert(0, ".keras")
            case.back = _convert_to(
                trial,
                case.there,
                TARGETS[OTHER[library]],
                [case.folder / f"back{suffix}" for suffix in suffixes],
            )
            case.notes |= trial.notes
            if case.back is None and trial.outcome is not None:
                is_refused = "refused" in trial.outcome.word
                if is_refused and case.truth["own"]:  # its own library cannot load such a file
                    case.end(*case.predictions)
                word = "NO WAY BACK" if is_refused else "ROUND TRIP"
                case.end(word, f"{trial.outcome.word}: {trial.outcome.reason}")
            else:
                open_cases.append(case)
    jobs = [_job(case, case.back, "returned") for case in open_cases]
    for case, found in zip(
        open_cases, answers(python, "load_models", library, jobs) if jobs else [], strict=True
    ):
        wrong = next((text for key, text in found.items() if key in _WRONG), None)
        if wrong is not None:
            case.end("ROUND TRIP", wrong)
            continue
        word, text = judge_predictions(
            arrays(case.folder / "outputs.npz"),
            arrays(case.folder / "returned" / "outputs.npz"),
            case.truth,
            case.notes,
        )
        if word in GOOD:
            case.end(*case.predictions)
        else:
            case.end("ROUND TRIP", f"{word} {text}")


_WRONG: Final = frozenset({"error", "call", "error_compiled", "call_compiled"})
