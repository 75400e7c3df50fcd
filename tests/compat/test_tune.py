"""
``tune`` on models with weak layers at random places: it keeps these and no others, each of them is
needed, and the written model passes on inputs that it did not see. On small models with random
weights, no smaller one of all sets of layers passes.

``tests/helpers/planted_tunes.py`` writes the models. ``POLICYTOOL_TUNE_SEEDS=1,2,3`` selects other
placements and other random models; a run without it samples a few. All sets of 20 random models
take longer than a test may, so such a run needs ``-o faulthandler_timeout=7200``.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from policytool.commands import check as checks
from policytool.commands import tune_run
from policytool.commands.check_options import CheckOptions
from policytool.commands.tune import find_candidates, tune
from policytool.commands.tune_run import TuneOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics.tuning.candidate_layers import candidates
from policytool.numerics.tuning.results import objective
from policytool.numerics.verdicts.tolerances import ToleranceOption, Tolerances
from tests.compat.asking import run_script
from tests.conftest import run_process
from tests.helpers.paths import ROOT
from tests.helpers.planted_failures import LIBRARIES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.tuning.results import Trial, Tuning

    Tune = Callable[[str, int], "Tuned"]
    Kept = frozenset[str]

pytestmark = [pytest.mark.compat, pytest.mark.slow]

_SEEDS: Final = os.environ.get("POLICYTOOL_TUNE_SEEDS")
"""Read before the tests: their own environment has no variable of policytool's."""

PLACEMENTS: Final = tuple(map(int, _SEEDS.split(","))) if _SEEDS else (2, 7, 9)
RANDOM_MODELS: Final = tuple(map(int, _SEEDS.split(","))) if _SEEDS else (7, 14)
"""Seeds; without the variable, those of a few models that differ and are quickly run."""

SECONDS: Final = 900
QUANTIZED: Final = "quantized"
"""The models of ``tests/helpers/planted_quantizations.py``, which Keras quantizes."""

TRIALS: Final = 100
MINIMUM_SHARE: Final = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """What was planted, and what ``tune`` reported."""

    directory: Path
    truth: Mapping[str, Any]
    code: int
    report: Mapping[str, Any]

    @property
    def kept(self) -> Kept:
        """The layers that stay in float32."""
        return frozenset(self.report["tuning"]["kept"])

    @property
    def written(self) -> Path:
        """The tuned model."""
        return self.directory.joinpath("tuned", self.truth["model"])


def generated(python: Path, directory: Path, library: str, *arguments: str) -> Path:
    """Write models of a library; return the directory."""
    module, *options = (
        ("planted_quantizations",)
        if library == QUANTIZED
        else ("planted_tunes", "--library", library)
    )
    command = [str(python), "-m", f"tests.helpers.{module}", str(directory), *arguments]
    run_script(*command, *options, seconds=SECONDS)
    return directory


def seeds_arguments(seeds: Sequence[int]) -> list[str]:
    """Return the arguments that select seeds."""
    return [word for seed in seeds for word in ("--seed", str(seed))]


@pytest.fixture(scope="module")
def tuned(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Tune:
    """Return a function that tunes a placement by the command line, once."""

    @cache
    def placements(library: str) -> Path:
        directory = tmp_path_factory.mktemp(f"tune-{library}").resolve()
        (directory / "tuned").mkdir()
        return generated(compat_python, directory, library, *seeds_arguments(PLACEMENTS))

    @cache
    def run(library: str, seed: int) -> Tuned:
        directory = placements(library)
        truth = json.loads((directory / f"{library}-{seed}.json").read_text(encoding="utf-8"))
        arguments = (
            *("tune", truth["model"], "--to", truth["to"], "--inputs", truth["inputs"]),
            *("--tolerance", str(truth["tolerance"]), "--budget", str(TRIALS)),
            *("-o", f"tuned/{truth['model']}", "--python", str(compat_python), "--format", "json"),
        )
        root = {"PYTHONPATH": str(ROOT)}
        ended = run_process(*arguments, cwd=directory, environment=root, timeout=SECONDS)
        assert ended.out.startswith("{"), ended.err[-2000:]
        assert not ended.json["failures"], ended.json["failures"]
        return Tuned(directory=directory, truth=truth, code=ended.code, report=ended.json)

    return run


each_placement = pytest.mark.parametrize(
    ("library", "seed"),
    sampled("placements", itertools.product(LIBRARIES, PLACEMENTS), share=1 if _SEEDS else 6),
)


def is_within_tolerance(
    tools: TensorFlowTools, planted: Tuned, model: Path, inputs: str, candidate: Options
) -> bool:
    """Return whether the errors of a candidate on these inputs are within the tolerance."""
    tolerance = ToleranceOption(pattern=None, value=planted.truth["tolerance"])
    check_options = CheckOptions(
        candidate=candidate,
        inputs=planted.directory / planted.truth[inputs],
        tolerances=Tolerances(given=(tolerance,)),
        diagnosis=False,
    )
    (result,) = discovery.inputs([str(model)])
    runs = checks.check(result, None, check_options, tools).runs
    return all(run.verdict.passed and not run.missing for run in runs)


@each_placement
def test_planted_layers_are_kept_and_no_others(tuned: Tune, library: str, seed: int) -> None:
    """Of two layers that overflow only together, one is kept."""
    result = tuned(library, seed)
    assert result.code == 5  # 16 other rows decide nothing
    more = result.kept - set(result.truth["planted"])
    assert set(result.truth["planted"]) <= result.kept
    assert len(more) == len(result.truth["either"])
    assert all(len(more & set(pair)) == 1 for pair in result.truth["either"])


@each_placement
def test_harmless_layers_that_a_rule_keeps_are_converted(
    tuned: Tune, library: str, seed: int
) -> None:
    """The report has the rule of each, and that it was not followed."""
    result = tuned(library, seed)
    layers = {layer["path"]: layer for layer in result.report["tuning"]["layers"]}
    decoys = [layers[path] for path in result.truth["decoys"]]
    assert not [item for item in decoys if item["kept"] or item["rule"] is None]


@each_placement
def test_each_removal_of_a_kept_layer_fails(tuned: Tune, library: str, seed: int) -> None:
    """The report has the excess of a trial that shows it for each of them."""
    result = tuned(library, seed)
    assert result.report["tuning"]["ending"] == "minimal"
    kept = [layer for layer in result.report["tuning"]["layers"] if layer["kept"]]
    assert {layer["path"] for layer in kept} == result.kept
    for layer in kept:
        excess = layer["excess_if_converted"]
        assert excess == "Infinity" or excess > 1


@each_placement
def test_check_fails_without_a_kept_layer(
    tools: TensorFlowTools, tuned: Tune, library: str, seed: int
) -> None:
    result = tuned(library, seed)
    model = result.directory / result.truth["model"]
    outcome = Options(to=result.truth["to"], retrace=model.is_dir())
    options = TuneOptions(candidate=outcome, objective=objective())
    with tools.hand_over() as hand_over:
        source = tune_run.readable_source(discovery.named_input(str(model)), options, hand_over)
    assert source.loaded is not None
    choices = candidates(source.loaded, outcome)
    assert is_within_tolerance(tools, result, model, "inputs", choices.keeping(result.kept))
    for path in sorted(result.kept)[:2]:
        removed = choices.keeping(result.kept - {path})
        assert not is_within_tolerance(tools, result, model, "inputs", removed)


@each_placement
def test_written_model_passes_on_unseen_inputs(
    tools: TensorFlowTools, tuned: Tune, library: str, seed: int
) -> None:
    """The model loads, and its errors on these inputs are within the tolerance."""
    result = tuned(library, seed)
    assert is_within_tolerance(tools, result, result.written, "unseen", Options())


# all subsets


@dataclass(frozen=True, kw_only=True, slots=True)
class Subsets:
    """The trials of all sets of layers of a model, and what ``tune`` found."""

    name: str
    table: Mapping[Kept, Trial]
    tuning: Tuning

    @property
    def minimal(self) -> Kept:
        """The set that the search found, without layers that are added for the predictions."""
        passing = [frozenset(trial.kept) for trial in self.tuning.trials if passes(trial)]
        return min(passing, key=len)

    @property
    def smallest(self) -> int:
        """The number of layers of the smallest set that passes on all inputs."""
        return min(len(kept) for kept, trial in self.table.items() if passes(trial))


def passes(trial: Trial) -> bool:
    """Return whether a trial passes on both halves of the inputs."""
    return trial.excess <= 1 and (trial.validation is None or trial.validation <= 1)


def all_subsets(tools: TensorFlowTools, directory: Path, name: str) -> Subsets:
    """Run a model with every set of layers in float32, and tune it."""
    case = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
    model = discovery.named_input(str(directory / case["model"]))
    tune_options = TuneOptions(
        candidate=Options(to=case["to"]),  # also a quantization
        objective=objective((ToleranceOption(pattern=None, value=1.0),)),
        inputs=directory / case["inputs"],
    )
    with tools.hand_over() as hand_over:
        source = tune_run.readable_source(model, tune_options, hand_over)
        assert source.loaded is not None
        result = find_candidates(source, tune_options, tools, hand_over)
        everything = frozenset(result.paths)
        with tune_run.TrialRuns(source, result, tune_options, tools, hand_over) as runs:
            nothing = runs.run(frozenset()).error
            alone = [runs.run(everything - {path}).error for path in result.paths]
        tolerance = drawn_tolerance(random.Random(name), nothing, alone)  # noqa: S311
        given = ToleranceOption(pattern=None, value=tolerance)
        tune_options = replace(tune_options, objective=objective((given,)))
        with tune_run.TrialRuns(source, result, tune_options, tools, hand_over) as runs:
            table = {
                frozenset(kept): runs.run(frozenset(kept))
                for size in range(len(everything) + 1)
                for kept in itertools.combinations(result.paths, size)
            }
    return Subsets(name=name, table=table, tuning=tune(model, tune_options, tools))


def drawn_tolerance(
    generator: random.Random, nothing: float | None, alone: Sequence[float | None]
) -> float:
    """Return a tolerance with which some layers have to be kept, and others can be converted."""
    finite = [item for item in alone if item is not None] or [1e-3]
    low = max(min(finite), 1e-5)
    high = nothing if nothing is not None else 3 * max(finite)
    drawn = math.exp(generator.uniform(math.log(low * 1.05), math.log(high / 1.05)))
    return float(f"{drawn:.3g}")


@pytest.fixture(scope="module")
def subsets(
    compat_python: Path, tools: TensorFlowTools, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Subsets, ...]:
    """Return all random models with all of their sets of layers."""
    directory = tmp_path_factory.mktemp("random").resolve()
    for library in LIBRARIES:
        generated(compat_python, directory, library, "--random", *seeds_arguments(RANDOM_MODELS))
    generated(compat_python, directory, QUANTIZED, "--random", *seeds_arguments(RANDOM_MODELS))
    models = itertools.product((*LIBRARIES, QUANTIZED), RANDOM_MODELS)
    return tuple(
        all_subsets(tools, directory, f"random-{library}-{seed}")
        for library, seed in sampled("random subsets", models, share=1 if _SEEDS else 4)
    )


def test_set_of_a_random_model_passes_and_no_layer_can_be_removed(
    subsets: tuple[Subsets, ...],
) -> None:
    for subset in subsets:
        assert subset.tuning.passed, subset.name
        kept = {layer.path for layer in subset.tuning.kept}
        assert subset.minimal <= kept, subset.name
        assert len(kept - subset.minimal) == subset.tuning.margin, subset.name
        smaller = [subset.minimal - {path} for path in subset.minimal]
        assert not [kept for kept in smaller if passes(subset.table[kept])], subset.name


def test_set_of_a_random_model_is_the_smallest(subsets: tuple[Subsets, ...]) -> None:
    """The set is the smallest for at least 95 % of models."""
    actual = [len(subset.minimal) == subset.smallest for subset in subsets]
    assert sum(actual) >= MINIMUM_SHARE * len(actual), [
        (subset.name, len(subset.minimal), subset.smallest) for subset in subsets
    ]


def test_trials_of_a_search_are_repeatable(subsets: tuple[Subsets, ...]) -> None:
    """The same set has the same error in another search."""
    for subset in subsets:
        for trial in subset.tuning.trials:
            assert trial == subset.table[frozenset(trial.kept)], subset.name
