"""
Reads the answers of the child process, and translates their layer paths to the paths in the file.

Keras numbers the layers that a class creates without names, and counts all layers of the process:
``net/dense_2`` in the file runs as ``net_1/dense_5``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from policytool.numerics.check_results import checks, gradients, metrics
from policytool.numerics.check_results.checks import CheckRun
from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall
from policytool.numerics.verdicts import safety
from policytool.numerics.verdicts.output_kinds import check_names
from policytool.numerics.verdicts.task_metric import metric_from_json
from policytool.numerics.verdicts.tolerances import judge_run
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policytool.model.loaded_model import LoadedModel
    from policytool.numerics.check_results.metrics import TaskMetric
    from policytool.numerics.verdicts.safety import SafetyRule
    from policytool.numerics.verdicts.tolerances import Tolerances

    Named = tuple[str, str | None]
    """A path, and the class of the layer there; None if it is not known."""


_ERRORS: Final = ("accumulated", "isolated", "own", "rounding", "tf32")
"""The errors of a tensor, which the child returns as sums and counts."""


def runs_from_json(
    records: Sequence[Mapping[str, Any]],
    tolerances: Tolerances,
    rule: SafetyRule,
    max_drop: float | None = None,
) -> tuple[CheckRun, ...]:
    """
    Return the measurements and verdicts of each device and signature.

    :raises UsageError: if a tolerance matches nothing in any run, or two tolerances match the same
        name.
    """
    if not all(record["missing"] for record in records):  # runs that could not start have no names
        tolerances.check(
            [
                name
                for record in records
                for name in (
                    *(output["name"] for output in record["outputs"]),
                    *(call["path"] for call in record["calls"]),
                )
            ]
        )
        check_names(
            rule.kinds, [output["name"] or "" for record in records for output in record["outputs"]]
        )
    return tuple(
        _run(record, tolerances, rule, metric_from_json(record.get("metric"), max_drop))
        for record in records
    )


def _run(
    record: Mapping[str, Any], tolerances: Tolerances, rule: SafetyRule, metric: TaskMetric | None
) -> CheckRun:
    """Return the measurements and the verdict of a run."""
    calls = tuple(_call(call) for call in record["calls"])
    outputs = tuple(_output(output) for output in record["outputs"])
    return CheckRun(
        device=codec.read(checks.TensorFlowDevice, record["device"]),
        signature=record["signature"],
        inputs=codec.read(checks.CheckInputs, record["inputs"]),
        calls=calls,
        outputs=outputs,
        verdict=replace(judge_run(calls, outputs, tolerances), metric=metric),
        answers=safety.answer_outputs(outputs, rule, metric),
        rewrite=codec.read(checks.GraphRewrite, record["rewrite"])
        if record.get("rewrite") is not None
        else None,
        fallbacks=tuple(codec.read(checks.MissingKernel, kernel) for kernel in record["fallbacks"]),
        missing=tuple(codec.read(checks.MissingKernel, kernel) for kernel in record["missing"]),
        gradients=gradients.gradients_from_json(record["gradients"])
        if record["gradients"] is not None
        else None,
        timings={
            name: codec.read(checks.Timing, timing) for name, timing in record["timings"].items()
        },
        unmatched=tuple(record["unmatched"]),
        random=tuple(record.get("random", ())),
        aliases=tuple(record.get("aliases", ())),
        overflow_probe=codec.read(checks.OverflowProbe, record["overflow_probe"])
        if record.get("overflow_probe") is not None
        else None,
    )


def _call(record: Mapping[str, Any]) -> LayerCall:
    return replace(
        codec.read(LayerCall, {**record, "outputs": ()}),
        outputs=tuple(_output(output) for output in record["outputs"]),
    )


def _output(record: Mapping[str, Any]) -> CheckedOutput:
    """Return the measurements of a tensor. The TF32 error is that of the reference."""
    dtype = record["dtype_candidate"]
    return replace(
        codec.read(CheckedOutput, {**record, **dict.fromkeys(_ERRORS)}),
        accumulated=_metrics(record["accumulated"], dtype),
        isolated=_metrics(record["isolated"], dtype),
        own=_metrics(record.get("own"), dtype),
        rounding=_metrics(record.get("rounding"), dtype),
        tf32=_metrics(record["tf32"], record["dtype_reference"]),
    )


def _metrics(record: Mapping[str, Any] | None, dtype: str) -> metrics.Metrics | None:
    return (
        None
        if record is None
        else metrics.metrics(codec.read(metrics.TensorReductions, record), dtype)
    )


_NUMBERED: Final = re.compile(r"(.*?)(?:_([0-9]{1,18}))?", re.DOTALL)


def file_paths(running_layers: Sequence[Named], stored: Sequence[Named]) -> Mapping[str, str]:
    """
    Return the path in the file for each layer path of a running model, if the two differ.

    Layers with the same parent are paired by class and by name without number, in the order of the
    numbers. If their counts differ, they keep their names.

    :param running_layers: every layer that was called, the model itself last
    :param stored: every layer of the file, the model itself first
    """
    if not running_layers or not stored:
        return {}
    root, stored_root = running_layers[-1][0], stored[0][0]
    classes = dict(running_layers)
    paths = dict.fromkeys(  # the paths of outer layers come first
        prefix for path in classes for prefix in accumulate(path.split("/"), "{}/{}".format)
    )
    below = _by_parent((path, classes.get(path)) for path in paths)
    stored_below = _by_parent(stored)
    stored_paths = {root: stored_root}
    pending = [root]
    while pending:
        parent = pending.pop()
        names = _names(below[parent], stored_below[stored_paths[parent]])
        for name, _ in below[parent]:
            path = f"{parent}/{name}"
            stored_paths[path] = f"{stored_paths[parent]}/{names.get(name, name)}"
            pending.append(path)
    return {path: other for path, other in stored_paths.items() if path != other}


def answered_file_paths(
    answers: Sequence[Mapping[str, Any]], loaded: LoadedModel | None
) -> Mapping[str, str]:
    """Return the path in the file for each layer path in a child's answers, if the two differ."""
    return file_paths(
        [(answer["path"], answer["class_name"]) for answer in answers],
        [(layer.path, layer.class_name) for layer in (loaded.layers if loaded is not None else ())],
    )


def _by_parent(layers: Iterable[Named]) -> defaultdict[str, list[Named]]:
    """Return the names and classes directly below each path."""
    children: defaultdict[str, list[Named]] = defaultdict(list)
    for path, kind in layers:
        parent, slash, name = path.rpartition("/")
        if slash:
            children[parent].append((name, kind))
    return children


def _names(running_layers: Sequence[Named], stored: Sequence[Named]) -> Mapping[str, str]:
    """Return the stored name for each name in the running model, if the two differ."""
    stored_groups = _groups(stored)
    return {
        name: other
        for key, names in _groups(running_layers).items()
        if len(names) == len(others := stored_groups.get(key, [])) and set(names) != set(others)
        for name, other in zip(names, others, strict=True)
    }


def _groups(layers: Iterable[Named]) -> Mapping[tuple[str, str | None], list[str]]:
    """Return the names in groups by class and name without number, in the order of the numbers."""
    groups: defaultdict[tuple[str, str | None], list[tuple[int, str]]] = defaultdict(list)
    for name, kind in layers:
        matched = _NUMBERED.fullmatch(name)
        base, number = matched.groups() if matched is not None else (name, None)
        groups[base, kind].append((int(number or 0), name))
    return {key: [name for _, name in sorted(names)] for key, names in groups.items()}
