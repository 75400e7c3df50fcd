"""
``check`` finds and names layers whose errors under 16-bit policies were measured, and says of them
what the library itself says.

The models and the numbers are those of ``check_models.py``: each case's layer was called by itself,
in float32 and under the policy, and NumPy compared what came out in float64.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

import policytool
from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Assignment, Options
from policytool.numerics.check_results.verdicts import JudgementSubject, Ruling
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter, Worker
from policytool.support.errors import ModelFileError
from tests.compat.check_cases import CASES, INPUT, LAYER, MODEL, Measured
from tests.conftest import run_process
from tests.helpers.sampling import LIBRARY_SHARE, sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from policytool.numerics.check_results.checks import Check
    from policytool.numerics.check_results.metrics import LayerCall

    Checked = Callable[..., Check]

pytestmark = pytest.mark.compat

LIBRARIES: Final = ("tf_keras", "keras")
SUFFIXES: Final = {"tf_keras": ".h5", "keras": ".keras"}
PATH: Final = f"{MODEL}/{LAYER}"
NO_KERNEL: Final = "no kernel"
PASSED, MISSED, NOT_FINITE = Ruling.PASSED, Ruling.MISSED, Ruling.NOT_FINITE

FOUND: Final[Mapping[str, tuple[str, str]]] = {
    "average-2d": (MISSED, PASSED),
    "average-1d": (MISSED, PASSED),
    "average-window": (MISSED, MISSED),
    "unit-zeros": (NOT_FINITE, NOT_FINITE),
    "unit-small": (NOT_FINITE, NOT_FINITE),
    "unit-large": (MISSED, MISSED),
    "layer-norm": (PASSED, PASSED),
    "layer-norm-pure": (MISSED, PASSED),
    "layer-norm-epsilon": (NOT_FINITE, PASSED),
    "group-norm": (MISSED, PASSED),
    "batch-norm": (PASSED, PASSED),
    "dense-deep": (PASSED, PASSED),
    "dense-overflow": (NOT_FINITE, NOT_FINITE),
    "softmax": (PASSED, PASSED),
    "exponential": (NOT_FINITE, NOT_FINITE),
    "gelu": (PASSED, PASSED),
    "elu": (MISSED, MISSED),
    "normalization-mean": (NOT_FINITE, NOT_FINITE),
    "normalization-variance": (MISSED, MISSED),
    "lstm": (PASSED, PASSED),
    "gru": (PASSED, PASSED),
    "attention": (PASSED, PASSED),
    "max-3d": (NO_KERNEL, NO_KERNEL),
}
"""
What becomes of the layer, in tf_keras and in Keras 3, which computes means and most normalisations
in float32 whatever the policy.
"""

SAMPLE: Final = sampled(
    "measured layers",
    ((library, case) for library in LIBRARIES for case in CASES),
    share=LIBRARY_SHARE,
)
"""What most tests of this run check."""

NOT_KEPT: Final = ("dense-overflow", "exponential", "elu")
"""What fails for the values that it is fed, of which a plan knows nothing."""


@pytest.fixture(scope="module")
def truth(models: Path) -> dict[str, Any]:
    """Return what the libraries say."""
    result: dict[str, Any] = json.loads((models / "truth.json").read_text(encoding="utf-8"))
    return result


@pytest.fixture(scope="module")
def checked(models: Path, tools: TensorFlowTools) -> Checked:
    """Return a function that checks one of the models on its inputs, once."""

    @cache
    def check(library: str, name: str, suffix: str | None = None, **options: Any) -> Check:
        path = models / library / (name + (SUFFIXES[library] if suffix is None else suffix))
        (result,) = discovery.inputs([str(path)])
        return checks.check(
            result,
            None,
            CheckOptions(
                candidate=Options(**options),
                inputs=models / library / f"{name}.npz",
                isolated=True,
            ),
            tools,
        )

    return check


def measured(check: Check) -> LayerCall:
    """Return the call that a case is about."""
    (run,) = check.runs
    (call,) = (call for call in run.calls if call.path == PATH)
    return call


def ruling(check: Check) -> str:
    """Return what became of the case's layer."""
    (run,) = check.runs
    if run.missing:
        return NO_KERNEL
    (result,) = (
        judgement
        for judgement in run.verdict.judgements
        if judgement.about is JudgementSubject.LAYER and judgement.path == PATH
    )
    return result.ruling


def cases(*, kernel: bool = True, without: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Return each case with each library."""
    listed = [
        (library, case)
        for library, case in SAMPLE
        if case.name not in without and (FOUND[case.name][0] != NO_KERNEL or not kernel)
    ]
    return pytest.mark.parametrize(
        ("library", "case"), listed, ids=[f"{library}-{case.name}" for library, case in listed]
    )


def expected(library: str, case: Measured) -> str:
    """Return what is to become of a case's layer."""
    return FOUND[case.name][LIBRARIES.index(library)]


@cases(kernel=False)
def test_faulty_layer_is_reported_with_its_path(
    checked: Checked, library: str, case: Measured
) -> None:
    """
    This layer and the layers after it miss their tolerance, and no layer before it. The first layer
    with NaN or infinity is reported.
    """
    actual, result = checked(library, case.name), expected(library, case)
    assert ruling(actual) == result
    (run,) = actual.runs
    assert run.verdict.first_not_finite == (PATH if result == NOT_FINITE else None)
    layers = [item.path for item in run.verdict.missed if item.about is JudgementSubject.LAYER]
    assert layers[:1] == ([PATH] if result in {MISSED, NOT_FINITE} else [])
    assert f"{MODEL}/before" not in layers


@cases()
def test_errors_equal_those_of_direct_calls_of_the_library(
    checked: Checked, truth: dict[str, Any], library: str, case: Measured
) -> None:
    """Isolated errors, infinite values, the worst pair and the outputs."""
    (output,) = measured(checked(library, case.name)).outputs
    alone, end = truth[library][case.name]["isolated"], truth[library][case.name]["outputs"]
    assert output.isolated is not None
    assert output.accumulated is not None
    for found in (output.isolated, output.accumulated):
        assert found.relative == _about(alone["relative"], 1e-5)
        assert found.overflow == alone["overflowed"] / alone["elements"]
        assert found.nan is not None
        assert found.infinite is not None
        assert (found.nan[1], found.infinite[1]) == (
            alone["nan_candidate"],
            alone["infinite_candidate"],
        )
    if alone["largest_error"]:
        assert output.accumulated.pair == pytest.approx(tuple(alone["worst"]), rel=1e-6)
        assert output.accumulated.max_abs == pytest.approx(alone["largest_error"], rel=1e-5)
    (last,) = checked(library, case.name).runs[0].outputs
    assert last.name == "probabilities"
    assert last.accumulated is not None
    assert last.accumulated.relative == _about(end["relative"], 1e-3)
    assert last.accumulated.nan is not None
    assert last.accumulated.nan[1] == end["nan_candidate"]


def _about(value: float | None, relative: float) -> Any:
    return None if value is None else pytest.approx(value, rel=relative, abs=1e-9)


def test_ten_becomes_two(checked: Checked) -> None:
    """The mean of 16384 tens, summed in float16, which no NaN tells of."""
    (output,) = measured(checked("tf_keras", "average-2d")).outputs
    assert output.accumulated is not None
    assert output.accumulated.pair == (10.0, 2.0)
    assert output.accumulated.overflow == 0


@cases()
def test_a_float32_file_fails_the_same_under_assigned_policies(
    checked: Checked, library: str, case: Measured
) -> None:
    """
    ``--to POLICY --set LAYER=POLICY`` on a file in float32 measures what the file under that policy
    measures.
    """
    saved = checked(library, case.name)
    assigned = checked(
        library,
        case.name,
        ".float32.keras",
        to=case.policy,
        assignments=(Assignment(pattern=PATH, policy=case.policy),),
    )
    assert ruling(assigned) == ruling(saved) == expected(library, case)
    assert measured(assigned).outputs == measured(saved).outputs


@cases(without=NOT_KEPT)
def test_model_with_the_planned_policies_passes(
    checked: Checked, library: str, case: Measured
) -> None:
    """The plan keeps exactly the layers that fail under the policy in float32."""
    result = checked(library, case.name, ".float32.keras", to=case.policy)
    assert result.holds, result.runs[0].verdict.missed
    assert (PATH in result.candidate.kept) is (expected(library, case) != PASSED)


@cases()
def test_float64_model_equals_itself_exactly(
    models: Path, tools: TensorFlowTools, tmp_path: Path, library: str, case: Measured
) -> None:
    """Every isolated and accumulated error is exactly zero."""
    path = tmp_path / "model.keras"
    source = models / library / f"{case.name}.float32.keras"
    policytool.migrate(source, to="float64", include=["exceptions", "outputs"], output=path)
    (model,) = discovery.inputs([str(path)])
    inputs = models / library / f"{case.name}.npz"
    result = checks.check(model, model, CheckOptions(inputs=inputs, isolated=True), tools)
    (run,) = result.runs
    pairs = [
        metrics
        for call in run.calls
        for output in call.outputs
        for metrics in (output.isolated, output.accumulated)
        if metrics is not None
    ]
    assert len(pairs) > len(run.calls)
    assert all(metrics.relative == 0 for metrics in pairs)
    assert {
        output.accumulated.max_abs
        for call in run.calls
        for output in call.outputs
        if output.accumulated is not None
    } == {0.0}
    assert result.runs[0].verdict.passed


@pytest.mark.parametrize("library", LIBRARIES)
def test_kernels_that_do_not_exist_are_named_before_anything_runs(
    checked: Checked, library: str
) -> None:
    """The op, its dtype and its layer; a float32 file is not planned so in the first place."""
    (run,) = checked(library, "max-3d").runs
    assert {(item.type, item.dtype, item.layer) for item in run.missing} == {
        ("MaxPool3D", "float16", PATH)
    }
    assert not run.calls
    with pytest.raises(
        ModelFileError, match=f"{PATH} .MaxPooling3D. cannot run under mixed_float16 on a CPU"
    ):
        checked(library, "max-3d", ".float32.keras", to="mixed_float16")


@pytest.mark.parametrize("name", ["average-2d", "dense-overflow"])
def test_a_saved_model_fails_as_the_file_does(checked: Checked, name: str) -> None:
    """The formats of one library hold the same model."""
    assert (
        measured(checked("tf_keras", name, "")).outputs
        == measured(checked("tf_keras", name)).outputs
    )


class Divided(Worker):
    """A child that divides this machine's CPU into two devices."""

    def run(self, job: Mapping[str, Any], *, side: str = "") -> Mapping[str, Any]:
        """Return what the child made of a job."""
        return super().run({**job, "logical": 2}, side=side)


@pytest.mark.parametrize("library", LIBRARIES)
def test_two_devices_measure_the_same_side_by_side(
    checked: Checked, models: Path, compat_python: Path, library: str
) -> None:
    """``--device all`` gives a run for each device, with the numbers that one device gives."""
    path = models / library / f"average-window{SUFFIXES[library]}"
    (result,) = discovery.inputs([str(path)])
    with Divided(Interpreter(python=str(compat_python), timeout=300)) as worker:
        both = checks.check(
            result,
            None,
            CheckOptions(inputs=path.parent / "average-window.npz", device="all", isolated=True),
            TensorFlowTools(worker=worker),
        )
    assert [run.device.name for run in both.runs] == ["cpu:0", "cpu:1"]
    (alone,) = checked(library, "average-window").runs
    for run in both.runs:
        assert run.calls == alone.calls
        assert run.verdict == alone.verdict
        assert not run.fallbacks


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("average-2d.h5 --inputs average-2d.npz", 5, "10 → 2"),
        (
            "average-2d.float32.keras --inputs average-2d.npz --to mixed_float16",
            5,
            "the same in all rows",
        ),
        ("max-3d.h5 --inputs max-3d.npz", 3, "MaxPool3D"),
        ("average-2d.float32.keras", 2, "--to POLICY"),
        ("average-2d.h5 --inputs missing.npz", 3, "missing.npz"),
    ],
    ids=["missed", "kept", "no kernel", "usage", "no inputs"],
)
def test_exit_codes(
    models: Path, compat_python: Path, arguments: str, code: int, told: str
) -> None:
    """2 for wrong usage, 3 for what cannot be run or read, 5 for rows that are all the same."""
    ended = run_process(
        "check", *arguments.split(), "--python", compat_python, cwd=models / "tf_keras"
    )
    assert ended.code == code, ended.err
    assert told in ended.out + ended.err


def test_the_report_names_the_layer(models: Path, compat_python: Path) -> None:
    """The JSON of a process says what the values say."""
    path = models / "tf_keras/unit-zeros.h5"
    ended = run_process(
        "check",
        path,
        "--inputs",
        path.with_suffix(".npz"),
        "--python",
        compat_python,
        "--format",
        "json",
    )
    assert ended.code == 1, ended.err
    assert INPUT in ended.out
    assert PATH in ended.out


def test_values_are_counted_by_exponent(models: Path, tools: TensorFlowTools) -> None:
    """Every output of a layer over all batches, for reports that show it and no others."""
    name = CASES[0].name
    (result,) = discovery.inputs([str(models / "keras" / f"{name}.keras")])
    options = CheckOptions(candidate=Options(to="mixed_float16"), batches=2, batch_size=3)
    for wanted in (options, replace(options, exponents=True)):
        (run,) = checks.check(result, None, wanted, tools).runs
        outputs = [output for call in run.calls for output in call.outputs]
        assert outputs
        for output in outputs:
            assert (output.exponents is not None) == wanted.exponents
            if output.exponents is not None and output.accumulated is not None:
                counted = sum(count for _, count in output.exponents)
                assert 0 < counted <= output.accumulated.elements
