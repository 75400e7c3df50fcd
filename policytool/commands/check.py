"""``check``: run a model under two policies, or two files, and compare what every layer makes."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.commands import check_run, check_trials
from policytool.commands.check_run import measure
from policytool.commands.check_trials import Budget
from policytool.formats import discovery
from policytool.migration.planning.options import Assignment
from policytool.numerics.check_results.devices import TensorFlowDevice
from policytool.numerics.check_results.verdicts import Ruling
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.verdicts import origins
from policytool.numerics.verdicts.kept_layers import Choices
from policytool.numerics.workers import Interpreter, Worker
from policytool.releases.releases import KERAS2
from policytool.support.errors import WorkerError
from policytool.support.text import codec

if TYPE_CHECKING:
    from policytool.commands.check_options import CheckOptions
    from policytool.formats.discovery import Input
    from policytool.numerics.check_results.checks import Check
    from policytool.numerics.hand_over import HandOver


def check(model: Input, other: Input | None, wanted: CheckOptions, tools: TensorFlowTools) -> Check:
    """
    Return how far the candidate is from the reference: a model under another policy, or a second
    file. A check that fails is run again, to find the origin and the layers to keep in float32.

    :raises ModelFileError: for what cannot be read, changed or run.
    :raises UsageError: for options that contradict the model or each other.
    :raises WorkerError: where the child process cannot do it.
    """
    with tools.hand_over() as hand_over:
        return _check(model, other, wanted, tools, hand_over)


def _check(
    model: Input,
    other: Input | None,
    wanted: CheckOptions,
    tools: TensorFlowTools,
    hand_over: HandOver,
) -> Check:
    """Do the same with the copies of a hand-over."""
    start = time.monotonic()
    if wanted.save_inputs is not None:
        from policytool.support.files import atomic  # only where a file is written

        atomic.remove_stale(wanted.save_inputs.absolute().parent)
    measured = measure(model, other, wanted, tools, hand_over)
    found = measured.check
    if found.passed:
        return found
    if not _is_explicable(found):
        return replace(found, runs=tuple(map(origins.with_nan_of_reference, found.runs)))
    plain = replace(
        wanted,
        gradients=False,
        timing=False,
        tf32=False,
        exponents=False,
        save_inputs=None,
        isolated=True,
    )

    def trial(kept: frozenset[str]) -> Check:
        """Run the check again; the first time, with nothing kept, as a diagnosis."""
        added = tuple(Assignment(pattern=path, policy=check_run.FLOAT32) for path in sorted(kept))
        candidate = replace(plain.candidate, assignments=(*plain.candidate.assignments, *added))
        asked = replace(plain, candidate=candidate, diagnosis=not kept)
        return measure(model, other, asked, tools, hand_over).check

    return check_trials.explain(
        found,
        Choices.of(measured.candidate)
        if other is None and measured.candidate is not None
        else None,
        trial,
        Budget(
            trials=check_trials.MOST_TRIALS,
            seconds=check_trials.TIMES * (time.monotonic() - start),
        ),
    )


def _is_explicable(found: Check) -> bool:
    """Return whether layers were measured, and something that was required is outside."""
    return all(run.rewrite is None and not run.missing for run in found.runs) and any(
        run.verdict.is_metric_worse
        or any(one.ruling is not Ruling.NOTHING for one in run.verdict.deciding)
        for run in found.runs
    )


def check_files(
    model: str,
    other: str | None,
    wanted: CheckOptions,
    *,
    python: str | None = None,
    trust: bool = False,
) -> Check:
    """Do the same as :func:`check`, with a child process for this call alone."""
    inputs = [discovery.one(path) for path in (model, other) if path is not None]
    with Worker(Interpreter(python=python or sys.executable)) as worker:
        tools = TensorFlowTools(worker=worker, trust=trust)
        try:
            return check(inputs[0], inputs[1] if other is not None else None, wanted, tools)
        except WorkerError as error:
            error.path = inputs[-1].display_path
            raise


def devices(worker: Worker) -> tuple[TensorFlowDevice, ...]:
    """
    Return what TensorFlow can run on.

    :raises WorkerError: where there is no TensorFlow.
    """
    answer = worker.run({"job": "devices", "family": KERAS2, "path": []})
    return tuple(codec.read(TensorFlowDevice, found) for found in answer["devices"])
