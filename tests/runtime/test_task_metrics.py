"""Labels and the metric of the user, as far as the child process needs no TensorFlow."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.runtime.engine import task_metrics
from policytool.runtime.engine.task_metrics import Task
from policytool.runtime.feeding import given_arrays
from policytool.runtime.library import Refused

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
import numpy as np

def seen(labels, predictions):
    assert isinstance(labels, np.ndarray) and isinstance(predictions, np.ndarray)
    return float((labels == predictions.argmax(-1)).mean())

def several(labels, predictions):
    assert list(labels) == list(predictions) == ["a", "b"]
    return sum(float(np.abs(labels[name] - predictions[name]).sum()) for name in labels)

several.higher_is_better = False

def narrow(labels, predictions):
    return np.float32(predictions.dtype == np.float32)

def changes(labels, predictions):
    labels[:] = 0
    return labels.sum() + predictions.sum()

def files(labels, predictions):
    return np.loadtxt("value.txt")

def raises(labels, predictions):
    raise ValueError("no " + "good")

def leaves(labels, predictions):
    raise SystemExit(3)

def text(labels, predictions):
    return "0.5"

def nothing(labels, predictions):
    pass

def vector(labels, predictions):
    return np.ones(3)

def complex_number(labels, predictions):
    return 1j

def truth(labels, predictions):
    return True
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Return a directory with a module of metrics, which has a unique name."""
    name = f"metrics_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "value.txt").write_text("0.25", encoding="utf-8")
    return tmp_path / name


def task(place: Path, function: str, **labels: Any) -> Task:
    """Return a task with a function of the module."""
    np.savez(place.parent / "labels.npz", **labels)
    expected = {
        "labels": str(place.parent / "labels.npz"),
        "name": None,
        "function": f"{place.name}:{function}",
        "directory": str(place.parent),
    }
    library: Any = None  # a function needs none
    return Task(library, expected)


def told(found: Task, *batches: tuple[list[Any], list[Any]], outputs: Any = ("a",)) -> Any:
    """Return the metric over batches of the outputs of both models."""
    metrics = found.metrics(outputs)
    for sides in batches:
        metrics.update(*[[np.asarray(item) for item in side] for side in sides])
    return metrics.to_json()


def refusal(found: Task, *batches: tuple[list[Any], list[Any]], outputs: Any = ("a",)) -> str:
    """Return the error message for a task."""
    with pytest.raises(Refused) as caught:
        told(found, *batches, outputs=outputs)
    return f"{caught.value.code}: {caught.value}"


def test_a_function_gets_the_rows_of_all_batches(place: Path) -> None:
    """A metric function is called once per model with the rows of all batches."""
    first, second = np.eye(3), np.eye(3)[[0, 0, 0]]
    result = told(
        task(place, "seen", a=[0, 1, 2]), ([first[:2]], [second[:2]]), ([first[2:]], [second[2:]])
    )
    assert result["higher_is_better"]
    assert result["outputs"] == [
        {
            "output": "a",
            "names": ["a"],
            "rows": 3,
            "reference": 1.0,
            "candidate": pytest.approx(1 / 3),
            "without": [],
        }
    ]


def test_a_function_gets_several_outputs_by_name(place: Path) -> None:
    """A metric can declare that lower values are better."""
    labels = {"a": [1.0, 2.0], "b": [0.0, 0.0]}
    result = told(
        task(place, "several", **labels),
        ([[1.0, 2.0], [9.0, 9.0], [0.0, 0.0]], [[1.0, 3.0], [8.0, 8.0], [0.0, 0.5]]),
        outputs=("a", "unlabelled", "b"),
    )
    assert not result["higher_is_better"]
    assert result["outputs"] == [
        {
            "output": None,
            "names": ["a", "b"],
            "rows": 2,
            "reference": 0.0,
            "candidate": 1.5,
            "without": [],
        }
    ]


def test_a_metric_is_computed_without_each_tenth_of_the_rows(place: Path) -> None:
    """The ten values estimate its uncertainty."""
    first = np.eye(2)[np.arange(20) % 2]
    second = first.copy()
    second[:2] = first[1::-1]
    (result,) = told(
        task(place, "seen", a=np.arange(20) % 2),
        ([first[:7]], [second[:7]]),
        ([first[7:]], [second[7:]]),
    )["outputs"]
    assert (result["rows"], result["reference"], result["candidate"]) == (20, 1.0, 0.9)
    assert [round(left["candidate"], 6) for left in result["without"]] == [
        1.0,
        *[round(16 / 18, 6)] * 9,
    ]


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32"])
def test_narrow_predictions_come_as_float32(place: Path, dtype: Any) -> None:
    """NumPy would compute in 16 bits."""
    array = np.ones((2, 2)).astype(dtype)
    result = told(task(place, "narrow", a=[0, 1]), ([array], [array]))
    assert result["outputs"][0]["candidate"] == 1.0


def test_metric_function_that_changes_its_arguments_keeps_the_labels(place: Path) -> None:
    result = task(place, "changes", a=[1, 1])
    assert told(result, ([[0.0, 0.0]], [[0.0, 0.0]]))["outputs"][0]["candidate"] == 0.0
    assert result.labels is not None
    assert result.labels["a"].tolist() == [1, 1]


def test_metric_function_reads_its_files_and_returns_any_number_type(place: Path) -> None:
    batch = ([[0.0, 0.0]], [[0.0, 0.0]])
    assert told(task(place, "files", a=[1, 1]), batch)["outputs"][0]["reference"] == 0.25
    assert told(task(place, "truth", a=[1, 1]), batch)["outputs"][0]["reference"] == 1.0


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "failed for the reference: ValueError: no good (metrics_"),
        ("leaves", "failed for the reference: SystemExit: 3"),
        ("text", "returned '0.5' for the reference; expected a number"),
        ("nothing", "returned None for the reference; expected a number"),
        ("vector", "returned array([1., 1., 1.]) for the reference; expected a number"),
        ("complex_number", "returned 1j for the reference; expected a number"),
    ],
)
def test_error_in_a_metric_function_is_a_one_line_error(
    place: Path, function: str, said: str
) -> None:
    result = refusal(task(place, function, a=[0, 1]), ([[0.0, 0.0]], [[0.0, 0.0]]))
    assert result.startswith("metric: --metric metrics_")
    assert said in result


def test_missing_metric_functions_are_rejected_at_once(place: Path) -> None:
    """A missing metric function is an error before a model is loaded."""
    with pytest.raises(Refused, match="has no function missing"):
        task(place, "missing", a=[0])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (1, "the labels of output a have only 1 row, but the model returned more rows"),
        (3, "the labels of output a have 3 rows, but the model returned 2 rows"),
    ],
)
def test_rows_have_to_match(place: Path, rows: int, said: str) -> None:
    """Labels whose number of rows differs from that of the inputs are an error."""
    result = refusal(task(place, "seen", a=np.zeros(rows)), ([np.eye(2)], [np.eye(2)]))
    assert result == f"labels-file: {said}"


@pytest.mark.parametrize(
    ("labels", "names", "said"),
    [
        (
            {"y": [0]},
            ("a", "b"),
            "the labels contain y, but the outputs of the model have the names a, b",
        ),
        (
            {"a": [0], "c": [0]},
            ("a", "b"),
            "the labels contain c, but the outputs of the model have the names a, b",
        ),
        (
            {},
            ("a",),
            "the labels contain no array, but the outputs of the model have the names a",
        ),
        ({"": [0]}, ("a", "b"), "the labels contain an array without a name, but"),
        ({"a": 5}, ("a",), "the labels of output a have no rows"),
    ],
)
def test_labels_have_the_names_of_outputs(
    labels: dict[str, Any], names: tuple[str, ...], said: str
) -> None:
    arrays = {name: np.asarray(values) for name, values in labels.items()}
    with pytest.raises(Refused) as caught:
        given_arrays.by_output(arrays, names)
    assert (caught.value.code, str(caught.value)[: len(said)]) == ("labels-file", said)


def test_the_only_array_needs_no_name() -> None:
    """Examples are ``.npy`` files and ``numpy.savez`` without names."""
    for name in ("", "arr_0", "a"):
        assert list(given_arrays.by_output({name: np.zeros(2)}, ("a",))) == ["a"]
    assert list(given_arrays.by_output({"b": np.zeros(2)}, ("a", "b"))) == ["b"]


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04", b"\x93NUMPY\x01\x00\xff\xff"])
def test_files_of_another_format_are_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "y.npy").write_bytes(content)
    with pytest.raises(Refused) as caught:
        given_arrays.read_labels(str(tmp_path / "y.npy"))
    assert caught.value.code == "labels-file"


def test_labels_that_are_objects_are_rejected(tmp_path: Path) -> None:
    """Labels that are Python objects are an error, because loading them would run code."""
    np.save(tmp_path / "y.npy", np.array([{}, {}], dtype=object))
    with pytest.raises(Refused, match="Python objects"):
        given_arrays.read_labels(str(tmp_path / "y.npy"))


class Counted:
    """A replacement for a library metric: the sum of the labels."""

    higher_is_better = True

    def __init__(self, _library: Any, name: str, _output: str) -> None:
        self.name = name
        self.sum = 0.0

    def update(self, labels: Any, predictions: Any) -> None:
        """Add rows, whose labels equal their predictions."""
        assert labels.tolist() == predictions.tolist()
        self.sum += float(labels.sum())

    def check_labels(self, _labels: Any, _predictions: Any) -> None:
        """Accept all labels."""

    def check_predictions(self, _predictions: Any) -> None:
        """Accept all predictions."""

    def result(self) -> float:
        """Return the sum of the labels."""
        return self.sum


@given(
    count=st.integers(1, 60),
    batch=st.integers(1, 25),
    skipped=st.sets(st.integers(0, 10), max_size=2),
)
def test_tenths_do_not_depend_on_batches(count: int, batch: int, skipped: set[int]) -> None:
    """Each row with a label is left out once."""
    labels = 2.0 ** (np.arange(count) % 40)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(task_metrics, "LibraryMetric", Counted)
        patched.setattr(task_metrics, "TRACING", nullcontext())
        patched.setattr(given_arrays, "read_labels", lambda _: {"a": labels})
        library: Any = None
        expected = {"labels": "labels.npy", "name": "sum", "function": None, "directory": ""}
        metrics = Task(library, expected).metrics(("a",))
        kept = np.zeros(count, bool)
        for number, start in enumerate(range(0, count, batch)):
            rows = labels[start : start + batch]
            if number in skipped:
                metrics.skip([rows])
            else:
                metrics.update([rows], [rows])
                kept[start : start + batch] = True
        (result,) = metrics.to_json()["outputs"]
    tenths = np.arange(count) * task_metrics.BLOCKS // count
    whole = labels[kept].sum()
    assert result["reference"] == result["candidate"] == whole
    assert [item["candidate"] for item in result["without"]] == [
        whole - labels[kept & (tenths == tenth)].sum() for tenth in sorted({*tenths[kept].tolist()})
    ]
