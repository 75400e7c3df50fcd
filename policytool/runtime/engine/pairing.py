"""
A reference and a candidate traced as one function, whose results are numbers about each layer and no activations.

The candidate's layers are compared with the reference's as they are called: what comes out when each runs from end to end (accumulated), and what comes out
when the candidate's layer gets the inputs that the reference's layer had (isolated). Control dependencies keep the two in step, so that an activation is
freed once it was compared and used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import serving
from ..library import Refused
from . import agreeing, measuring
from .tapping import MASK, Tape, named

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

    from ..library import Library
    from .tapping import Call

AHEAD = 2
"""How many layers either model may run ahead of the comparisons: enough for two threads, and few activations to hold."""

_NO_STEP = ("Const", "NoOp", "Placeholder", "ReadVariableOp")
"""Operations that wait for nothing: they make no activation, or are made once."""


class Row:
    """What is measured of one call of a layer."""

    def __init__(self, call: Call, other: Call) -> None:
        self.reference = call
        self.candidate = other
        self.accumulated: list[int | None] = []
        """For each output, the number of its comparison; None for what cannot be compared."""

        self.isolated: list[int | None] | None = None
        """The same; None where the layer was not called with the reference's inputs."""

        self.inputs: list[str] = []
        """The float dtypes that the candidate's layer takes."""

        self.dtypes: list[tuple[str, str]] = []
        self.shapes: list[list[int | None]] = []


class Measured:
    """The numbers of one run: a row for each comparison, and one for each of the model's outputs that may hold scores of classes."""

    def __init__(self, vectors: Any, agreements: Any) -> None:
        self.vectors = vectors
        self.agreements = agreements

    def merged(self, other: Measured) -> Measured:
        """Return the numbers over the examples of both."""
        return Measured(np.stack([measuring.merged(*pair) for pair in zip(self.vectors, other.vectors)]), self.agreements + other.agreements)


class Pair:
    """Two live models, and what to measure of them."""

    def __init__(self, libraries: tuple[Library, Library], models: tuple[Any, Any], policies: tuple[str | None, str | None], *, isolated: bool) -> None:
        """``policies`` are the global ones that each is called under: layers that a class makes in its call take them."""
        self.libraries = libraries
        self.policies = policies
        self.tf = libraries[0].tf
        self.reference, self.candidate = models
        self.isolated = isolated
        self.rows: list[Row] = []
        self.only: tuple[list[str], list[str]] = ([], [])
        """The paths of calls that one of the two makes and the other does not."""

        self._vectors: list[Any] = []
        self._known: dict[tuple[int, int, bool], int] = {}
        self._held: list[Any] = []
        """What keeps the identities in use for as long as they are compared."""

        self._marks: list[tuple[Call, Any]] = []
        """Calls of the reference with no others in them, and what is done once each was compared."""

        self.traced = "reference"
        """Which of the two is being traced, or was at last."""

        self._function: Any = None
        self.graph: Any = None

        self._tapes: list[Tape] = []
        self._places: dict[str, int] = {}
        self._again: set[int] = set()
        """The places of operations that were made when a layer was called a second time."""

    def trace(self, specs: Any) -> None:
        """Trace both models for inputs of these specs."""

        def both(inputs: Any) -> Any:
            graph = self.tf.compat.v1.get_default_graph()
            first = Tape(self.libraries[0], self.reference, named(self.reference))
            with first.watching(), self.libraries[0].under(self.policies[0]):
                serving.call(self.reference, inputs)
            self.traced = "candidate"
            names = named(self.candidate, self.reference)
            second = Tape(self.libraries[1], self.candidate, names, lambda call, make: self._compared(first, second, call, make))
            with second.watching(), self.libraries[1].under(self.policies[1]):
                serving.call(self.candidate, inputs)
            self._check_outputs()
            self.only = (_missing(first, second), _missing(second, first))
            self._tapes = [first, second]
            if list(first.calls) == list(second.calls):  # else one would wait for what waits for it
                self._keep_in_step(graph)
            self.graph = graph
            return self.tf.stack(self._vectors), self._agreements()

        function = self.tf.function(both, autograph=False, input_signature=[specs])
        self._function = function.get_concrete_function()

    def measure(self, batches: Sequence[Any], step: Callable[[str], None]) -> Measured:
        """Return the reductions of every comparison over all batches."""
        total: Measured | None = None
        for number, batch in enumerate(batches):
            step("batch {} of {}".format(number + 1, len(batches)))
            found = Measured(*(part.numpy() for part in self._function(batch)))
            total = found if total is None else total.merged(found)
        if total is None:
            raise Refused("inputs", "there are no inputs")
        return total

    def operations(self) -> list[Any]:
        """Return what either model computes, without what is computed a second time to measure a layer by itself."""
        return [operation for place, operation in enumerate(self.graph.get_operations()) if place not in self._again]

    def layer_of(self, name: str) -> str | None:
        """Return the path of the innermost layer that an operation of the graph was traced in; None for what no layer did."""
        if not self._places:
            self._places = {operation.name: place for place, operation in enumerate(self.graph.get_operations())}
        place = self._places[name]
        around = [call for tape in self._tapes for call in tape.calls.values() if call.start <= place < call.stop]
        return max(around, key=lambda call: call.start).path if around else None

    def output_names(self) -> list[str]:
        """Return a name for each tensor of the model's own outputs: the model's names, the keys of a dict, else numbers."""
        outputs = self._tapes[1].calls[self.rows[-1].candidate.key].outputs
        flat = self._tensors(outputs)
        names = sorted(outputs) if isinstance(outputs, dict) else list(getattr(self.candidate, "output_names", None) or [])
        return [str(name) for name in names] if len(names) == len(flat) else [str(place) for place in range(len(flat))]

    def _compared(self, first: Tape, second: Tape, call: Call, make: Callable[..., Any]) -> Any:
        """Make a call of the candidate's, compare it with the reference's, and return what it made."""
        other = first.calls.get(call.key)
        if other is None or (type(other.layer).__name__ != type(call.layer).__name__ and not second.is_outermost):
            return second.made(call, make)
        row = Row(other, call)
        row.inputs = sorted({one.dtype.name for one in self._tensors((call.args, call.kwargs)) if one.dtype.is_floating})
        with self.tf.control_dependencies(self._awaited(other)):
            made = second.made(call, make)
            row.accumulated = self._outputs(row, made)
            if self.isolated and not _is_model(self.libraries[1], call.layer) and not _remembers(second, call):
                with second.pause():
                    start = second.size()
                    row.isolated = self._alone(row, make)
                    self._again.update(range(start, second.size()))
        self.rows.append(row)
        measured = [number for number in (*row.accumulated, *(row.isolated or [])) if number is not None]
        if measured and not other.children:
            self._marks.append((other, self._vectors[measured[-1]].op))
        return made

    def _awaited(self, call: Call) -> list[Any]:
        """Return what has to be done before the candidate makes a call."""
        return [self._marks[-AHEAD][1]] if not call.children and len(self._marks) >= AHEAD else []

    def _check_outputs(self) -> None:
        """
        Make sure that each of the models' own outputs was compared, because a verdict is about them.

        :raises Refused: where there are none, or others in number or shape.
        """
        last = self.rows[-1]  # the models' own calls, which end after all others
        if not last.accumulated or None in last.accumulated:
            shapes = (", ".join(str(one.shape) for one in self._tensors(call.outputs)) or "nothing" for call in (last.reference, last.candidate))
            raise Refused("outputs", "the reference gives {} and the candidate {}, which cannot be compared".format(*shapes))

    def _agreements(self) -> Any:
        """Return, for each of the model's own outputs, in how many rows both models find the same class; zeros where it holds none."""
        last = self.rows[-1]
        pairs = zip(self._tensors(last.reference.outputs), self._tensors(last.candidate.outputs))
        none = self.tf.zeros([len(agreeing.FIELDS)], self.tf.float64)
        return self.tf.stack([agreeing.agreement(self.tf, *pair) if all(agreeing.applies(one) for one in pair) else none for pair in pairs])

    def _outputs(self, row: Row, made: Any) -> list[int | None]:
        flat = self._tensors(row.reference.outputs), self._tensors(made)
        if len(flat[0]) != len(flat[1]):
            return []
        row.dtypes = [(one.dtype.name, other.dtype.name) for one, other in zip(*flat)]
        row.shapes = [one.shape.as_list() if one.shape.rank is not None else [] for one in flat[0]]
        return [self._comparison(one, other, full=True) for one, other in zip(*flat)]

    def _alone(self, row: Row, make: Callable[..., Any]) -> list[int | None] | None:
        """
        Call the candidate's layer with the tensors that the reference's got, in the dtypes that the candidate's gets, and compare.

        All other arguments are the candidate's own: Keras 2 passes ``training`` and ``mask`` on where Keras 3 does not, and Keras 3 an absent mask under some
        policies alone.
        """
        nest, is_tensor = self.tf.nest, self.tf.is_tensor
        own = (row.candidate.args, row.candidate.kwargs)
        flat = nest.flatten(own)
        given = [one for one in nest.flatten((row.reference.args, row.reference.kwargs)) if is_tensor(one)]
        if len(given) != sum(map(is_tensor, flat)):
            return None
        masks, tensors = row.reference.masks, iter(given)
        args, kwargs = nest.pack_sequence_as(own, [self._like(next(tensors), one, masks) if is_tensor(one) else one for one in flat])
        outputs = self._tensors(row.reference.outputs), self._tensors(make(*args, **kwargs))
        return [self._comparison(one, other, full=False) for one, other in zip(*outputs)]

    def _like(self, given: Any, own: Any, masks: Mapping[int, Any]) -> Any:
        """Return a tensor in another's dtype, with the mask that it had when a layer was called with it."""
        like = given if given.dtype == own.dtype else self.tf.cast(given, own.dtype)
        mask = masks.get(id(given))
        if mask is not None:
            setattr(like, MASK, mask)
        return like

    def _comparison(self, one: Any, other: Any, *, full: bool) -> int | None:
        if not one.shape.is_compatible_with(other.shape):
            return None
        key = (id(one), id(other), full)
        if key not in self._known:  # a model gives what its last layer gives
            self._vectors.append(measuring.compared(self.tf, one, other, full=full))
            self._held += [one, other]
            self._known[key] = len(self._vectors) - 1
        return self._known[key]

    def _tensors(self, outputs: Any) -> list[Any]:
        return [one for one in self.tf.nest.flatten(outputs, expand_composites=True) if self.tf.is_tensor(one)]

    def _keep_in_step(self, graph: Any) -> None:
        """
        Let each of the reference's layers wait until the layer some places before it was compared.

        TensorFlow runs what has effects, such as assertions, in the order of the trace: all of the reference's come first, and what leads to them cannot wait.
        """
        operations = graph.get_operations()
        start = next(iter(self._tapes[1].calls.values())).start
        last = max((place for place, operation in enumerate(operations[:start]) if _has_effects(self.tf, operation)), default=-1)
        for (call, _), (_, mark) in zip(self._marks[AHEAD:], self._marks):
            inside = set(operations[call.start : call.stop]) if call.start > last else set()
            for operation in inside:
                if operation.type not in _NO_STEP and any(tensor.op not in inside for tensor in operation.inputs):
                    operation._add_control_input(mark)  # noqa: SLF001 - the reference is traced first, when there is nothing yet to wait for


def _has_effects(tf: Any, operation: Any) -> bool:
    """Return whether a function runs an operation in the order of its trace; one on a variable or a table is in order with others on the same alone."""
    return bool(operation.op_def.is_stateful) and not any(tensor.dtype == tf.resource for tensor in operation.inputs)


def _remembers(tape: Tape, call: Call) -> bool:
    """Return whether a layer carries a state from call to call: a second call would change what it makes of the next batch."""
    made = tape.graph.get_operations()[call.start : call.stop]
    return bool(getattr(call.layer, "stateful", False)) or any(one.type.startswith(("Assign", "ResourceScatter")) for one in made)


def _missing(one: Tape, other: Tape) -> list[str]:
    """Return the layers that one model calls and the other does not; not the casts that Keras 3 puts between them."""
    return sorted({call.path for call in one.calls.values() if id(call.layer) in one.names} - {call.path for call in other.calls.values()})


def _is_model(library: Library, layer: Any) -> bool:
    return isinstance(layer, library.keras.Model)
