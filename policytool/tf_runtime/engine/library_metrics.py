"""
Metrics that a Keras has by name: its classes of metrics, its functions, and its losses.

What is better, more or less, follows from the class: losses and errors are better if they are
lower.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from typing import TYPE_CHECKING

import numpy as np

from ..gradients.losses import ALIASES
from ..library import Refused, takes
from ..sentences import sentence

if TYPE_CHECKING:
    from typing import Any

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
        if self._metric is None and self._function is None:
            self._find(_suited(_BY_SHAPE[self.name.lower()], labels, predictions))
        labels, predictions = self._fitted(labels, predictions)
        try:
            self._add(labels, predictions)
        except Exception as error:
            if not np.isfinite(predictions).all():
                self._undefined = True  # such as an AUC, which checks the range of probabilities
                return
            text = "the metric {} of output {} cannot be computed: {}"
            raise Refused(CODE, text.format(self.name, self.output, sentence(error))) from error

    def result(self) -> float:
        """
        Return the value over all batches; NaN if predictions are not finite and it has none.

        :raises Refused: if the metric is not one number.
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
        short = _key(ALIASES.get(name.lower(), name))
        metric = _listed(keras.metrics, _is_metric).get(short)
        losses = _listed(keras.losses, inspect.isfunction)
        if metric is None:
            metric = _listed(keras.metrics, inspect.isfunction).get(short) or losses.get(short)
        if metric is None:
            raise Refused(CODE, self._unknown(name))
        self.name = name
        self.higher_is_better = not (
            (short in losses and short not in _LOSS_AND_METRIC)
            or short.endswith("error")
            or short.startswith("false")
        )
        if not inspect.isclass(metric):
            self._function = metric
            return
        try:
            self._metric = metric()
        except Exception as error:
            text = "the metric {} cannot be created without arguments ({}); use --metric "
            text += "MODULE:FUNCTION"
            raise Refused(CODE, text.format(name, sentence(error))) from error

    def _unknown(self, name: str) -> str:
        keras = self.library.keras
        names = {
            key: _HUMPS.sub("_", metric.__name__).lower()
            for kind, module in ((_is_metric, keras.metrics), (inspect.isfunction, keras.losses))
            for key, metric in _listed(module, kind).items()
        }
        near = difflib.get_close_matches(_key(name), names, _SUGGESTIONS)
        text = "{} has no metric {}".format(self.library.versions["library"], name[:100])
        return text + ("; similar names: " + ", ".join(names[key] for key in near) if near else "")

    def _fitted(self, labels: Any, predictions: Any) -> tuple[Any, Any]:
        """
        Return arrays whose shapes the metric can compare: element by element, or a class with the
        scores of all classes. NumPy's broadcasting would also combine other shapes.
        """
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


def _suited(kind: str, labels: Any, predictions: Any) -> str:
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
        and takes(value.update_state, "y_true")
    )


def _key(name: str) -> str:
    return name.replace("_", "").lower()
