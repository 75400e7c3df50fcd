"""
The numbers of a run of both models, and in which rows of the user's inputs layers are compared.

The outputs are compared in all rows, because the answer is about them. The layers only explain it,
and comparing each of them takes several times as long as calling both models: many rows are
therefore represented by a few.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import model_calls
from . import tensor_errors
from .comparisons import Comparisons
from .layer_hooks import Tape, layer_paths_by_id
from .output_changes import OutputChanges

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Sequence

    from ..feeding.batches import FedInputs
    from .call_pairs import Pair
    from .task_metrics import TaskMetrics

    Run = Callable[[Any], tuple[Any, Any, Any]]
    """Returns vectors, histograms and the outputs of both models for one batch."""

LAYER_ROWS = 16
"""The number of rows in which layers are compared if the run has no error to explain."""

LEAST_ROWS = 48
"""The minimum number of rows for a selection; with fewer rows, it would save little."""

EXPLAINED_ROWS = 1000
"""The maximum number of rows in which layers are compared to explain an error."""


class Measured(NamedTuple):
    """
    The numbers of one run: a row for each comparison, one for each histogram, and how the values of
    each output of the model changed.
    """

    vectors: Any
    histograms: Any
    changes: Sequence[OutputChanges]
    outputs: Any = None
    """
    A row for each output of the model over all rows of the inputs; None if the comparisons of
    the layers are over all rows, too.
    """

    def merged(self, other: Measured) -> Measured:
        """Return the numbers over the examples of both; the changes are already of both."""
        return Measured(
            np.stack([tensor_errors.merge(*pair) for pair in zip(self.vectors, other.vectors)]),
            self.histograms + other.histograms,
            self.changes,
        )


class LayerRows:
    """The rows of the inputs in which layers are compared."""

    def __init__(self, tf: Any, fed: FedInputs, *, explains: bool) -> None:
        """``explains``: whether the run has an error to explain."""
        self._tf = tf
        self.fed = fed
        rows = sum(fed.rows)
        self.count = EXPLAINED_ROWS if explains else LAYER_ROWS
        self.is_partial = fed.told["kind"] == "given" and rows >= LEAST_ROWS and rows > self.count
        fed.told["layer_rows"] = None

    @property
    def specs(self) -> Any:
        """The specs of the batches; the number of rows is open if it may differ."""
        is_whole = not self.is_partial or self.fed.has_fixed_rows
        if is_whole or self.count % max(self.fed.rows) == 0:
            return self.fed.specs
        return self._mapped(self._open_spec, self.fed.specs)

    def batches(self, spoiled: Mapping[int, int]) -> Iterator[Any]:
        """
        Yield batches with these rows, and note their number: those with the numbers of ``spoiled``,
        whose values are rows that must not be cut off, then the others in their order. The last
        batch is cut unless its size is fixed.
        """
        left = self.count
        others = [number for number in range(len(self.fed.batches)) if number not in spoiled]
        for number in (*spoiled, *others):
            if left <= 0:
                break
            batch, rows = self.fed.batches[number], self.fed.rows[number]
            if rows > left and not self.fed.has_fixed_rows:
                start = min(spoiled.get(number, 0), rows - left)
                batch = self._mapped(functools.partial(self._part, start, left), batch)
                rows = left
            left -= rows
            yield batch
        self.fed.told["layer_rows"] = self.count - left

    def _mapped(self, change: Callable[[Any], Any], nested: Any) -> Any:
        return self._tf.nest.map_structure(change, nested)

    def _part(self, start: int, rows: int, tensor: Any) -> Any:
        """Return rows of a tensor; a single value is for all rows."""
        if isinstance(tensor, self._tf.SparseTensor):
            sizes = [rows, *(int(size) for size in tensor.dense_shape[1:])]
            return self._tf.sparse.slice(tensor, [start, *[0] * (len(sizes) - 1)], sizes)
        return tensor[start : start + rows] if len(tensor.shape) else tensor

    def _open_spec(self, spec: Any) -> Any:
        shape = spec.shape.as_list() if spec.shape.rank else []
        return type(spec)([None, *shape[1:]] if shape else spec.shape, spec.dtype)


def measure_batches(
    fed: FedInputs, step: Callable[[str], None], run: Run, metrics: TaskMetrics | None
) -> tuple[Measured | None, dict[int, int]]:
    """
    Return the numbers over all batches, without extra ones, and by batch the first row in which the
    candidate has new NaN or infinity in an output. ``metrics`` gets the outputs.
    """
    changes: list[OutputChanges] = []
    total: Measured | None = None
    spoiled: dict[int, int] = {}
    for number, batch in enumerate(fed.batches):
        step("batch {} of {}".format(number + 1, fed.told["batches"]))
        vectors, histograms, outputs = run(batch)
        if metrics is not None:
            metrics.update(*outputs)
        changes += [OutputChanges() for _ in outputs[0][len(changes) :]]
        for change, *pair in zip(changes, *outputs):
            change.update(*(np.asarray(tensor) for tensor in pair))
            if change.first_spoiled is not None:
                spoiled[number] = min(
                    change.first_spoiled, spoiled.get(number, change.first_spoiled)
                )
        measured = Measured(vectors.numpy(), histograms.numpy(), changes)
        total = measured if total is None else total.merged(measured)
    return total, spoiled


class OutputRun:
    """Both models, called one after the other, of which only the outputs are compared."""

    def __init__(self, pair: Pair, specs: Any) -> None:
        self._pair = pair
        self._comparisons = Comparisons(pair.tf)
        self._models = [
            self._traced(place, model, specs)
            for place, model in enumerate((pair.reference, pair.candidate))
        ]
        specs = [
            [pair.tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in model.outputs]
            for model in self._models
        ]
        function = pair.tf.function(self._compare, autograph=False, input_signature=specs)
        self._compared = function.get_concrete_function()
        self.shapes = [
            tensor.shape.as_list() if tensor.shape.rank is not None else []
            for tensor in self._models[0].outputs
        ]

    def __call__(self, batch: Any) -> tuple[Any, Any, Any]:
        """Return a vector for each output, no histogram, and the outputs of both models."""
        outputs = [model(batch) for model in self._models]
        vectors, widened = self._compared(*outputs)
        return vectors, self._pair.tf.zeros([0, 0], self._pair.tf.float64), widened

    def _traced(self, place: int, model: Any, specs: Any) -> Any:
        """Return the function of a model, called as when its layers are compared."""
        library = self._pair.libraries[place]

        def call(inputs: Any) -> list[Any]:
            tape = Tape(library, model, layer_paths_by_id(model))
            with tape.watching(), library.global_policy(self._pair.policies[place]):
                return self._comparisons.tensors(model_calls.call(model, inputs))

        function = self._pair.tf.function(call, autograph=False, input_signature=[specs])
        return function.get_concrete_function()

    def _compare(self, reference: Sequence[Any], candidate: Sequence[Any]) -> tuple[Any, Any]:
        tf = self._pair.tf
        vectors = [
            tensor_errors.compare_tensors(tf, *tensors) for tensors in zip(reference, candidate)
        ]
        widened = [
            [self._comparisons.widened(tensor) for tensor in tensors]
            for tensors in (reference, candidate)
        ]
        return tf.stack(vectors), widened
