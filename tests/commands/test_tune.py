"""``tune`` as a whole, with a replacement for the TensorFlow process that has known errors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

import policytool
from policytool.commands import tune, tune_run
from policytool.commands.destinations import Destination
from policytool.commands.migrate import Migration, Status
from policytool.commands.migrate_all import migrate_all
from policytool.commands.tune_run import TuneOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Assignment, Options
from policytool.numerics.check_results.verdicts import Answer
from policytool.numerics.hand_over import HandOver
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.tuning.results import Ending, Objective, Split, Tuning, objective
from policytool.numerics.tuning.search import Budget
from policytool.numerics.verdicts.tolerances import parse_tolerance
from policytool.numerics.workers import Interpreter, Worker
from policytool.reports.tuning import TUNE_REPORTERS, Tunings, headline
from policytool.support.errors import ModelFileError, UsageError, WorkerError
from tests.contracts.reporter_contract import rendered_by
from tests.helpers.example_checks import changes
from tests.helpers.marks import THOROUGH
from tests.helpers.small_models import dense, h5_model, sequential

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAMES: Final = tuple("abcdef")
PATHS: Final = tuple(f"mlp/{name}" for name in NAMES[:-1])
"""The candidates: the last layer makes the output."""

TO: Final = Options(to="mixed_float16")

pytestmark = THOROUGH


def reductions(error: float, **more: float | None) -> dict[str, Any]:
    """Return the child's reductions for 100 elements with a relative error."""
    finite = error if math.isfinite(error) else 0.0
    return {
        "elements": 100,
        "squared_error": finite**2,
        "squared_reference": 1.0,
        "squared_candidate": 1.0,
        "overflowed": 0 if math.isfinite(error) else 3,
        "nan_reference": 0,
        "nan_candidate": 0,
        "infinite_reference": 0,
        "infinite_candidate": 0,
        "subnormal": 0,
        "flushed": 0,
        "largest_reference": 2.0,
        "largest_candidate": 2.0,
        "largest_error": finite,
        "reference_at_largest": 1.0,
        "candidate_at_largest": 1.0,
        "differing": None,
        **more,
    }


class StandIn(Worker):
    """
    A worker that answers by the policies of the candidate: each layer in 16 bits has an error, and
    their squares add up.
    """

    def __init__(self, errors: Mapping[str, float], *, halves: float | None = 1.0) -> None:
        """
        ``halves`` is the ratio of the error on the validation inputs to that on the search inputs.
        """
        super().__init__(Interpreter(python="none"))
        self.errors = errors
        self.halves = halves
        self.samples = 100
        self.jobs: list[Mapping[str, Any]] = []
        self.before: Callable[[int], None] = lambda _: None
        """Called with the number of the trial before it."""

    def run(self, job: Mapping[str, Any], *, side: str = "") -> Mapping[str, Any]:
        """Return the answer to a job."""
        assert not side
        self.jobs.append(job)
        if job["job"] == "trial":
            self.before(sum(item["job"] == "trial" for item in self.jobs))
        narrow = self.narrow(job)
        error = math.hypot(*(self.errors.get(path, 0.0) for path in narrow))
        halves = [error] if self.halves is None else [error, error * self.halves if error else 0.0]
        runs = [self.told(item) for item in halves]
        if job["job"] == "check":
            runs = [{**self.told(error), "calls": self.calls(narrow)}]
        return {
            "split": self.halves is not None,
            "versions": {"tensorflow": "2.21.0", "tf_keras": "2.21.0"},
            "libraries": ["tf_keras 2.21.0"] * 2,
            "backends": ["tensorflow"] * 2,
            "unquantized": 0,
            "runs": runs,
            "notes": [],
        }

    @staticmethod
    def narrow(job: Mapping[str, Any]) -> set[str]:
        """Return the layers of the candidate that compute in 16 bits."""
        layers = policytool.inspect(job["candidate"]["path"].path).layers
        return {layer.path for layer in layers if layer.compute_dtype == "float16"}

    def output(self, name: str | None, error: float) -> dict[str, Any]:
        """Return an output of a call or of the model."""
        return {
            "shape": [None, 2],
            "dtype_reference": "float32",
            "dtype_candidate": "float16",
            "accumulated": reductions(error),
            "isolated": reductions(error),
            "tf32": None,
            "exponents": None,
            "name": name,
            "activation": "linear",
            "changes": to_builtins(changes(int(error > 0.01), self.samples)),
        }

    def told(self, error: float) -> dict[str, Any]:
        """Return a run with an error in its output."""
        names = ("model", "compute_capability", "memory", "driver", "cuda", "cudnn")
        return {
            "device": {"name": "cpu:0", "kind": "cpu", **dict.fromkeys(names)},
            "signature": None,
            "inputs": {
                "kind": "given" if self.jobs[-1]["inputs"]["file"] else "synthetic",
                "seed": 1,
                "batches": 4,
                "batch_size": 8,
                "inputs": [],
                "notes": [],
            },
            "missing": [],
            "fallbacks": [],
            "unmatched": [],
            "random": [],
            "calls": [],
            "outputs": [self.output("y", error)],
            "gradients": None,
            "timings": {},
            "metric": None,
            "notes": [],
        }

    def calls(self, narrow: set[str]) -> list[dict[str, Any]]:
        """Return the calls of a diagnosis, in the order of the layers."""
        return [
            {
                "path": path,
                "number": 0,
                "class_name": "Dense",
                "compute_reference": "float32",
                "compute_candidate": "float16" if path in narrow else "float32",
                "inputs": ["float16"],
                "depth": 2,
                "children": 0,
                "is_model": False,
                "outputs": [self.output(None, self.errors.get(path, 0.0))],
                "trace": {
                    "begun": number,
                    "within": None,
                    "producers": [number - 1] if number else [],
                    "gets_nonfinite": False,
                },
            }
            for number, path in enumerate(f"mlp/{name}" for name in NAMES)
        ]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory with a model of six layers."""
    monkeypatch.chdir(tmp_path)
    h5_model(tmp_path / "a.h5", sequential(*map(dense, NAMES)))
    return tmp_path


def options(**more: Any) -> TuneOptions:
    """Return options with a tolerance of 0.01 unless another is specified."""
    return TuneOptions(**{"candidate": TO, "objective": objective(), **more})


def tuned(worker: Worker, **more: Any) -> Tuning:
    """Return the result of the search in the model."""
    tools = TensorFlowTools(worker=worker)
    return tune.tune(discovery.named_input("a.h5"), options(**more), tools)


WEAK: Final = {"mlp/b": 0.5, "mlp/d": math.inf, "mlp/a": 0.001}


def test_the_weak_layers_are_kept() -> None:
    """Layers with large errors are kept, with their measurements and the reason."""
    worker = StandIn(WEAK)
    result = tuned(worker)
    assert (result.passed, result.ending, result.is_minimum) == (True, Ending.MINIMAL, False)
    assert [layer.path for layer in result.kept] == ["mlp/b", "mlp/d"]
    assert [layer.path for layer in result.layers] == list(PATHS)
    assert [layer.excess_if_converted for layer in result.kept] == [
        pytest.approx(50, rel=0.1),
        math.inf,
    ]
    assert [layer.is_finite for layer in result.kept] == [True, False]
    assert result.fixed.keys() == {"mlp/f"}
    assert result.split is Split.SHARED  # the rows are too few to keep some from the search
    worker.samples = 1000
    assert tuned(worker).split is Split.BATCHES
    assert result.reference.library == "tf_keras 2.21.0"
    assert result.curve[0].excess == 0
    assert result.curve[-1].converted == len(PATHS)


def test_other_sets_of_the_curve_can_be_written() -> None:
    """Each has its layers, its promise, its size and the options that write it."""
    with h5py.File("a.h5", "a") as file:
        file["model_weights/a/a/kernel:0"] = np.zeros((6, 2), dtype="float32")
    result = tuned(StandIn(WEAK), candidate=Options(to="float16"))
    assert [len(point.kept) for point in result.curve] == [
        len(PATHS) - point.converted for point in result.curve
    ]
    assert all(point.promise is not None for point in result.curve)
    sizes = [point.bytes or 0 for point in result.curve]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1] > 0
    assert result.options == result.options_by_count[len(result.converted)]
    for point in result.curve[1:]:  # the first one converts nothing
        (migrated,) = migrate_all(
            [discovery.named_input("a.h5")],
            result.options_by_count[point.converted],
            Destination(output=Path(f"{point.converted}.h5")),
        )
        assert isinstance(migrated, Migration)
        layers = policytool.inspect(f"{point.converted}.h5").layers
        kept = {layer.path for layer in layers if layer.policy == "float32"}
        assert kept == {*point.kept, "mlp/f"}


def test_the_model_is_written_with_the_set(place: Path) -> None:
    """The written model keeps only the found set and the output in float32."""
    tools = TensorFlowTools(worker=StandIn(WEAK))
    result, written = tune.tune_and_write(
        discovery.named_input("a.h5"), options(), Destination(output=place / "out.h5"), tools
    )
    assert written is not None
    assert written.status is Status.WRITTEN
    kept = {
        layer.path for layer in policytool.inspect("out.h5").layers if layer.policy == "float32"
    }
    assert kept == {"mlp/b", "mlp/d", "mlp/f"}
    assert result.options is not None
    assert result.options.to == "mixed_float16"


def test_nothing_is_written_if_nothing_was_found(place: Path) -> None:
    """
    If the search fails, nothing is written, here because a layer that the user set to 16 bits
    breaks the objective.
    """
    worker = StandIn({"mlp/f": 0.5, **WEAK})
    given = replace(TO, assignments=(Assignment(pattern="mlp/f", policy="float16"),))
    result, written = tune.tune_and_write(
        discovery.named_input("a.h5"),
        options(candidate=given),
        Destination(output=place / "out.h5"),
        TensorFlowTools(worker=worker),
    )
    assert (result.passed, result.best, written) == (False, None, None)
    assert result.ending is Ending.IMPOSSIBLE
    assert result.closest is not None
    assert result.closest.excess == pytest.approx(50)
    assert not (place / "out.h5").exists()


def test_nothing_is_written_if_all_layers_stay_in_float32(place: Path) -> None:
    worker = StandIn(dict.fromkeys(PATHS, math.inf))
    tools, destination = TensorFlowTools(worker=worker), Destination(output=place / "out.h5")
    result, written = tune.tune_and_write(
        discovery.named_input("a.h5"), options(), destination, tools
    )
    assert (result.passed, len(result.kept), written) == (False, len(PATHS), None)
    assert headline(result).startswith(f"{len(NAMES)} of {len(NAMES)} layers stay in float32, so")
    assert result.float32_layers == tuple(f"mlp/{name}" for name in NAMES)
    assert result.policies == {"float32": len(NAMES)}
    assert not (place / "out.h5").exists()


@pytest.mark.parametrize(("samples", "margin"), [(100, 0), (1000, 2)])
def test_layers_are_added_to_a_set_that_fails_on_validation(samples: int, margin: int) -> None:
    """The margin is for the half of the rows that the search does not see; it sees few rows."""
    errors = dict.fromkeys(PATHS, 0.004)
    assert len(tuned(StandIn(errors, halves=1.0)).kept) == 0
    worker = StandIn(errors, halves=1.33)
    worker.samples = samples
    result = tuned(worker)
    assert (result.passed, result.is_minimum, result.margin) == (True, False, margin)
    assert len(result.kept) == 2
    assert result.best is not None
    assert (result.best.validation or 0) <= 1


def test_set_that_overflows_on_validation_gets_a_margin() -> None:
    worker = StandIn({"mlp/b": 0.001}, halves=math.inf)
    worker.samples = 1000
    result = tuned(worker)
    assert (result.passed, result.margin) == (True, 1)
    assert [layer.path for layer in result.kept] == ["mlp/b"]


@pytest.mark.parametrize("samples", [100, 1000])
def test_layer_within_the_limit_is_kept_for_the_predictions(place: Path, samples: int) -> None:
    """Converting it changes too many classes, with few rows and with enough; the report says so."""

    class Changing(StandIn):
        def output(self, name: str | None, error: float) -> dict[str, Any]:
            changed = to_builtins(changes(samples // 2 if error > 0.005 else 0, samples))
            return {**super().output(name, error), "changes": changed}

    worker = Changing({**dict.fromkeys(PATHS, 0.0001), "mlp/b": 0.00935})
    np.save(place / "x.npy", np.zeros(1))
    result = tuned(worker, inputs=place / "x.npy")
    (kept,) = result.kept
    assert kept.path == "mlp/b"
    assert kept.excess_if_converted == pytest.approx(0.935, rel=1e-3)
    text = rendered_by(TUNE_REPORTERS, "markdown", Tunings(tuning=result))
    assert "| 93.52% | 0.00935 | if it is converted, on" in text
    assert "at most 100% stays in float32 because otherwise too many predictions may change" in text


def test_percent_of_the_limit_is_that_of_the_worse_half() -> None:
    """A layer is kept because its conversion fails only in the rows that validate the set."""
    result = tuned(StandIn({**dict.fromkeys(PATHS, 0.0001), "mlp/b": 0.0095}, halves=1.2))
    assert [layer.excess_if_converted for layer in result.kept] == [pytest.approx(1.14, rel=1e-3)]
    assert result.curve[-1].excess == pytest.approx(1.14, rel=1e-3)


def test_changed_classes_of_synthetic_rows_add_no_layers(place: Path) -> None:
    """A check of such rows is undecided; with data, more layers stay in float32."""

    class Changing(StandIn):
        def output(self, name: str | None, error: float) -> dict[str, Any]:
            changed = to_builtins(changes(50 if error else 0, 100))
            return {**super().output(name, error), "changes": changed}

    inputs = place / "x.npy"
    np.save(inputs, np.zeros(1))
    errors = {"mlp/b": 0.5, "mlp/a": 0.001}
    assert [layer.path for layer in tuned(Changing(errors)).kept] == ["mlp/b"]
    result = tuned(Changing(errors), inputs=inputs)
    assert [layer.path for layer in result.kept] == ["mlp/a", "mlp/b"]


def test_promise_is_the_answer_of_check_for_the_other_rows(place: Path) -> None:
    """Few rows and synthetic ones decide nothing, although no class changes."""
    inputs = place / "x.npy"
    np.save(inputs, np.zeros(1))
    worker = StandIn(WEAK)
    worker.samples = 1000
    result = tuned(worker, inputs=inputs)
    assert result.answer is Answer.SAFE
    assert headline(result) == (
        "3 of 6 layers stay in float32; on 1,000 other rows at most 0.299% of predictions change "
        "class (95%)"
    )
    result = tuned(StandIn(WEAK), inputs=inputs)
    assert (result.passed, result.answer) == (True, Answer.UNDECIDED)
    assert headline(result) == (
        "Undecided: on 100 rows at most 2.95% of predictions change class (95%); use 603 "
        "rows or more; 3 of 6 layers stay in float32"
    )
    result = tuned(StandIn(WEAK))
    assert (result.passed, result.answer) == (True, Answer.UNDECIDED)
    assert headline(result).startswith(
        "Undecided: not tested on your data; 3 of 6 layers stay in float32: largest error"
    )


def test_a_search_that_ends_early_has_a_valid_set() -> None:
    """
    A search that ends early returns a larger set that passes validation, and not the smallest set
    that fails it. It is no result if it has all layers.
    """
    for error, trials, size in ((0.004, 2, 2), (0.02, 3, len(PATHS))):
        worker = StandIn(dict.fromkeys(PATHS, error), halves=1.33)
        result = tuned(worker, budget=Budget(trials=trials))
        assert (result.passed, result.ending) == (size < len(PATHS), Ending.TRIALS)
        assert len(result.kept) == size


def test_one_batch_validates_nothing() -> None:
    """A single batch leaves no validation inputs, which the report says."""
    result = tuned(StandIn(WEAK, halves=None))
    assert (result.passed, result.split) == (True, Split.NONE)
    assert result.best is not None
    assert result.best.validation is None


def test_a_model_that_does_not_run_in_16_bits_has_no_diagnosis() -> None:
    """
    If the model fails in 16 bits, the search continues without a diagnosis and says so, and sets
    that cannot run fail.
    """

    class Refusing(StandIn):
        def run(self, job: Mapping[str, Any], *, side: str = "") -> Mapping[str, Any]:
            if "mlp/c" in self.narrow(job):
                self.jobs.append(job)
                raise WorkerError("not-traceable", "the candidate cannot be traced: float16")
            return super().run(job, side=side)

    result = tuned(Refusing({}))
    assert [layer.path for layer in result.kept] == ["mlp/c"]
    assert result.notes[0].message.startswith("the layers could not be ranked before the search")
    assert any(trial.failure is not None for trial in result.trials)


@pytest.mark.parametrize("number", [1, 4])
def test_a_child_that_ends_ends_the_search(number: int) -> None:
    worker = StandIn(WEAK)

    def crash(trial: int) -> None:
        if trial == number:
            raise WorkerError("worker-crashed", "it ended", ended=True)

    worker.before = crash
    with pytest.raises(WorkerError, match="it ended"):
        tuned(worker)


def test_ctrl_c_keeps_the_best_set() -> None:
    """Ctrl-C keeps the best set so far; before the first trial there is none."""
    worker = StandIn(WEAK)

    def interrupt(trial: int) -> None:
        if trial == 5:
            raise KeyboardInterrupt

    worker.before = interrupt
    result = tuned(worker)
    assert (result.ending, result.passed) == (Ending.INTERRUPTED, True)
    assert {layer.path for layer in result.kept} >= {"mlp/b", "mlp/d"}


def test_a_record_continues_a_search(place: Path) -> None:
    first = tuned(StandIn(WEAK), record=place / "trials.json", budget=Budget(trials=4))
    assert first.ending is Ending.TRIALS
    worker = StandIn(WEAK)
    result = tuned(worker, record=place / "trials.json")
    assert result.resumed == len(first.trials) == 4
    assert [trial.kept for trial in result.trials[:4]] == [trial.kept for trial in first.trials]
    assert sum(job["job"] == "trial" for job in worker.jobs) == len(result.trials) - 4 + 1
    assert result.ending is Ending.MINIMAL
    saved = json.loads((place / "trials.json").read_text())
    assert len(saved["trials"]) == len(result.trials)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"objective": objective((parse_tolerance("0.5"),))}, "options"),
        ({"seed": 2}, "options"),
        ({"candidate": replace(TO, to="float16")}, "options"),
        ({"inputs": Path("x.npz")}, "options"),
    ],
)
def test_a_record_of_another_search_is_refused(
    more: dict[str, Any], what: str, place: Path
) -> None:
    """The record of another search is an error."""
    np.savez(place / "x.npz", np.zeros(1))
    record = place / "trials.json"
    tuned(StandIn(WEAK), record=record)
    with pytest.raises(ModelFileError, match=f"search with other ({what}|inputs)"):
        tuned(StandIn(WEAK), record=record, **more)
    h5_model(place / "a.h5", sequential(*map(dense, reversed(NAMES))))
    with pytest.raises(ModelFileError, match="search with other"):
        tuned(StandIn(WEAK), record=record)


def test_record_that_cannot_be_written_is_a_one_line_error(place: Path) -> None:
    """A record that cannot be written is a one-line error, because the user requested it."""
    with pytest.raises(ModelFileError, match="cannot be written for --resume"):
        tuned(StandIn(WEAK), record=place / "nowhere/trials.json")


def test_agreement_objective_allows_any_error() -> None:
    """
    With only an agreement objective, the number of agreeing rows decides, and errors are reported.
    """
    objective_wanted = Objective(tolerances=None, agreement=0.98)
    result = tuned(StandIn({"mlp/b": 0.5}), objective=objective_wanted)
    assert result.passed
    assert result.best is not None
    assert result.best.agreement == 0.99
    assert result.best.error == pytest.approx(0.5)


def test_graphs_and_finished_models_are_refused(place: Path) -> None:
    """Graphs and already converted models are an error with a suggestion."""
    with pytest.raises(UsageError, match="would compute in 16 bits"):
        tuned(
            StandIn({}),
            candidate=replace(TO, assignments=(Assignment(pattern=".*", policy="float32"),)),
        )
    expected = options(inputs=place / "none.npz")
    with HandOver() as hand_over, pytest.raises(ModelFileError, match="does not exist"):
        tune_run.readable_source(discovery.named_input("a.h5"), expected, hand_over)


@pytest.mark.parametrize(("shared", "is_refused"), [("nan", True), ("constant", False)])
def test_outputs_that_show_nothing(shared: str, *, is_refused: bool) -> None:
    """An output that is NaN everywhere is an error, and a constant output has a note."""

    class Same(StandIn):
        def told(self, error: float) -> dict[str, Any]:
            found = super().told(error)
            if shared == "nan":
                found["outputs"][0]["accumulated"] = reductions(0.0, nan_reference=100)
            else:
                found["outputs"][0]["changes"]["range"] = [0.5, 0.5]
            return found

    if is_refused:
        with pytest.raises(ModelFileError, match="only NaN or infinity in float32"):
            tuned(Same(WEAK))
    else:
        assert [note.code for note in tuned(Same(WEAK)).notes] == ["constant-outputs"]
