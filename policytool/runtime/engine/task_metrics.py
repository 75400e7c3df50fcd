"""
The task's own metric of both models, over all batches: one that a Keras has by name (a class of
metrics, a function or a loss) for each output with labels, or a function of the user's.

Losses and errors are better if they are lower.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from typing import TYPE_CHECKING

import numpy as np

from ..devices import TRACING
from ..feeding import given_arrays, user_functions
from ..gradients.losses import ALIASES
from ..library import Refused, has_argument, refusing, sentence
from ..tensors import to_array

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

    from ..library import Library


CODE = "metric"

_BY_SHAPE = {
    "accuracy": "accuracy",
    "acc": "accuracy",
    "crossentropy": "crossentropy",
    "ce": "crossentropy",
}
"""Names that stand for a metric that depends on the shapes, as for ``compile``."""

_LOSS_AND_METRIC = ("cosinesimilarity",)
"""Losses whose metric of the same name has the opposite sign."""

_OF_CLASSES = ("accuracy", "crossentropy")
"""Parts of the names of metrics whose labels are classes or probabilities."""

_OF_PROBABILITIES = re.compile(
    "auc|precision|recall|f1score|fbetascore|(true|false)(positives|negatives)|binaryaccuracy"
    "|.*crossentropy"
)
"""Metrics that compare predictions with thresholds from 0 to 1, or take their logarithm."""

_TOLERANCE = 1e-3
_LEAST = 0.99
"""The least value of a metric that is better if it is higher for predictions without an error."""

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SUGGESTIONS = 3


class LibraryMetric:
    """A metric of a library over the batches of one model's output."""

    def __init__(self, library: Library, name: str, output: str) -> None:
        """
        Take the name of a metric; those that depend on shapes are chosen with the first batch.

        :raises Refused: if the library has no such metric.
        """
        self.library = library
        self.name = name
        self.output = output
        self.higher_is_better = True
        self._metric: Any = None
        self._function: Any = None
        self._total, self._count = 0.0, 0
        self._undefined = False
        if name.lower() not in _BY_SHAPE:
            self._find(name)

    def update(self, labels: Any, predictions: Any) -> None:
        """
        Add a batch, as NumPy arrays.

        :raises Refused: if the metric does not fit the labels or predictions.
        """
        labels, predictions = self._fit_arrays(labels, predictions)
        try:
            self._add(labels, predictions)
        except Exception as error:
            if not np.isfinite(predictions).all():
                self._undefined = True  # such as an AUC, which checks the range of probabilities
                return
            text = "the metric {} of output {} cannot be computed: {}"
            raise Refused(CODE, text.format(self.name, self.output, sentence(error))) from error

    def check_labels(self, labels: Any, predictions: Any) -> None:
        """
        Check that the metric can tell good predictions from bad ones: those that equal the labels
        must get the best value, which an AUC of the labels of a regression is not.

        :param labels: those of all rows
        :param predictions: those of the first batch
        :raises Refused: if the metric does not fit the labels or predictions.
        """
        for start in range(0, len(labels), max(len(predictions), 1)):
            rows = labels[start : start + len(predictions)]
            fitted, shaped = self._fit_arrays(rows, predictions[: len(rows)])
            if _key(self.name).startswith("sparse"):
                exact = (fitted[..., None] == np.arange(shaped.shape[-1])).astype("float32")
            else:
                exact = fitted.astype("float32")
                is_of_classes = any(part in _key(self.name) for part in _OF_CLASSES)
                if is_of_classes and fitted.size and not 0 <= fitted.min() <= fitted.max() <= 1:
                    text = "the labels have values from {:g} to {:g}, which are not probabilities"
                    self._refuse(text.format(fitted.min(), fitted.max()))
            self.update(rows, exact)
        if self.higher_is_better and _key(self.name) not in _LOSS_AND_METRIC:
            value = self.result()
            if not value >= _LEAST:
                text = "for predictions that equal the labels, the value is {:.3g} instead of 1"
                self._refuse(text.format(value))

    def check_predictions(self, predictions: Any) -> None:
        """
        Check that the predictions of a batch are probabilities, if the metric needs them.

        :raises Refused: if they are not.
        """
        known = predictions[np.isfinite(predictions)]
        if _OF_PROBABILITIES.fullmatch(_key(self.name)) and known.size:
            least, most = known.min(), known.max()
            if least < -_TOLERANCE or most > 1 + _TOLERANCE:
                text = "the output has values from {:.3g} to {:.3g}, which are not probabilities"
                self._refuse(text.format(least, most))

    def _refuse(self, reason: str) -> None:
        """
        Refuse a metric that does not suit the output.

        :raises Refused: always.
        """
        text = (
            "the metric {} does not suit output {}: {}; use labels of other outputs only, or "
            "--metric MODULE:FUNCTION"
        )
        raise Refused(CODE, text.format(self.name, self.output, reason))

    def result(self) -> float:
        """
        Return the value over all batches; NaN if it is undefined because predictions are not
        finite.

        :raises Refused: if the metric is not a single number.
        """
        if self._undefined:
            return math.nan
        if self._metric is None:
            return self._total / self._count if self._count else math.nan
        value = np.asarray(self._metric.result())
        if value.size != 1:
            text = "the metric {} returns {} numbers instead of one; use --metric MODULE:FUNCTION"
            raise Refused(CODE, text.format(self.name, value.size))
        return float(value.reshape(()))

    def _add(self, labels: Any, predictions: Any) -> None:
        tensors = [self.library.tf.constant(array) for array in (labels, predictions)]
        if self._metric is not None:
            self._metric.update_state(*tensors)
            return
        values = np.asarray(self._function(*tensors), dtype="float64")
        self._total += float(values.sum())
        self._count += values.size

    def _find(self, name: str) -> None:
        """Find a metric by its name, as a class or in the form of a function."""
        keras = self.library.keras
        normalized = _key(ALIASES.get(name.lower(), name))
        metric = _listed(keras.metrics, _is_metric).get(normalized)
        losses = _listed(keras.losses, inspect.isfunction)
        if metric is None:
            metric = _listed(keras.metrics, inspect.isfunction).get(normalized) or losses.get(
                normalized
            )
        if metric is None:
            raise Refused(CODE, self._unknown(name))
        self.name = name
        self.higher_is_better = not (
            (normalized in losses and normalized not in _LOSS_AND_METRIC)
            or normalized.endswith("error")
            or normalized.startswith("false")
        )
        if not inspect.isclass(metric):
            self._function = metric
            return
        text = "the metric {} cannot be created without arguments ({}); use --metric "
        with refusing(CODE, text + "MODULE:FUNCTION", name):
            self._metric = metric()

    def _unknown(self, name: str) -> str:
        """Return the message for a metric that the library does not have, with similar names."""
        keras = self.library.keras
        names = {
            key: _HUMPS.sub("_", metric.__name__).lower()
            for kind, module in ((_is_metric, keras.metrics), (inspect.isfunction, keras.losses))
            for key, metric in _listed(module, kind).items()
        }
        similar = difflib.get_close_matches(_key(name), names, _SUGGESTIONS)
        text = "{} has no metric {}".format(self.library.versions["library"], name[:100])
        return text + (
            "; similar names: " + ", ".join(names[key] for key in similar) if similar else ""
        )

    def _fit_arrays(self, labels: Any, predictions: Any) -> tuple[Any, Any]:
        """
        Return arrays whose shapes the metric can compare: element by element, or a class with the
        scores of all classes. NumPy's broadcasting would also combine other shapes. The first
        arrays choose a metric that depends on shapes.
        """
        if self._metric is None and self._function is None:
            self._find(_suited_metric(_BY_SHAPE[self.name.lower()], labels, predictions))
        if any(array.dtype.kind not in "biuf" for array in (labels, predictions)):
            text = "the metric {} of output {} needs numbers, not {} and {}"
            dtypes = labels.dtype, predictions.dtype
            raise Refused(CODE, text.format(self.name, self.output, *dtypes))
        is_sparse = _key(self.name).startswith("sparse")
        expected_shape = predictions.shape[:-1] if is_sparse else predictions.shape
        for shape in (labels.shape, (*labels.shape, 1), labels.shape[:-1]):
            if shape == expected_shape and int(np.prod(shape)) == labels.size:
                return labels.reshape(shape), predictions
        text = "the metric {} needs labels of the shape {} for output {}, but the file has {}"
        shapes = [_shape(sizes) for sizes in (expected_shape, labels.shape)]
        raise Refused(CODE, text.format(self.name, shapes[0], self.output, shapes[1]))


def _suited_metric(kind: str, labels: Any, predictions: Any) -> str:
    """Return the accuracy or the crossentropy for these shapes, as ``compile`` chooses it."""
    if predictions.ndim <= 1 or predictions.shape[-1] == 1:
        return "binary_" + kind
    if labels.ndim < predictions.ndim or labels.shape[-1] == 1:
        return "sparse_categorical_" + kind
    return "categorical_" + kind


def _shape(shape: Any) -> str:
    """Return the shape of a batch as text; the number of rows may vary."""
    return "({})".format(", ".join(["rows", *map(str, shape[1:])]))


def _listed(module: Any, kind: Any) -> dict[str, Any]:
    """Return the members of a module that satisfy ``kind``, by normalized name."""
    members = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {_key(name): value for name, value in members.items() if kind(value)}


def _is_metric(value: Any) -> bool:
    """Return whether something is a class of metrics that compare labels with predictions."""
    return (
        inspect.isclass(value)
        and hasattr(value, "update_state")
        and has_argument(value.update_state, "y_true")
    )


def _key(name: str) -> str:
    return name.replace("_", "").lower()


OPTION = "--metric"
SIDES = ("reference", "candidate")

BLOCKS = 10
"""
Parts of the rows, each of which is left out once: how much the metric then varies says how certain
it is (the delete-a-group jackknife, https://doi.org/10.2307/2669374).
"""


class Task:
    """The labels and the metric of a job, read before any model is loaded."""

    def __init__(self, library: Library, options: Mapping[str, Any]) -> None:
        """
        Read the labels and find the metric.

        :raises Refused: if the labels cannot be read, or there is no such metric.
        """
        self.library = library
        self.name = options["function"] or options["name"]
        self.labels: dict[str, Any] | None = None
        """By output; None if the outputs of the reference take their place."""

        if options["labels"] is not None:
            self.labels = given_arrays.read_labels(options["labels"])
        self.directory = options["directory"]
        self.function: Callable[..., Any] | None = None
        if options["function"] is not None:
            self.function = user_functions.load_function(
                OPTION, options["function"], self.directory
            )
        else:
            LibraryMetric(library, self.name, "")

    def metrics(self, outputs: Sequence[str]) -> TaskMetrics:
        """
        Return the object that computes the metric of a model with these outputs.

        :raises Refused: if the labels do not belong to these outputs.
        """
        return TaskMetrics(self, outputs)


class TaskMetrics:
    """The metric over the batches of one device."""

    def __init__(self, task: Task, outputs: Sequence[str]) -> None:
        self.task = task
        self.outputs = list(outputs)
        self.labels = (
            given_arrays.by_output(task.labels, outputs) if task.labels is not None else {}
        )
        self.judged = list(self.labels) if task.labels is not None else self.outputs
        """The outputs that the metric is about."""

        self._checked: dict[str, LibraryMetric] = {}
        """By output: the metric that was computed for the labels themselves."""

        self._start = dict.fromkeys(self.labels, 0)
        self._kept: dict[str, list[list[Any]]] = {name: [[], [], []] for name in self.judged}
        """
        The labels and the predictions of both models: of all rows for a function of the user's,
        else of those of the current block.
        """

        self._metrics = {
            name: [
                [LibraryMetric(task.library, task.name, name) for _ in SIDES]
                for _ in range(1 + (BLOCKS if name in self.labels else 0))
            ]
            for name in (self.judged if task.function is None else ())
        }
        """By output: the metric over all rows, then without each block."""

        self._block = dict.fromkeys(self.judged, 0)
        """The block of the rows that wait."""

        self._counted: dict[str, list[int]] = {name: [] for name in self.judged}
        """The blocks that have rows."""

    def update(self, reference: Sequence[Any], candidate: Sequence[Any]) -> None:
        """
        Add the outputs of both models for one batch.

        :raises Refused: if the labels have too few rows, or the metric does not fit them.
        """
        for place, name in enumerate(self.outputs):
            if name not in self.judged:
                continue
            arrays = [to_array(side[place]) for side in (reference, candidate)]
            start = self._start.get(name, 0)
            rows = self._rows(name, arrays[0])
            if self.task.function is None and name in self.labels and arrays[0].ndim:
                self._check(name, arrays[0])
            if self.task.function is None:
                self._add(name, start, [rows, *arrays])
            else:
                for kept, array in zip(self._kept[name], [rows, *arrays]):
                    kept.append(array)

    def _check(self, name: str, predictions: Any) -> None:
        """
        Check that the metric suits an output: all labels with the first batch, and the predictions
        of each batch.

        :raises Refused: if it does not.
        """
        if name not in self._checked:
            self._checked[name] = LibraryMetric(self.task.library, self.task.name, name)
            self._checked[name].check_labels(self.labels[name], predictions)
        self._checked[name].check_predictions(predictions)

    def skip(self, reference: Sequence[Any]) -> None:
        """
        Skip the labels of a batch that does not count.

        :raises Refused: if the labels have too few rows.
        """
        for place, name in enumerate(self.outputs):
            if name in self.judged:
                self._rows(name, to_array(reference[place]))

    def to_json(self) -> dict[str, Any]:
        """
        Return the metric over all batches, as JSON.

        :raises Refused: if there are labels without predictions, or the metric has no value.
        """
        for name, start in self._start.items():
            if start != len(self.labels[name]):
                text = "the labels of output {} have {}, but the model returned {}"
                raise Refused(
                    given_arrays.LABELS_CODE,
                    text.format(name, _rows(len(self.labels[name])), _rows(start)),
                )
        if self.task.function is not None:
            higher = bool(getattr(self.task.function, "higher_is_better", True))
            return {
                "name": self.task.name,
                "higher_is_better": higher,
                "outputs": [
                    {"output": self._only, "names": self.judged, **self._function_results()}
                ],
            }
        for name in self._metrics:
            self._count(name)
        first = next(iter(self._metrics.values()))[0][0]
        names = {pairs[0][0].name for pairs in self._metrics.values()}
        return {
            "name": first.name if len(names) == 1 else self.task.name,
            "higher_is_better": first.higher_is_better,
            "outputs": [
                {
                    "output": name,
                    "rows": self._start.get(name, 0),
                    **_results(pairs[0]),
                    "without": [_results(pairs[1 + block]) for block in self._counted[name]],
                }
                for name, pairs in self._metrics.items()
            ],
        }

    @property
    def _only(self) -> str | None:
        return self.judged[0] if len(self.judged) == 1 else None

    def _rows(self, name: str, predictions: Any) -> Any:
        """Return the labels of the next rows: those that the reference has predictions of."""
        if name not in self.labels:
            return predictions
        count = len(predictions) if predictions.ndim else 1
        labels, start = self.labels[name], self._start[name]
        if start + count > len(labels):
            text = "the labels of output {} have only {}, but the model returned more rows"
            raise Refused(given_arrays.LABELS_CODE, text.format(name, _rows(len(labels))))
        self._start[name] = start + count
        return labels[start : start + count]

    def _add(self, name: str, start: int, arrays: Sequence[Any]) -> None:
        """
        Add rows whose labels begin at ``start``. The rows of a block wait until the block is
        complete.
        """
        total, count, place = len(self.labels[name]), len(arrays[0]), 0
        while place < count:
            block = (start + place) * BLOCKS // total
            end = min(count, -(-total * (block + 1) // BLOCKS) - start)
            if block != self._block[name]:
                self._count(name)
                self._block[name] = block
            for kept, array in zip(self._kept[name], arrays):
                kept.append(array[place:end])
            place = end

    def _count(self, name: str) -> None:
        """
        Add the waiting rows to the metric over all rows, and to the metrics that each leave out
        another block.
        """
        if not self._kept[name][0]:
            return
        rows, *arrays = (np.concatenate(kept) for kept in self._kept[name])
        self._kept[name] = [[], [], []]
        self._counted[name].append(self._block[name])
        total_metric, *metrics_without_block = self._metrics[name]
        with TRACING:
            for pair in [
                total_metric,
                *(
                    metrics
                    for block, metrics in enumerate(metrics_without_block)
                    if block != self._block[name]
                ),
            ]:
                for metric, array in zip(pair, arrays):
                    metric.update(rows, array)

    def _function_results(self) -> dict[str, Any]:
        """Return the results of the user's function for each model's predictions."""
        sides = [
            {name: np.concatenate(kept[place]) for name, kept in self._kept.items()}
            for place in range(1 + len(SIDES))
        ]
        rows = min(len(array) for array in sides[0].values())
        left_out = [
            np.arange(rows) * BLOCKS // rows != block
            for block in range(BLOCKS if self.labels and rows >= BLOCKS else 0)
        ]
        return {
            "rows": rows if self.labels else 0,
            **self._values(sides),
            "without": [
                self._values(
                    [
                        {name: array[: len(kept)][kept] for name, array in side.items()}
                        for side in sides
                    ]
                )
                for kept in left_out
            ],
        }

    def _values(self, sides: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        labels, *predictions = (
            arrays if self._only is None else arrays[self._only] for arrays in sides
        )
        return {
            side: self._value([labels, side_predictions], side)
            for side, side_predictions in zip(SIDES, predictions)
        }

    def _value(self, arguments: Sequence[Any], side: str) -> float:
        """
        Return the number that the user's metric function returns; ``side`` names the model in
        errors.
        """
        function = self.task.function
        try:
            with user_functions.working_in(self.task.directory):
                value = function(*arguments)  # type: ignore[misc]  # there is one
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            text = "{} {} failed for the {}: {}"
            reason = user_functions.describe_error(error)
            raise Refused(CODE, text.format(OPTION, self.task.name, side, reason)) from error
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "biuf":
            text = "{} {} returned {} for the {}; expected a number"
            preview = " ".join(repr(value).split())[:100]
            raise Refused(CODE, text.format(OPTION, self.task.name, preview, side))
        return float(array.reshape(()))


def _results(pair: Sequence[LibraryMetric]) -> dict[str, float]:
    return {side: metric.result() for side, metric in zip(SIDES, pair)}


def _rows(count: int) -> str:
    return "{:,} {}".format(count, "row" if count == 1 else "rows")
