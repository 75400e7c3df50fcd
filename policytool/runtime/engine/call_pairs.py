"""
A reference and a candidate traced as one function, whose results are numbers about each layer and
no activations.

The candidate's layers are compared with the reference's as they are called: what comes out when
each runs from end to end (accumulated), and what comes out when the candidate's layer gets the
inputs that the reference's layer had (isolated). A diagnosis also notes what enters each call,
which calls made that, and how much of a call's error its rounded inputs explain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .. import model_calls
from ..feeding.inputs import forget_states
from ..library import Refused
from ..tensors import dtype_name, is_floating, item_bytes, tensor_shape
from . import tensor_errors
from .layer_hooks import Tape, drawing_layers, layer_paths_by_id, layers_of_operations
from .measurements import (
    EXPONENT_BINS,
    Comparisons,
    Measured,
    OutputRun,
    Steps,
    count_exponents,
    measure_batches,
    measure_extremes,
)

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping, Sequence

    from ..feeding.batches import FedInputs
    from ..library import Library
    from .layer_hooks import Call
    from .measurements import LayerRows
    from .task_metrics import TaskMetrics


def repeat_call(
    library: Library, reference: Call, candidate: Call, make: Callable[..., Any]
) -> Any:
    """
    Return the outputs of a candidate's layer for the input tensors of the reference's call, cast to
    the dtypes of its own inputs; None if the two calls have different numbers of tensors.

    All other arguments are those of its own call: Keras 2 passes ``training`` and ``mask`` on where
    Keras 3 does not, and Keras 3 passes an absent mask only under some policies.
    """
    nest, is_tensor = library.tf.nest, library.tf.is_tensor
    flat = nest.flatten((candidate.args, candidate.kwargs))
    others = [leaf for leaf in nest.flatten((reference.args, reference.kwargs)) if is_tensor(leaf)]
    if len(others) != sum(map(is_tensor, flat)):
        return None
    tensors = iter(others)
    candidate_tensors = [
        _like(library, next(tensors), leaf, reference.masks) if is_tensor(leaf) else leaf
        for leaf in flat
    ]
    args, kwargs = nest.pack_sequence_as((candidate.args, candidate.kwargs), candidate_tensors)
    return make(*args, **kwargs)


def repeat_call_rounded(library: Library, reference: Call, candidate: Call) -> Any:
    """
    Return the outputs of a reference's layer for the inputs of the reference, rounded to the dtypes
    of the candidate's inputs. None if no input is rounded, or if the calls have different numbers
    of tensors.
    """
    nest, is_tensor = library.tf.nest, library.tf.is_tensor
    flat = nest.flatten((reference.args, reference.kwargs))
    others = [leaf for leaf in nest.flatten((candidate.args, candidate.kwargs)) if is_tensor(leaf)]
    if reference.make is None or len(others) != sum(map(is_tensor, flat)):
        return None
    candidate_tensors = iter(others)
    pairs = [(leaf, next(candidate_tensors) if is_tensor(leaf) else leaf) for leaf in flat]
    rounded = [
        _through(library, leaf, other.dtype, reference.masks) if is_rounded(leaf, other) else leaf
        for leaf, other in pairs
    ]
    if all(after is before for after, before in zip(rounded, flat)):
        return None
    args, kwargs = nest.pack_sequence_as((reference.args, reference.kwargs), rounded)
    return reference.make(*args, **kwargs)


def is_rounded(leaf: Any, other: Any) -> bool:
    """Return whether a tensor loses digits in another tensor's dtype."""
    if not (is_floating(leaf) and is_floating(other)):
        return False
    return item_bytes(other) < item_bytes(leaf)


def can_be_called_again(tape: Tape, call: Call) -> bool:
    """
    Return whether a layer can be called a second time to measure it.

    Models are excluded, because their layers are measured, and so are layers with a state, which
    would return other values for the next batch.
    """
    if tape.graph is None:
        changes_variables = call.stop > call.start
    else:
        operations = tape.graph.get_operations()[call.start : call.stop]
        changes_variables = any(
            operation.type.startswith(("Assign", "ResourceScatter")) for operation in operations
        )
    keeps_state = getattr(call.layer, "stateful", False) or changes_variables
    return not keeps_state and not isinstance(call.layer, tape.library.keras.Model)


def _like(library: Library, tensor: Any, other: Any, masks: Mapping[int, Any]) -> Any:
    """Return a tensor cast to the dtype of another tensor, with the mask of the layer's input."""
    cast = tensor if tensor.dtype == other.dtype else library.tf.cast(tensor, other.dtype)
    return _masked(library, cast, tensor, masks)


def _through(library: Library, tensor: Any, dtype: Any, masks: Mapping[int, Any]) -> Any:
    """Return a tensor whose values are rounded to another dtype; its own dtype is unchanged."""
    tf = library.tf
    return _masked(library, tf.cast(tf.cast(tensor, dtype), tensor.dtype), tensor, masks)


def _masked(library: Library, like: Any, original: Any, masks: Mapping[int, Any]) -> Any:
    """Give a tensor the mask of the original, if it had one, and return it."""
    mask = masks.get(id(original))
    if mask is not None:
        library.set_mask(like, mask)
    return like


@dataclass(eq=False)
class Trace:
    """Additional data about one call, for a diagnosis."""

    entering: list[int] = field(default_factory=list)
    """The numbers of the comparisons of the inputs of the call."""

    producers: list[int] = field(default_factory=list)
    """The numbers of the rows that compute the inputs, directly or through code between them."""

    own: list[int | None] | None = None
    """
    For each output, the number of the comparison of both layers, called with the same rounded
    inputs; None if no input is rounded before the call.
    """

    rounding: list[int | None] | None = None
    """
    The numbers of the comparisons of the reference's layer with exact and with rounded inputs.
    """


class Diagnosis:
    """The traces of a candidate's calls, in the graph that is being traced."""

    def __init__(self, library: Library, comparisons: Comparisons) -> None:
        self.library = library
        self._comparisons = comparisons
        self._rows: dict[Any, int] = {}
        """
        Tensors by name, or by id without a graph, with the row of the innermost call that made
        each.
        """

    def entering(self, row: Row) -> Trace:
        """Return the trace of a call's inputs. This is called before the layer is."""
        trace = Trace()
        reference_inputs, candidate_inputs = (
            self._comparisons.tensors((call.args, call.kwargs))
            for call in (row.reference, row.candidate)
        )
        if len(reference_inputs) == len(candidate_inputs):
            numbers = (
                self._comparisons.number(reference, candidate)
                for reference, candidate in zip(reference_inputs, candidate_inputs)
                if reference is not candidate and is_floating(reference) and is_floating(candidate)
            )
            trace.entering = [number for number in numbers if number is not None]
        trace.producers = self._producers(candidate_inputs)
        return trace

    def record_outputs(self, row: Row, number: int) -> None:
        """Record the outputs of a row's call."""
        tensors = self._computed(self._comparisons.tensors(row.candidate.outputs))
        self._comparisons.hold(*tensors)
        for tensor in tensors:
            self._rows.setdefault(self._key(tensor), number)

    def split(self, trace: Trace, row: Row, isolated: Any) -> None:
        """
        Measure which part of the error of an isolated call is from the rounding of its inputs, and
        which is from the call itself. ``isolated`` are the outputs of that call.
        """
        rounded = repeat_call_rounded(self.library, row.reference, row.candidate)
        if rounded is not None:
            trace.rounding = self._comparisons.each(row.reference.outputs, rounded)
            trace.own = self._comparisons.each(rounded, isolated)

    def _computed(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the tensors without constants, which are not traced."""
        return [tensor for tensor in tensors if not self.library.traces or _is_traced(tensor)]

    def _key(self, tensor: Any) -> Any:
        return tensor.name if self.library.traces else id(tensor)

    def _producers(self, tensors: Sequence[Any]) -> list[int]:
        """
        Return the rows whose outputs these tensors are, or from which they are computed. Without a
        graph, a tensor that no call returned counts as computed from the last call.
        """
        row_numbers: set[int] = set()
        visited: set[Any] = set()
        pending = self._computed(tensors)
        while pending:
            tensor = pending.pop()
            number = self._rows.get(self._key(tensor))
            if number is not None:
                row_numbers.add(number)
            elif not self.library.traces:
                row_numbers.update(list(self._rows.values())[-1:])
            elif tensor.op not in visited:
                visited.add(tensor.op)
                pending += tensor.op.inputs
        return sorted(row_numbers)


def _is_traced(tensor: Any) -> bool:
    """Return whether a tensor is the result of an operation, and not a constant of the model."""
    return hasattr(tensor, "op")


@dataclass(eq=False)
class Row:
    """The measurements of one call of a layer."""

    reference: Call
    candidate: Call
    accumulated: list[int | None] = field(default_factory=list)
    """For each output, the number of its comparison; None if it cannot be compared."""

    isolated: list[int | None] | None = None
    """The same numbers for the reference's inputs; None if the layer was not called with them."""

    inputs: list[str] = field(default_factory=list)
    """The float dtypes of the inputs of the candidate's layer."""

    dtypes: list[tuple[str, str]] = field(default_factory=list)
    shapes: list[list[int | None]] = field(default_factory=list)
    exponents: list[int | None] = field(default_factory=list)
    """For each output, the number of its histogram; None if it has no histogram."""

    trace: Trace | None = None
    """The trace of the call; None without a diagnosis."""


class Pair:
    """Two loaded models, and the measurements to make."""

    def __init__(
        self,
        libraries: tuple[Library, Library],
        models: tuple[Any, Any],
        policies: tuple[str | None, str | None],
        *,
        isolated: bool,
        counts_exponents: bool,
        diagnosed: bool = False,
    ) -> None:
        """
        ``policies`` are the global policies of both models, for layers that a class creates in its
        call.
        """
        self.libraries = libraries
        self.policies = policies
        self.tf = libraries[0].tf
        self.has_graph = libraries[0].traces
        self.reference, self.candidate = models
        self.isolated = isolated
        self.counts_exponents = counts_exponents
        self.diagnosed = diagnosed
        self._function: Any = None
        self._rows: LayerRows | None = None
        self._output_run: OutputRun | None = None
        """The run that compares outputs; None if the layers are compared in the same rows."""

        self._forget()

    def _forget(self) -> None:
        """Forget all calls. Without a graph, each batch makes and compares them again."""
        self.rows: list[Row] = []
        self.only: tuple[list[str], list[str]] = ([], [])
        """The paths of calls that only one of the two models makes."""

        self.traced = "reference"
        """The model that is being traced, or was traced last."""

        self.graph: Any = None
        self._comparisons = Comparisons(self.tf)
        self._diagnosis = (
            Diagnosis(self.libraries[1], self._comparisons) if self.diagnosed else None
        )
        self._histograms: list[Any] = []
        self._steps = Steps()
        self._tapes: list[Tape] = []
        self._again: set[int] = set()
        """The positions of operations of second calls of layers."""

    def trace(self, rows: LayerRows) -> None:
        """
        Trace both models for inputs whose layers are compared in these rows.

        :raises Refused: if the outputs of the models cannot be compared.
        """
        function = self.tf.function(self._call_both, autograph=False, input_signature=[rows.specs])
        self._function = function.get_concrete_function()
        self._rows = rows
        if rows.is_partial:
            self._output_run = OutputRun(self, rows.fed.specs)
        if not self.has_graph:
            batch = next(rows.batches({})) if rows.is_partial else rows.fed.batches[0]
            self._function = _FirstCall(self._function, batch)

    def measure(
        self, fed: FedInputs, step: Callable[[str], None], metrics: TaskMetrics | None = None
    ) -> Measured:
        """
        Return the reductions of every comparison: of outputs over all batches, of layers over their
        rows. The changes of outputs do not include extra batches. ``metrics`` gets the outputs:
        labels belong to the user's inputs, which have no extra batches.
        """
        total, first_nonfinite_rows = measure_batches(
            fed, step, self._output_run or self._function, metrics
        )
        if total is None or self._rows is None:
            raise Refused("inputs", "there are no inputs")
        if self._output_run is not None:
            return self._with_layers(total, self._rows.batches(first_nonfinite_rows))
        changes = total.changes

        def measured(batch: Any) -> Measured:
            vectors, histograms, _ = self._function(batch)
            return Measured(np.asarray(vectors), np.asarray(histograms), changes)

        for extra in measure_extremes(
            fed, total.vectors, measured, lambda numbers: numbers.vectors
        ):
            total = total.merge(extra)
        return total

    def _with_layers(self, outputs: Measured, batches: Iterable[Any]) -> Measured:
        """Return the numbers of the outputs, with those of the layers in other batches."""
        for model in (self.reference, self.candidate):
            forget_states(model)
        total: Measured | None = None
        for batch in batches:
            vectors, histograms, _ = self._function(batch)
            numbers = Measured(np.asarray(vectors), np.asarray(histograms), outputs.changes)
            total = numbers if total is None else total.merge(numbers)
        if total is None:
            raise Refused("inputs", "there are no inputs")
        return Measured(total.vectors, total.histograms, total.changes, outputs.vectors)

    def vectors(self, batch: Any) -> Any:
        """Return the reductions of every comparison for one batch."""
        return np.asarray(self._function(batch)[0])

    def outputs_of_all_rows(self, measured: Measured) -> list[dict[str, Any]]:
        """
        Return, for each output of the model, its shape and its errors in all rows; nothing if the
        layers are compared in all rows, too.
        """
        if self._output_run is None:
            return []
        return [
            {"shape": shape, "accumulated": tensor_errors.to_json(vector)}
            for shape, vector in zip(self._output_run.shapes, measured.outputs)
        ]

    def operations(self) -> list[Any]:
        """
        Return the operations of both models, without those of the second calls of layers that are
        measured separately.
        """
        return [
            operation
            for place, operation in enumerate(self.graph.get_operations() if self.has_graph else [])
            if place not in self._again
        ]

    def drawing_layers(self) -> list[str]:
        """Return the paths of the layers that draw random numbers, which change the outputs."""
        if not self.has_graph:
            return self._tapes[1].drawing_layers
        return drawing_layers(self.graph, self.operations(), self._tapes)

    def layers_of_operations(self) -> dict[str, str]:
        """Return the path of the layer in which each operation was traced, by its name."""
        return layers_of_operations(self.graph, self._tapes)

    def traces(self) -> list[dict[str, Any]]:
        """
        Return, for each row of a diagnosis, when its call began, in which row's call, and which
        rows made its inputs.
        """
        begun = {key: place for place, key in enumerate(self._tapes[1].calls)}
        rows = {row.candidate.key: number for number, row in enumerate(self.rows)}
        return [
            {
                "begun": begun[row.candidate.key],
                "within": rows.get(row.candidate.parent.key)
                if row.candidate.parent is not None
                else None,
                "producers": row.trace.producers,
            }
            for row in self.rows
            if row.trace is not None
        ]

    def output_names(self) -> list[str]:
        """
        Return a name for each tensor of the model's outputs: the name in the model, the key of a
        dict, or otherwise a number.
        """
        outputs = self._tapes[1].calls[self.rows[-1].candidate.key].outputs
        count = len(self._comparisons.tensors(outputs))
        return model_calls.output_names(self.candidate, outputs, count) or [
            str(place) for place in range(count)
        ]

    def _call_both(self, inputs: Any) -> Any:
        """Call both models; return all comparisons, the histograms, and both models' outputs."""
        if not self.has_graph:
            self._forget()
        first = Tape(self.libraries[0], self.reference, layer_paths_by_id(self.reference))
        with first.watching(), self.libraries[0].global_policy(self.policies[0]):
            model_calls.call(self.reference, inputs)
        self.traced = "candidate"
        end = first.size()
        names = layer_paths_by_id(self.candidate, self.reference)
        second = Tape(
            self.libraries[1],
            self.candidate,
            names,
            lambda call, make: self._compare_call(first, second, call, make),
        )
        with second.watching(), self.libraries[1].global_policy(self.policies[1]):
            model_calls.call(self.candidate, inputs)
        last = self._model_call()
        self.only = (_missing(first, second), _missing(second, first))
        self._tapes, self.graph = [first, second], first.graph
        if self.has_graph and _in_step(first, second):  # else the models would wait for each other
            self._steps.hold(self.tf, self.graph.get_operations(), end)
        return (
            self.tf.stack(self._comparisons.vectors),
            self.tf.stack(self._histograms)
            if self._histograms
            else self.tf.zeros([0, EXPONENT_BINS], self.tf.float64),
            [
                [
                    self._comparisons.widened(tensor)
                    for tensor in self._comparisons.tensors(call.outputs)
                ]
                for call in (last.reference, last.candidate)
            ],
        )

    def _compare_call(self, first: Tape, second: Tape, call: Call, make: Callable[..., Any]) -> Any:
        """
        Make a call of the candidate, compare it with the reference's call, and return its outputs.
        """
        other = first.calls.get(call.key)
        if other is None or (
            type(other.layer).__name__ != type(call.layer).__name__ and not second.is_outermost
        ):
            return second.make_call(call, make)
        row = Row(other, call)
        if self._diagnosis is not None:
            row.trace = self._diagnosis.entering(row)
        with self.tf.control_dependencies(self._steps.awaited(other)):
            outputs = second.make_call(call, make)
            self._describe(row)
            row.accumulated = self._comparisons.each(other.outputs, outputs)
            if self.counts_exponents:
                row.exponents = [
                    self._histogram(tensor) for tensor in self._comparisons.tensors(other.outputs)
                ]
            if self.isolated and can_be_called_again(second, call):
                row.isolated = self._compare_isolated(second, row, make)
        self.rows.append(row)
        if self._diagnosis is not None:
            self._diagnosis.record_outputs(row, len(self.rows) - 1)
        measured = [
            number for number in (*row.accumulated, *(row.isolated or [])) if number is not None
        ]
        if measured and self.has_graph:
            self._steps.compared(other, [self._comparisons.vectors[number] for number in measured])
        return outputs

    def _compare_isolated(
        self, tape: Tape, row: Row, make: Callable[..., Any]
    ) -> list[int | None] | None:
        """
        Call the candidate's layer again on the reference's inputs, and return the numbers of the
        comparisons; None if the layer cannot be called again.
        """
        start = tape.size()
        with tape.pause():
            outputs = repeat_call(self.libraries[1], row.reference, row.candidate, make)
            numbers = (
                None if outputs is None else self._comparisons.each(row.reference.outputs, outputs)
            )
            if self._diagnosis is not None and row.trace is not None and outputs is not None:
                with self.libraries[0].global_policy(self.policies[0]):
                    self._diagnosis.split(row.trace, row, outputs)
        self._again.update(range(start, tape.size()))
        return numbers

    def _histogram(self, tensor: Any) -> int | None:
        """Count a tensor's values by exponent, and return the number of the histogram."""
        if not is_floating(tensor):
            return None
        self._histograms.append(count_exponents(self.tf, tensor))
        return len(self._histograms) - 1

    def _describe(self, row: Row) -> None:
        """Record the dtypes and shapes of the inputs and outputs of the two calls."""
        tensors, call = self._comparisons.tensors, row.candidate
        row.inputs = sorted(
            {
                dtype_name(tensor)
                for tensor in tensors((call.args, call.kwargs))
                if is_floating(tensor)
            }
        )
        pairs = tensors(row.reference.outputs), tensors(call.outputs)
        if len(pairs[0]) == len(pairs[1]):
            row.dtypes = [
                (dtype_name(reference), dtype_name(candidate))
                for reference, candidate in zip(*pairs)
            ]
            row.shapes = [tensor_shape(tensor) for tensor in pairs[0]]

    def _model_call(self) -> Row:
        """
        Return the calls of the models themselves, which end after all others.

        All of their outputs must be compared, because the verdict is about them.

        :raises Refused: if the models have no outputs, or outputs that differ in number or shape.
        """
        last = self.rows[-1]
        if not last.accumulated or None in last.accumulated:
            calls = (last.reference, last.candidate)
            shapes = (
                ", ".join(str(tensor.shape) for tensor in self._comparisons.tensors(call.outputs))
                or "nothing"
                for call in calls
            )
            raise Refused(
                "outputs",
                "the reference returns {} and the candidate {}, which cannot be compared".format(
                    *shapes
                ),
            )
        return last


class _FirstCall:
    """A function that has already been called with one batch, whose result is used once."""

    def __init__(self, function: Callable[[Any], Any], batch: Any) -> None:
        self._function = function
        self._first: tuple[Any, Any] | None = (batch, function(batch))

    def __call__(self, batch: Any) -> Any:
        first, self._first = self._first, None
        return first[1] if first is not None and first[0] is batch else self._function(batch)


def _in_step(tape: Tape, other: Tape) -> bool:
    """
    Return whether two models make their common calls in the same order; Keras 3 casts between
    layers only under some policies.
    """
    return [key for key in tape.calls if key in other.calls] == [
        key for key in other.calls if key in tape.calls
    ]


def _missing(tape: Tape, other: Tape) -> list[str]:
    """
    Return the layers that one model calls and the other does not, without the casts that Keras 3
    adds between them.
    """
    return sorted(
        {call.path for call in tape.calls.values() if id(call.layer) in tape.names}
        - {call.path for call in other.calls.values()}
    )
