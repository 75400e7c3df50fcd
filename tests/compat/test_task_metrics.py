"""The metric of the task, on models of both libraries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from msgspec.structs import replace

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Assignment, Options, Outputs
from policytool.numerics.verdicts.task_metric import metric_options
from policytool.support.errors import ModelFileError, UsageError, WorkerError
from tests.compat.asking import run_module
from tests.compat.labelled_models import METRICS, ROWS, SUFFIXES
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from policytool.numerics.check_results.checks import Check
    from policytool.numerics.check_results.metrics import TaskMetric
    from policytool.numerics.tensorflow_run import TensorFlowTools

    Checked = Callable[..., Check]

pytestmark = pytest.mark.compat

POLICY: Final = "mixed_float16"
LIBRARIES: Final = pytest.mark.parametrize("library", SUFFIXES)

FUNCTIONS: Final = """
import numpy as np

def right(labels, predictions):
    return float((labels == predictions.argmax(-1)).mean())

def wrong(labels, predictions):
    return 1 - right(labels, predictions)

wrong.higher_is_better = False

def both(labels, predictions):
    assert sorted(labels) == sorted(predictions) == ["binary", "classes"]
    return right(labels["classes"], predictions["classes"])
"""


@pytest.fixture(scope="module")
def labelled(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the models that ``labelled_models.py`` writes."""
    base = tmp_path_factory.mktemp("labelled")
    run_module(compat_python, "labelled_models", base)
    (base / "labelled_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    return base


@pytest.fixture
def checked(labelled: Path, tools: TensorFlowTools, monkeypatch: pytest.MonkeyPatch) -> Checked:
    """Return a function that checks one of the models with labels and a metric."""
    monkeypatch.chdir(labelled)

    def check(
        model: str,
        library: str,
        labels: str | None = None,
        metric: str | None = None,
        **options: Any,
    ) -> Check:
        (result,) = discovery.inputs([str(labelled / (model + SUFFIXES[library]))])
        expected = metric_options(
            labelled / labels if labels is not None else None,
            metric,
            options.pop("max_drop", None),
            has_inputs=True,
        )
        return checks.check(
            result,
            None,
            CheckOptions(
                candidate=options.pop("candidate", Options(to=POLICY)),
                inputs=labelled / "inputs.npz",
                metric=expected,
                **options,
            ),
            tools,
        )

    return check


def metric_of(found: Check) -> TaskMetric:
    """Return the metric of the one run of a check."""
    (run,) = found.runs
    assert run.verdict.metric is not None
    return run.verdict.metric


@LIBRARIES
@pytest.mark.parametrize("kind", METRICS)
def test_metrics_of_the_library_equal_those_of_evaluate(
    labelled: Path, checked: Checked, library: str, kind: str
) -> None:
    """The metrics cover all batches, and the last batch may be shorter."""
    truth = json.loads((labelled / "truth.json").read_text(encoding="utf-8"))[library]
    for name in METRICS[kind]:
        result = checked("several", library, f"{library}-{kind}.npz", name, batch_size=48)
        (one,) = metric_of(result).outputs
        assert one.output == kind
        assert one.reference == pytest.approx(truth[kind][name], rel=1e-4, abs=1e-5)
        assert one.candidate == pytest.approx(one.reference, abs=0.01)
        assert result.holds


def test_direction_of_each_metric_agrees_with_keras3(labelled: Path) -> None:
    """The test covers each metric for which Keras 3 defines a direction."""
    truth = json.loads((labelled / "truth.json").read_text(encoding="utf-8"))["directions"]
    actual = {name: one for name, one in truth.items() if one[0] is not None}
    assert len(actual) > 15
    assert {name: one for name, one in actual.items() if (one[0] == "up") is not one[1]} == {}


@LIBRARIES
def test_a_small_error_that_changes_classes_fails(checked: Checked, library: str) -> None:
    """All errors are within their tolerances; the layers to keep are found all the same."""
    follow = Options(to=POLICY, outputs=Outputs.FOLLOW)
    result = checked("shifted", library, f"{library}-shifted.npy", "accuracy", candidate=follow)
    assert not result.holds
    (run,) = result.runs
    assert not run.verdict.missed
    metric = metric_of(result)
    assert metric.name == "sparse_categorical_accuracy"
    assert metric.worst.reference == 1.0
    assert metric.worst.candidate < 0.9
    assert result.advice is not None
    assert result.advice.layers == ("net/logits", "net/out")
    float32 = [Assignment(pattern=path, policy="float32") for path in result.advice.layers]
    kept = replace(follow, assignments=tuple(float32))
    assert checked("shifted", library, f"{library}-shifted.npy", "accuracy", candidate=kept).holds
    result = checked(
        "shifted", library, f"{library}-shifted.npy", "accuracy", candidate=follow, max_drop=1.0
    )
    assert not result.holds  # whatever the metric may lose


@LIBRARIES
def test_functions_of_the_user_are_called_with_arrays(checked: Checked, library: str) -> None:
    """Without trust, and with whatever outputs have labels."""
    labels = f"{library}-classes.npy"
    result = metric_of(checked("classes", library, labels, "labelled_functions:right"))
    assert result.worst.reference == pytest.approx(1 - 20 / ROWS)
    assert result.higher_is_better
    result = metric_of(checked("classes", library, labels, "labelled_functions:wrong"))
    assert result.worst.reference == pytest.approx(20 / ROWS)
    assert not result.higher_is_better


@LIBRARIES
def test_metric_functions_receive_outputs_by_name(
    labelled: Path, checked: Checked, library: str
) -> None:
    """The function receives the outputs with labels."""
    arrays = np.load(labelled / f"{library}.npz")
    np.savez(labelled / "two.npz", classes=arrays["classes"], binary=arrays["binary"])
    result = metric_of(checked("several", library, "two.npz", "labelled_functions:both"))
    assert [output.output for output in result.outputs] == [None]
    assert result.worst.reference == pytest.approx(1 - 20 / ROWS)


@LIBRARIES
def test_every_output_with_labels_has_a_metric(
    labelled: Path, checked: Checked, library: str
) -> None:
    """The accuracy of each output is the one that ``compile`` chooses."""
    arrays = np.load(labelled / f"{library}.npz")
    np.savez(labelled / "two.npz", classes=arrays["classes"], binary=arrays["binary"])
    result = metric_of(checked("several", library, "two.npz", "accuracy"))
    assert result.name == "accuracy"
    assert {output.output: round(output.reference, 4) for output in result.outputs}[
        "classes"
    ] == 0.9
    assert {output.output for output in result.outputs} == {"classes", "binary"}


@LIBRARIES
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("{}-classes.npy", "acuracy"),
            ("metric", "has no metric acuracy; similar names: accuracy"),
        ),
        (("{}-classes.npy", "mean"), ("metric", "has no metric mean")),
        (("{}-classes.npy", "mean_io_u"), ("metric", "cannot be created without arguments")),
        (("{}-classes.npy", "mse"), ("metric", "needs labels of the shape (rows, 5)")),
        (("{}.npz", "accuracy"), ("labels-file", "the labels contain binary, numbers, but")),
        (("short.npy", "accuracy"), ("labels-file", "have only 3 rows")),
        (
            ("long.npy", "accuracy"),
            ("labels-file", "have 201 rows, but the model returned 200 rows"),
        ),
        (("words.npy", "accuracy"), ("metric", "needs numbers")),
        (("inputs.npz", "accuracy"), ("metric", "needs labels of the shape")),
        (("truth.json", "accuracy"), ("labels-file", "neither an .npz nor an .npy file")),
        (
            ("{}-classes.npy", "os:getpid"),
            ("metric", "--metric os:getpid failed for the reference"),
        ),
        (("{}-classes.npy", "no_module:f"), ("user-function", "cannot be imported")),
    ],
)
def test_unsuitable_labels_and_metrics_give_a_one_line_error(
    labelled: Path, checked: Checked, library: str, given: tuple[str, str], said: tuple[str, str]
) -> None:
    """The error contains the name and the wrong shape."""
    np.save(labelled / "short.npy", np.zeros(3, "int64"))
    np.save(labelled / "long.npy", np.zeros(ROWS + 1, "int64"))
    np.save(labelled / "words.npy", np.array(["a"] * ROWS))
    with pytest.raises((ModelFileError, WorkerError)) as caught:
        checked("classes", library, given[0].format(library), given[1])
    error = caught.value
    assert isinstance(error, ModelFileError | WorkerError)
    assert error.code == said[0]
    assert said[1] in str(error)


@LIBRARIES
@pytest.mark.parametrize(
    ("output", "metric_and_reason"),
    [
        ("numbers", ("auc", "the value is 0")),
        ("numbers", ("accuracy", "the labels have values from")),
        ("numbers", ("binary_crossentropy", "the labels have values from")),
        ("numbers", ("precision", "the output has values from")),
        ("zeros", ("recall", "the value is 0 instead of 1")),
        ("logits", ("auc", "the output has values from")),
        ("logits", ("accuracy", "the output has values from")),
    ],
)
def test_a_metric_that_does_not_suit_an_output_is_refused(
    labelled: Path, checked: Checked, library: str, output: str, metric_and_reason: tuple[str, str]
) -> None:
    """It has a value that says nothing: two wrong models have the same one."""
    arrays = np.load(labelled / f"{library}.npz")
    labels = {
        "numbers": ("numbers", 3 + arrays["numbers"]),
        "zeros": ("binary", np.zeros_like(arrays["binary"])),
        "logits": ("numbers", arrays["binary"]),
    }
    name, values = labels[output]
    metric, reason = metric_and_reason
    np.savez(labelled / "unsuitable.npz", **{name: values})
    with pytest.raises((ModelFileError, WorkerError), match="does not suit output") as caught:
        checked("several", library, "unsuitable.npz", metric)
    assert reason in str(caught.value)


def test_graphs_have_no_metric(labelled: Path, tools: TensorFlowTools) -> None:
    """A check that silently left it out would pass."""
    graph = FIXTURES / "keras3.15/global_mixed_float16.export"
    (result,) = discovery.inputs([str(graph)])
    check_options = CheckOptions(
        candidate=Options(to="mixed_bfloat16"),
        inputs=labelled / "inputs.npz",
        metric=metric_options(labelled / "keras-classes.npy", "auc", None, has_inputs=True),
    )
    with pytest.raises(UsageError, match="runs as a graph, for which --metric is not available"):
        checks.check(result, None, check_options, tools)
