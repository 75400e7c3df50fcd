"""
Recorded runs: what a model computed, in a file, and the comparison of another run with it.

A recording has the outputs, and for each tensor that a layer returns its counts, a sample and a
sketch of its values. The norm of the difference of two sketches estimates the error of a layer from
end to end. The origin of an error is the first call that returns other values although its inputs
are the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping  # noqa: TC003  # for the codec
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from policytool.numerics.check_results.checks import (  # noqa: TC001  # for the codec
    CheckInputs,
    CheckSide,
    TensorFlowDevice,
)
from policytool.numerics.check_results.metrics import CallOfLayer, TensorReductions
from policytool.numerics.check_results.verdicts import Origin
from policytool.numerics.verdicts.answers import file_paths
from policytool.numerics.verdicts.tolerances import (
    RoundingOperations,
    is_newly_nonfinite,
    recorded_tolerances,
)
from policytool.support.grouping import EachOnce, group_pairs
from policytool.support.text import codec, jsontext
from policytool.support.text.phrases import join_and_count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.metrics import LayerCall

_MASK: Final = "mask"
_SKETCH: Final = 128
_SAMPLE: Final = 64
_NAMED_LAYERS: Final = 3
"""The most layers that a sentence names."""


class RecordedTensor(Struct, frozen=True, kw_only=True):
    """The record of a tensor that a call of a layer returns, or of its mask."""

    kind: str
    """``value`` or ``mask``."""

    dtype: str
    shape: tuple[int | None, ...] | None
    record: int
    """The row of the tensor in the arrays ``layers/sketches`` and ``layers/samples``."""

    elements: int
    nan: int
    infinite: int
    range: tuple[float, float] | None
    """The least and the largest finite value; None if no value is finite."""

    squares: float
    """The sum of the squares of the finite values."""

    digest: str
    """The SHA-256 digest of the values, rounded to 12 bits."""

    exponents: tuple[tuple[int, int], ...]
    """The binary exponents of the values that are normal in float32, each with its count."""


class RecordedCall(CallOfLayer, frozen=True, kw_only=True):
    """One call of a layer in the model that was recorded."""

    compute: str | None
    within: tuple[str, ...]
    begun: int
    """The number of calls that began before this one."""

    parent: int | None
    """The number of the call that made this call."""

    producers: tuple[int, ...]
    """The numbers of the calls that computed the inputs."""

    weights: str | None = None
    """
    The sum of the hashes of the layer's weights and of those of the layers in it; None if it has no
    weights, or if an older release of policytool recorded it.
    """

    outputs: tuple[RecordedTensor, ...]


CallPair: TypeAlias = tuple[RecordedCall, RecordedCall]
"""The same call in the reference and in the candidate."""


class RecordedOutput(Struct, frozen=True, kw_only=True):
    """One output of the model."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    activation: str | None


class RecordedRun(Struct, frozen=True, kw_only=True):
    """The JSON text of a recording."""

    tool: str
    """The release of policytool that recorded the run."""

    side: CheckSide
    versions: Mapping[str, str]
    device: TensorFlowDevice
    seed: int
    inputs: CheckInputs
    outputs: tuple[RecordedOutput, ...]
    calls: tuple[RecordedCall, ...]
    """The calls in the order in which they ended; the model is the last."""

    random: tuple[str, ...]
    weights: str | None = None
    """The sum of the hashes of the weights of a graph; None for others."""

    rounding: tuple[RoundingOperations, ...] = ()
    """The operations of a graph that round; empty for others."""


class Recording(Struct, frozen=True, kw_only=True):
    """A recorded run with its arrays by name."""

    run: RecordedRun
    arrays: Mapping[str, NDArray[Any]]

    def numbered(self, group: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of a group by their number."""
        prefix = f"{group}/"
        return {
            name.removeprefix(prefix): array
            for name, array in self.arrays.items()
            if name.startswith(prefix)
        }


def read(path: Path) -> Recording:
    """
    Return the recording in a file.

    :raises ModelFileError: if the file cannot be read, or is not a valid recording.
    """
    from policytool.formats.hdf5 import recordings as files  # h5py, which other checks do not need

    with files.reading(path) as (probe, stored):
        try:
            value, _ = jsontext.parse(stored.text.encode())
            run = codec.read(RecordedRun, value)
        except (KeyError, TypeError, ValueError, jsontext.JsonError) as error:
            raise files.damaged(probe, f"its text is invalid: {error}") from error
        names = [
            *(f"inputs/{place}" for place in range(len(run.inputs.inputs))),
            *(f"outputs/{place}" for place in range(len(run.outputs))),
            *(("layers/sketches", "layers/samples") if run.calls else ()),
        ]
        recording = Recording(run=run, arrays={name: stored.array(name) for name in names})
        if problem := _problem(recording):
            raise files.damaged(probe, problem)
        return recording


def _problem(recording: Recording) -> str | None:
    """Return how the parts of a recording contradict each other; None if they do not."""
    run, arrays = recording.run, recording.arrays
    if not run.outputs or not run.inputs.inputs or run.inputs.batch_size < 1:
        return "it has no inputs or no outputs"
    for output, array in zip(run.outputs, recording.numbered("outputs").values(), strict=True):
        if array.ndim != len(output.shape):
            return f"output {output.name} has the shape {array.shape}"
    if not run.calls:
        return None
    records = [tensor.record for call in run.calls for tensor in call.outputs]
    count = len(arrays["layers/sketches"])
    if arrays["layers/sketches"].shape != (count, _SKETCH) or arrays["layers/samples"].shape != (
        count,
        _SAMPLE,
    ):
        return "the sketches and samples have other shapes"
    calls = range(len(run.calls))
    if not (
        all(0 <= record < count for record in records)
        and all(producer in calls for call in run.calls for producer in call.producers)
        and all(call.parent is None or call.parent in calls for call in run.calls)
    ):
        return "it refers to records or calls that it lacks"
    return None


def write(path: Path, recording: Recording) -> None:
    """
    Write a recording to a file.

    :raises ModelFileError: if it cannot be written.
    """
    from policytool.formats.hdf5 import recordings as files

    files.write(path, codec.encode(recording.run), recording.arrays)


def compared_run(
    reference: Recording,
    candidate: Recording,
    pairs: Sequence[CallPair],
    compared: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """
    Return the run in which a candidate is compared with a reference, as the child process returns
    the run of a check.

    :param pairs: the calls that both runs have
    :param compared: the errors and changes of each output
    """
    numbers = {
        id(first): number for number, (first, _) in enumerate(pairs)
    }  # of calls of the reference
    paired = {id(call) for pair in pairs for call in pair}
    calls = [
        _call(first, second, (reference, candidate), reference.run.calls, numbers)
        for first, second in pairs
    ]
    return {
        **_empty_run(candidate.run),
        "inputs": _json(reference.run.inputs),
        "calls": calls,
        "outputs": [
            {
                "name": output.name,
                "shape": output.shape,
                "dtype_reference": output.dtype,
                "dtype_candidate": candidate.run.outputs[errors["output"]].dtype,
                "activation": output.activation,
                "accumulated": errors["accumulated"],
                "isolated": None,
                "tf32": None,
                "changes": errors["changes"],
            }
            for output, errors in zip(reference.run.outputs, compared, strict=True)
        ],
        "unmatched": sorted(
            {
                call.path
                for call in (*reference.run.calls, *candidate.run.calls)
                if id(call) not in paired
            }
        ),
        "random": sorted({*reference.run.random, *candidate.run.random}),
    }


def recorded_run(recording: Recording) -> dict[str, Any]:
    """Return the run that was recorded, without a comparison."""
    return {**_empty_run(recording.run), "random": recording.run.random}


def _empty_run(run: RecordedRun) -> dict[str, Any]:
    return {
        "device": _json(run.device),
        "signature": None,
        "inputs": _json(run.inputs),
        "calls": [],
        "outputs": [],
        "missing": [],
        "fallbacks": [],
        "unmatched": [],
        "gradients": None,
        "timings": {},
    }


def _json(value: object) -> Any:  # noqa: ANN401
    return json.loads(codec.encode(value))


def pair_calls(reference: RecordedRun, candidate: RecordedRun) -> list[CallPair]:
    """Return the calls that both runs have, in the order of the reference."""
    if not reference.calls or not candidate.calls:
        return []
    named, stored = (
        [(call.path, call.class_name) for call in run.calls] for run in (candidate, reference)
    )
    paths = file_paths(named, [stored[-1], *stored[:-1]])
    others = {(paths.get(call.path, call.path), call.number): call for call in candidate.calls}
    return [
        (call, other)
        for call in reference.calls
        if (other := others.get((call.path, call.number))) is not None
    ]


def _call(
    first: RecordedCall,
    second: RecordedCall,
    recordings: tuple[Recording, Recording],
    calls: tuple[RecordedCall, ...],
    numbers: Mapping[int, int],
) -> dict[str, Any]:
    """Return a call of both runs, as the child process returns a call of a check."""
    tensors = [
        [tensor for tensor in call.outputs if tensor.kind != _MASK] for call in (first, second)
    ]
    are_paired = len(tensors[0]) == len(tensors[1])
    outputs = [
        {
            "shape": pair[0].shape or (),
            "dtype_reference": pair[0].dtype,
            "dtype_candidate": pair[1].dtype,
            "accumulated": _errors(pair, recordings) if are_paired else None,
            "isolated": None,
            "tf32": None,
            "exponents": pair[0].exponents,
        }
        for pair in (
            zip(*tensors, strict=True)
            if are_paired
            else ((tensor, tensor) for tensor in tensors[0])
        )
    ]
    parent = first.parent
    return {
        "path": first.path,
        "class_name": second.class_name,
        "number": first.number,
        "compute_reference": first.compute,
        "compute_candidate": second.compute,
        "inputs": second.inputs,
        "depth": max(first.depth, second.depth),
        "children": min(first.children, second.children),
        "within": sorted({*first.within, *second.within}),
        "is_model": first.is_model,
        "outputs": outputs,
        "trace": {
            "begun": first.begun,
            "within": numbers.get(id(calls[parent])) if parent is not None else None,
            "producers": [
                numbers[id(calls[number])]
                for number in first.producers
                if id(calls[number]) in numbers
            ],
            "gets_nonfinite": False,
        },
    }


def _errors(
    pair: tuple[RecordedTensor, RecordedTensor], recordings: tuple[Recording, Recording]
) -> dict[str, Any] | None:
    """Return the estimated errors of a tensor; None if the numbers of values differ."""
    first, second = pair
    if first.elements != second.elements:
        return None
    is_float = "float" in first.dtype and "float" in second.dtype
    nothing = dict.fromkeys(TensorReductions.__struct_fields__)
    if not is_float:
        return {
            **nothing,
            "elements": first.elements,
            "differing": int(first.digest != second.digest),
        }
    sketches, samples = (
        [
            recording.arrays[f"layers/{name}"][tensor.record].astype("float64")
            for recording, tensor in zip(recordings, pair, strict=True)
        ]
        for name in ("sketches", "samples")
    )
    distance = sketches[0] - sketches[1]
    lost = max(second.nan + second.infinite - first.nan - first.infinite, 0)
    differences = abs(samples[0] - samples[1])
    place = max(
        range(len(differences)),
        key=lambda index: differences[index] if differences[index] >= 0 else -1.0,
    )
    has_pair = math.isfinite(differences[place]) and differences[place] > 0
    return {
        **nothing,
        "elements": first.elements,
        "squared_error": float((distance * distance).sum()),
        "squared_reference": first.squares,
        "squared_candidate": second.squares,
        "overflowed": lost,
        "nan_reference": first.nan,
        "nan_candidate": second.nan,
        "infinite_reference": first.infinite,
        "infinite_candidate": second.infinite,
        "largest_reference": _largest(first),
        "largest_candidate": _largest(second),
        "largest_error": float(differences[place]) if has_pair else None,
        "reference_at_largest": float(samples[0][place]) if has_pair else None,
        "candidate_at_largest": float(samples[1][place]) if has_pair else None,
    }


def _largest(tensor: RecordedTensor) -> float:
    return max(map(abs, tensor.range), default=0.0) if tensor.range is not None else 0.0


def changed_weights(
    reference: RecordedRun, candidate: RecordedRun, pairs: Sequence[CallPair]
) -> tuple[str, ...] | None:
    """
    Return the paths of the layers whose weights differ, without layers around them; empty if a
    graph has other weights. None if no weights differ, or if it is not known.
    """
    changed = [
        first
        for first, second in pairs
        if None not in {first.weights, second.weights} and first.weights != second.weights
    ]
    around: set[int] = set()
    numbers = {id(call): number for number, call in enumerate(reference.calls)}
    for call in changed:
        parent = call.parent
        while parent is not None and parent not in around:
            around.add(parent)
            parent = reference.calls[parent].parent
    paths = dict.fromkeys(call.path for call in changed if numbers[id(call)] not in around)
    if paths:
        return tuple(paths)
    is_graph = not reference.calls and not candidate.calls
    sums = {reference.weights, candidate.weights}
    return () if is_graph and None not in sums and len(sums) > 1 else None


def changed_weights_words(paths: Sequence[str]) -> str:
    """Return a sentence on the layers whose weights differ; empty for a graph."""
    if not paths:
        return "the stored weights differ from those of the recorded run"
    if len(paths) == 1:
        return f"the stored weights of layer {paths[0]} differ from those of the recorded run"
    return (
        f"the stored weights of {len(paths):,} layers ({join_and_count(paths, _NAMED_LAYERS)}) "
        "differ from those of the recorded run, as after training"
    )


def dtype_changes(pairs: Sequence[CallPair]) -> list[str]:
    """Return a sentence on the first call that computes in another dtype, if there is one."""
    return [
        f"layer {first.path} ({first.class_name}) is the first that computes in another dtype: "
        f"{second.compute} instead of {first.compute}"
        for first, second in pairs
        if first.compute != second.compute and not first.is_model
    ][:1]


def origin(run: CheckRun, pairs: Sequence[CallPair], changed: Sequence[str] = ()) -> Origin | None:
    """
    Return the first call that returns different values than rounding explains, or the call that
    computes its mask; None if there is no such call.

    A call whose values differ, but not those of the calls that use them, is the origin only if
    there is no other: a conversion may move the activation of a layer to another layer.

    :param changed: the layers with other weights, whose errors rounding does not explain
    """
    tolerances = [
        0.0 if call.path in changed else tolerance
        for call, tolerance in zip(run.calls, recorded_tolerances(run.calls), strict=True)
    ]
    departing = {
        place: None
        for place, (call, tolerance) in enumerate(zip(run.calls, tolerances, strict=True))
        if _departs(call, tolerance)
    }
    if not departing:
        return None
    users = group_pairs(
        (producer, place)
        for place, call in enumerate(run.calls)
        if call.trace is not None
        for producer in call.trace.producers
    )
    place = next(
        (
            place
            for place in departing
            if place not in users
            or run.calls[place].path in changed
            or not departing.keys().isdisjoint(users[place])
        ),
        next(iter(departing)),
    )
    call = _mask_origin(run, place, pairs) or run.calls[place]
    return Origin(
        path=call.place,
        class_name=call.class_name,
        in_code=call.children > 0,
        seen_in=None,
        nonfinite=any(is_newly_nonfinite(output.accumulated) for output in call.outputs),
    )


def _departs(call: LayerCall, tolerance: float) -> bool:
    """Return whether the values of a call differ by more than rounding explains."""
    return any(
        output.accumulated is None
        or bool(output.accumulated.differing)
        or is_newly_nonfinite(output.accumulated)
        or (output.accumulated.relative or 0.0) > tolerance
        for output in call.outputs
    )


def _mask_origin(run: CheckRun, place: int, pairs: Sequence[CallPair]) -> LayerCall | None:
    """
    Return the first call with another mask among those that compute the inputs of a call; None if
    all masks are the same.
    """
    masks = {(first.path, first.number): (_masks(first), _masks(second)) for first, second in pairs}
    walk = EachOnce([place])
    for number in walk:
        trace = run.calls[number].trace
        walk.add(trace.producers if trace is not None else ())
    return next(
        (
            run.calls[number]
            for number in sorted(walk.visited - {place})
            if len(set(masks[run.calls[number].path, run.calls[number].number])) > 1
        ),
        None,
    )


def _masks(call: RecordedCall) -> tuple[str, ...]:
    return tuple(tensor.digest for tensor in call.outputs if tensor.kind == _MASK)
