"""
The numbers of a run of both models: the comparisons of tensors in a trace, the binary exponents of
values, and the rows in which layers are compared.

The outputs are compared in all rows, because the answer is about them. The layers only explain it,
and comparing each of them takes several times as long as calling both models: many rows are
therefore represented by a few.

Without :class:`Steps`, TensorFlow may finish one model before it begins the other, and keep all of
its activations.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import model_calls
from ..tensors import are_compatible, is_eager, is_narrow, tensor_shape, to_array
from . import tensor_errors
from .layer_hooks import Tape, layer_paths_by_id
from .output_changes import OutputChanges
from .tensor_errors import FIELDS

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Sequence

    from ..feeding.batches import FedInputs
    from .call_pairs import Pair
    from .layer_hooks import Call
    from .task_metrics import TaskMetrics

    Run = Callable[[Any], tuple[Any, Any, Any]]
    """Returns vectors, histograms and the outputs of both models for one batch."""


class Comparisons:
    """Tensors of a reference and of a candidate in the graph that is being traced."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.vectors: list[Any] = []
        """The reductions, one vector for each comparison."""

        self._known: dict[tuple[int, int], int] = {}
        self._held: list[Any] = []
        """References to tensors, so that their ids are not reused while they are compared."""

    def tensors(self, outputs: Any) -> list[Any]:
        """
        Return the tensors of a call's outputs; a ragged or sparse tensor is split into its parts.
        """
        return [
            tensor
            for tensor in self.tf.nest.flatten(outputs, expand_composites=True)
            if self.tf.is_tensor(tensor)
        ]

    def each(self, reference: Any, candidate: Any) -> list[int | None]:
        """
        Return the numbers of the comparisons of the outputs of two calls: None for tensors of
        different shapes, and an empty list if the calls return different numbers of tensors.
        """
        pairs = self.tensors(reference), self.tensors(candidate)
        return (
            [
                self.number(reference_tensor, candidate_tensor)
                for reference_tensor, candidate_tensor in zip(*pairs)
            ]
            if len(pairs[0]) == len(pairs[1])
            else []
        )

    def widened(self, tensor: Any) -> Any:
        """Return a tensor in a dtype that NumPy has: narrower floats as float32."""
        return self.tf.cast(tensor, self.tf.float32) if is_narrow(tensor) else tensor

    def hold(self, *tensors: Any) -> None:
        """Keep tensors, so that their ids are not reused."""
        self._held += tensors

    def number(self, reference: Any, candidate: Any) -> int | None:
        """Return the number of the comparison of two tensors; None if their shapes differ."""
        if not are_compatible(reference, candidate):
            return None
        key = (id(reference), id(candidate))
        if key not in self._known:  # a model returns the tensors of its last layer
            self.vectors.append(tensor_errors.compare_tensors(self.tf, reference, candidate))
            self.hold(reference, candidate)
            self._known[key] = len(self.vectors) - 1
        return self._known[key]


AHEAD = 2
"""
The number of layers that a model may run ahead of the comparisons: enough for two threads, with few
activations in memory.
"""

_NO_STEP = ("Const", "NoOp", "Placeholder", "ReadVariableOp")
"""Operations that do not have to wait, because they create no activation or run only once."""

_UNABLE = ("Enter", "Exit", "Merge", "NextIteration", "Switch")
"""Operations that belong to a loop or branch of TF 1."""


class Steps:
    """The compared calls of a reference that contain no other calls, in their order."""

    def __init__(self) -> None:
        self._done: list[tuple[Call, list[Any]]] = []

    def awaited(self, call: Call) -> list[Any]:
        """Return the operations that must finish before the candidate makes a call."""
        return self._done[-AHEAD][1] if not call.children and len(self._done) >= AHEAD else []

    def compared(self, call: Call, vectors: Sequence[Any]) -> None:
        """Record that a call was compared, with its measurements."""
        if not call.children:
            self._done.append((call, [vector.op for vector in vectors]))

    def hold(self, tf: Any, operations: Sequence[Any], end: int) -> None:
        """
        Let each layer of the reference wait until the layer ``AHEAD`` places before it was
        compared.

        ``end`` is the number of the reference's operations. The reference is traced first, when
        there is nothing to wait for. TensorFlow runs operations with side effects, such as
        assertions, in the order of the trace: those of the reference come first, and the operations
        before them cannot wait.
        """
        last = max(
            (
                place
                for place, operation in enumerate(operations[:end])
                if _has_effects(tf, operation)
            ),
            default=-1,
        )
        for (call, _), (_, compared) in zip(self._done[AHEAD:], self._done):
            call_operations = (
                set(operations[call.start : call.stop]) if call.start > last else set()
            )
            wait(
                [
                    op
                    for op in call_operations
                    if op.type not in _NO_STEP
                    and any(tensor.op not in call_operations for tensor in op.inputs)
                ],
                compared,
            )


def wait(operations: Sequence[Any], finished: Sequence[Any]) -> None:
    """Make operations of a graph wait for others, except operations of loops, which cannot wait."""
    for operation in operations:
        if operation.type not in _UNABLE:
            operation._add_control_inputs(finished)  # noqa: SLF001  # what was traced before cannot be made to wait in another way


def _has_effects(tf: Any, operation: Any) -> bool:
    """
    Return whether a function runs an operation in the order of its trace. Operations on variables
    and tables only keep their order on the same object.
    """
    return bool(operation.op_def.is_stateful) and not any(
        tensor.dtype == tf.resource for tensor in operation.inputs
    )


EXPONENT_BINS = 256
"""The number of exponents of float32: 0 for zero, 255 for values that are not finite."""

_BIAS = 127


def count_exponents(tf: Any, tensor: Any) -> Any:
    """
    Return the number of values for each exponent, as a float64 vector; within a ``tf.function``.

    Counted on the CPU: GPUs have no deterministic kernel for it.
    """
    if is_eager(tf):
        exponents = (to_array(tensor).ravel().astype("float32").view("int32") >> 23) & 255
        return np.bincount(exponents, minlength=EXPONENT_BINS).astype("float64")
    bits = tf.bitcast(tf.cast(tf.stop_gradient(tensor), tf.float32), tf.int32)
    biased_exponents = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 23), 255)
    with tf.device("/CPU:0"):
        return tf.cast(
            tf.math.bincount(
                tf.reshape(biased_exponents, [-1]), minlength=EXPONENT_BINS, maxlength=EXPONENT_BINS
            ),
            tf.float64,
        )


def exponents_to_json(vector: Any) -> list[list[int]]:
    """Return the exponents of normal numbers in ascending order, each with its count."""
    counts = np.asarray(vector, "int64").tolist()
    return [
        [place - _BIAS, counts[place]] for place in range(1, EXPONENT_BINS - 1) if counts[place]
    ]


_NOT_FINITE = [FIELDS.index(name) for name in ("nan_reference", "infinite_reference")]


def measure_extremes(
    fed: FedInputs, usual_vectors: Any, run: Callable[[Any], Any], vectors: Callable[[Any], Any]
) -> Iterator[Any]:
    """
    Yield the result of ``run`` for each extra batch, and record in ``fed`` which batches were left
    out: those for which the reference has NaN or infinity in a tensor that is finite for the random
    batches.

    ``usual_vectors`` has a vector for each comparison over the random batches; ``vectors`` returns
    the same from a result of ``run``.
    """
    kept, dropped = [], []
    pending = list(fed.extremes)
    while pending:
        batch = pending.pop(0)
        measurement = run(batch.tensors)
        if not is_worse(usual_vectors, vectors(measurement)):
            kept.append(batch)
            yield measurement
        elif batch.parts():
            pending = [*batch.parts(), *pending]
        else:
            dropped.append(batch)
    fed.keep_extremes(kept, dropped)


def is_worse(usual_vector: Any, extra_vector: Any) -> bool:
    """
    Return whether the reference has NaN or infinity in a tensor that is finite for random batches.

    If it has them for the random batches too, they belong to the model, such as the negative
    infinity of an attention mask.
    """
    before, after = (
        np.nan_to_num(np.asarray(vectors)[:, _NOT_FINITE]).sum(axis=1)
        for vectors in (usual_vector, extra_vector)
    )
    return bool(((before == 0) & (after > 0)).any())


LAYER_ROWS = 16
"""The number of rows in which layers are compared if the run has no error to explain."""

LEAST_ROWS = 48
"""The minimum number of rows for a selection; with fewer rows, it would save little."""

EXPLAINED_ROWS = 1000
"""The maximum number of rows in which layers are compared to explain an error."""


class Measured(NamedTuple):
    """
    The numbers of one run: a row for each comparison and for each histogram, and the changes of
    each output of the model.
    """

    vectors: Any
    histograms: Any
    changes: Sequence[OutputChanges]
    outputs: Any = None
    """
    A row for each output of the model over all rows of the inputs; None if the comparisons of
    the layers are over all rows, too.
    """

    def merge(self, other: Measured) -> Measured:
        """
        Return the measurements over the batches of both. Changes are counted in the same object, so
        they already include both.
        """
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
        self.is_partial = fed.report["kind"] == "given" and rows >= LEAST_ROWS and rows > self.count
        fed.report["layer_rows"] = None

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
        remaining = self.count
        others = [number for number in range(len(self.fed.batches)) if number not in spoiled]
        for number in (*spoiled, *others):
            if remaining <= 0:
                break
            batch, rows = self.fed.batches[number], self.fed.rows[number]
            if rows > remaining and not self.fed.has_fixed_rows:
                start = min(spoiled.get(number, 0), rows - remaining)
                batch = self._mapped(functools.partial(self._part, start, remaining), batch)
                rows = remaining
            remaining -= rows
            yield batch
        self.fed.report["layer_rows"] = self.count - remaining

    def _mapped(self, change: Callable[[Any], Any], nested: Any) -> Any:
        return self._tf.nest.map_structure(change, nested)

    def _part(self, start: int, rows: int, tensor: Any) -> Any:
        """Return rows of a tensor; a single value is for all rows."""
        if type(tensor).__name__ == "SparseTensor":
            sizes = [rows, *(int(size) for size in tensor.dense_shape[1:])]
            return self._tf.sparse.slice(tensor, [start, *[0] * (len(sizes) - 1)], sizes)
        return tensor[start : start + rows] if len(tensor.shape) else tensor

    def _open_spec(self, spec: Any) -> Any:
        shape = tensor_shape(spec)
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
    first_nonfinite_rows: dict[int, int] = {}
    for number, batch in enumerate(fed.batches):
        step("batch {} of {}".format(number + 1, fed.report["batches"]))
        vectors, histograms, outputs = run(batch)
        if metrics is not None:
            metrics.update(*outputs)
        changes += [OutputChanges() for _ in outputs[0][len(changes) :]]
        for change, *pair in zip(changes, *outputs):
            change.update(*map(to_array, pair))
            if change.first_spoiled is not None:
                first_nonfinite_rows[number] = min(
                    change.first_spoiled, first_nonfinite_rows.get(number, change.first_spoiled)
                )
        measured = Measured(np.asarray(vectors), np.asarray(histograms), changes)
        total = measured if total is None else total.merge(measured)
    return total, first_nonfinite_rows


class OutputRun:
    """Calls both models one after the other, and compares only their outputs."""

    def __init__(self, pair: Pair, specs: Any) -> None:
        self._pair = pair
        self._comparisons = Comparisons(pair.tf)
        self._models = [
            self._trace_model(place, model, specs)
            for place, model in enumerate((pair.reference, pair.candidate))
        ]
        self._compared: Any = self._compare
        self.shapes: list[Any] = []
        if pair.has_graph:
            specs = [
                [pair.tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in model.outputs]
                for model in self._models
            ]
            function = pair.tf.function(self._compare, autograph=False, input_signature=specs)
            self._compared = function.get_concrete_function()
            self.shapes = [tensor_shape(tensor) for tensor in self._models[0].outputs]

    def __call__(self, batch: Any) -> tuple[Any, Any, Any]:
        """Return a vector for each output, no histogram, and the outputs of both models."""
        outputs = [model(batch) for model in self._models]
        self.shapes = self.shapes or [tensor_shape(tensor) for tensor in outputs[0]]
        vectors, widened_outputs = self._compared(*outputs)
        return vectors, self._pair.tf.zeros([0, 0], self._pair.tf.float64), widened_outputs

    def _trace_model(self, place: int, model: Any, specs: Any) -> Any:
        """Return the traced function of a model, which calls it as when its layers are compared."""
        library = self._pair.libraries[place]

        def call(inputs: Any) -> list[Any]:
            tape = Tape(library, model, layer_paths_by_id(model))
            with tape.watching(), library.global_policy(self._pair.policies[place]):
                return self._comparisons.tensors(model_calls.call(model, inputs))

        function = self._pair.tf.function(call, autograph=False, input_signature=[specs])
        return function.get_concrete_function()

    def _compare(self, reference: Sequence[Any], candidate: Sequence[Any]) -> tuple[Any, Any]:
        """Return the stacked error vectors of outputs, and the outputs in dtypes of NumPy."""
        tf = self._pair.tf
        vectors = [
            tensor_errors.compare_tensors(tf, *tensors) for tensors in zip(reference, candidate)
        ]
        widened_outputs = [
            [self._comparisons.widened(tensor) for tensor in tensors]
            for tensors in (reference, candidate)
        ]
        return tf.stack(vectors), widened_outputs
