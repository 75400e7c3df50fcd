"""
``check`` on residual streams of 24 and 100 blocks: few patterns name the layers that stay in
float32, a policy that does not suit the model is reported, and layers are compared in few rows.

``residual_models.py`` writes the models.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.commands import check as checks
from policytool.commands import check_trials
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery, format_detection
from policytool.migration import planning
from policytool.migration.planning import decisions
from policytool.migration.planning.options import Options
from policytool.model import reading
from policytool.numerics.check_results.verdicts import Answer
from policytool.reports import View
from policytool.reports.checks import Checks, headline
from policytool.reports.checks.fields import REPORT
from policytool.reports.reporter import json_reporter
from policytool.runtime.engine.measurements import EXPLAINED_ROWS, LAYER_ROWS
from tests.compat.asking import run_module
from tests.compat.residual_models import CLASSES, MANY, ROWS, STREAMS, SUFFIXES
from tests.conftest import run
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.numerics.check_results.checks import Check
    from policytool.numerics.check_results.metrics import LayerCall, Metrics
    from policytool.numerics.tensorflow_run import TensorFlowTools

pytestmark = [pytest.mark.compat, pytest.mark.slow]

LIBRARIES: Final = pytest.mark.parametrize(
    "library", sampled("libraries of residual streams", SUFFIXES, share=2)
)
TRIALS: Final = 4
"""A diagnosis, two sets that it charges, and the other policy."""

FEW_TRIALS: Final = 3
"""The same with one set, for which a deep model leaves time."""


@pytest.fixture(scope="module")
def residual(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the models of 24 blocks."""
    base = tmp_path_factory.mktemp("residual")
    names = [name for name in STREAMS if not name.startswith("deep")]
    run_module(compat_python, "residual_models", base, *names)
    return base


@pytest.fixture(scope="module")
def deep(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the models of 100 blocks."""
    base = tmp_path_factory.mktemp("deep")
    names = [name for name in STREAMS if name.startswith("deep")]
    run_module(compat_python, "residual_models", base, *names)
    return base


@pytest.fixture(autouse=True)
def trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the number of trials end a search, and not the time, which other tests share."""
    monkeypatch.setattr(check_trials, "TIMES", 1e6)
    monkeypatch.setattr(check_trials, "MOST_TRIALS", TRIALS)


def checked(
    tools: TensorFlowTools, model: Path, inputs: str = "inputs.npz", **options: Any
) -> Check:
    """Return a check of a model with the inputs beside it."""
    (result,) = discovery.inputs([str(model)])
    check_options = CheckOptions(candidate=Options(**options), inputs=model.with_name(inputs))
    return checks.check(result, None, check_options, tools)


def errors(call: LayerCall) -> list[Metrics]:
    """Return the accumulated errors of a call."""
    return [output.accumulated for output in call.outputs if output.accumulated is not None]


def selected(found: Check, model: Path) -> list[str]:
    """Return the layers that the command keeps in float32."""
    assert found.migration is not None
    loaded = reading.load_model(format_detection.document(model, str(model)))
    matched = decisions.matches(loaded, found.migration.assignments)
    return [loaded.layers[index].path for index in matched]


def applied(found: Check, model: Path, tools: TensorFlowTools) -> Check:
    """Return the check of the file that the printed command writes."""
    report = json_reporter(REPORT).render(Checks(check=found), View())
    program, *words = json.loads(report)["check"]["command"]
    assert program == "policytool"
    output = model.with_stem(f"{model.stem}-written")
    done = run(*words, "-o", output, "--existing=replace")
    assert done.code == 0, done.err
    return checked(tools, output)


@LIBRARIES
@pytest.mark.parametrize(
    ("name", "pattern"),
    [("one", "net/blk_9_.*"), ("some", "net/blk_([5-9]|1[0-6])_.*")],
)
def test_overflowing_blocks_become_one_pattern(
    residual: Path, tools: TensorFlowTools, library: str, name: str, pattern: str
) -> None:
    """The pattern selects the layers that the trial kept, and the command writes a safe file."""
    model = residual / f"{name}{SUFFIXES[library]}"
    result = checked(tools, model, to="mixed_float16")
    assert result.answer is Answer.NOT_SAFE
    assert result.runs[0].origin is not None
    assert result.runs[0].origin.path == f"net/blk_{min(STREAMS[name].overflowing)}_up"
    assert result.advice is not None
    assert not result.advice.is_unfit
    assert result.migration is not None
    assert [assignment.pattern for assignment in result.migration.assignments] == [pattern]
    assert sorted(selected(result, model)) == sorted(result.advice.layers)
    assert applied(result, model, tools).answer is Answer.SAFE


@pytest.mark.parametrize(
    ("library", "name", "pattern", "origin"),
    sampled(
        "deep residual streams",
        (
            (library, *case)
            for library in SUFFIXES
            for case in (
                ("deep-most", r"net/blk_([3-9]|[1-9]\d)_.*", "net/blk_3_up"),
                ("deep-middle", r"net/blk_[45]\d_.*", "net/blk_40_up"),
                ("deep-nested", r"net/blk_([3-9]|[1-9]\d)/.*", "net/blk_3/up"),
            )
        ),
        share=3,
    ),
)
def test_the_first_set_is_enough_in_a_deep_model(
    deep: Path,
    tools: TensorFlowTools,
    monkeypatch: pytest.MonkeyPatch,
    *,
    library: str,
    name: str,
    pattern: str,
    origin: str,
) -> None:
    """The layers that overflow and those that get their outputs, as one pattern."""
    monkeypatch.setattr(check_trials, "MOST_TRIALS", FEW_TRIALS)
    model = deep / f"{name}{SUFFIXES[library]}"
    result = checked(tools, model, to="mixed_float16")
    assert result.answer is Answer.NOT_SAFE
    assert result.runs[0].origin is not None
    assert result.runs[0].origin.path == origin
    assert result.advice is not None
    assert len(result.advice.layers) == 2 * len(STREAMS[name].overflowing)
    loaded = reading.load_model(format_detection.document(model, str(model)))
    layers = dict.fromkeys(result.advice.layers, "float32")
    options = planning.with_layers(loaded, Options(to="mixed_float16"), layers)
    assert [assignment.pattern for assignment in options.assignments] == [pattern]
    if not result.advice.is_unfit:
        assert result.migration == options
        assert applied(result, model, tools).answer is Answer.SAFE


@LIBRARIES
def test_a_deep_stream_out_of_range_needs_bfloat16(
    deep: Path, tools: TensorFlowTools, library: str
) -> None:
    """All layers receive what does not fit into float16."""
    model = deep / f"deep-stream{SUFFIXES[library]}"
    result = checked(tools, model, to="mixed_float16")
    assert result.answer is Answer.NOT_SAFE
    assert "; mixed_float16 does not suit this model (" in headline(result)
    assert headline(result).endswith("); mixed_bfloat16 does")
    assert result.migration == Options(to="mixed_bfloat16")


@LIBRARIES
def test_layers_of_a_safe_candidate_are_compared_in_few_rows(
    residual: Path, tools: TensorFlowTools, library: str
) -> None:
    """The outputs in all of them."""
    result = checked(tools, residual / f"plain{SUFFIXES[library]}", to="mixed_float16")
    assert result.answer is Answer.SAFE
    (run,) = result.runs
    assert run.inputs.layer_rows == LAYER_ROWS
    assert [answer.samples for answer in run.answers] == [ROWS]
    sizes = {
        metrics.elements for call in run.calls for metrics in errors(call) if not call.is_model
    }
    assert sizes == {LAYER_ROWS * CLASSES}
    assert {metrics.elements for metrics in errors(run.calls[-1])} == {ROWS * CLASSES}


@LIBRARIES
def test_a_row_behind_the_compared_ones_is_explained(
    residual: Path, tools: TensorFlowTools, library: str
) -> None:
    """Layers are compared in the rows that become NaN, whichever they are."""
    model = residual / f"plain{SUFFIXES[library]}"
    result = checked(tools, model, "large-row.npz", to="mixed_float16")
    assert result.answer is Answer.NOT_SAFE
    (run,) = result.runs
    assert [(answer.samples, answer.spoiled) for answer in run.answers] == [(MANY, 1)]
    assert run.inputs.layer_rows == EXPLAINED_ROWS
    assert run.origin is not None
    assert run.origin.path == "net/blk_0_up"


@LIBRARIES
def test_model_that_needs_the_range_of_bfloat16_is_reported(
    residual: Path, tools: TensorFlowTools, library: str
) -> None:
    """All blocks overflow in float16, and the command is for the policy that was tried."""
    model = residual / f"all{SUFFIXES[library]}"
    result = checked(tools, model, to="mixed_float16")
    assert result.advice is not None
    assert result.advice.is_unfit
    assert 2 * len(result.advice.layers) > result.advice.choices
    assert "; mixed_float16 does not suit this model (" in headline(result)
    assert headline(result).endswith("); mixed_bfloat16 does")
    assert result.migration == Options(to="mixed_bfloat16")
    assert applied(result, model, tools).answer is Answer.SAFE


@LIBRARIES
def test_model_that_needs_the_precision_of_float16_is_reported(
    residual: Path, tools: TensorFlowTools, library: str
) -> None:
    """In bfloat16, rounding removes the differences between classes."""
    model = residual / f"offset{SUFFIXES[library]}"
    result = checked(tools, model, to="mixed_bfloat16")
    assert result.answer is Answer.NOT_SAFE
    assert result.advice is not None
    assert result.advice.policy == "mixed_float16"
    assert headline(result).endswith("); mixed_float16 does")
    assert result.migration == Options(to="mixed_float16")
    assert applied(result, model, tools).answer is Answer.SAFE


def test_safe_candidate_has_a_command_with_the_options_of_the_check(
    residual: Path, tools: TensorFlowTools
) -> None:
    result = checked(tools, residual / "one.keras", to="mixed_bfloat16", include_exceptions=True)
    assert result.answer is Answer.SAFE
    assert result.migration == Options(to="mixed_bfloat16", include_exceptions=True)


def test_nothing_to_write_has_no_command(residual: Path, tools: TensorFlowTools) -> None:
    """The layers of the file have the policy of the check already, or it compares two files."""
    model = residual / "one.keras"
    assert checked(tools, model, to="float32").migration is None
    inputs = [
        input_value for path in (model, model) for input_value in discovery.inputs([str(path)])
    ]
    check_options = CheckOptions(inputs=model.with_name("inputs.npz"))
    assert checks.check(inputs[0], inputs[1], check_options, tools).migration is None
