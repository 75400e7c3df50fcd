"""
Runs the trials of a search in the child process, which keeps the reference loaded. Records the
trials in a file, from which ``tune --resume`` continues.

The options say what a search measures, and where its result goes.
"""

from __future__ import annotations

import hashlib
import math
import os
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Struct, field
from msgspec.structs import replace

from policytool.commands.arguments.declaration import as_path, as_texts
from policytool.commands.check_options import CheckOptions, RunOptions
from policytool.commands.check_run import (
    check_job,
    check_readable,
    reference_options,
    safety_rule,
)
from policytool.commands.destinations import Destination, output_of
from policytool.migration.planning.options import options_from_arguments
from policytool.numerics import check_sides
from policytool.numerics.check_results.checks import CheckSide
from policytool.numerics.check_sides import array_file, file_or_function, parse_batches
from policytool.numerics.environments import best_release
from policytool.numerics.tuning.candidate_layers import tuned_policy
from policytool.numerics.tuning.results import (
    Split,
    Trial,
    gradient_error,
    largest_error,
    not_comparable,
    objective,
    objective_excess,
    promise,
    smallest_agreement,
)
from policytool.numerics.tuning.search import Budget, parse_budget
from policytool.numerics.verdicts import answers
from policytool.numerics.verdicts.task_metric import metric_and_drop
from policytool.numerics.verdicts.tolerances import Tolerances, parse_tolerance
from policytool.support import limits, steps
from policytool.support.errors import ModelFileError, WorkerError
from policytool.support.files import opening
from policytool.support.text import codec, jsontext

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.commands.arguments.running import TuneArguments
    from policytool.formats.discovery import Input
    from policytool.migration.planning.options import Options
    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.metrics import TaskMetric
    from policytool.numerics.check_results.verdicts import NotComparable
    from policytool.numerics.check_sides import CheckSource, PreparedSide
    from policytool.numerics.hand_over import HandOver, PrivateCopy
    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.tuning.candidate_layers import Candidates
    from policytool.numerics.tuning.results import Objective

SYNTHETIC_BATCHES: Final = 4
"""Number of synthetic batches: two for the search, and two to validate its result."""


def check_options(options: TuneOptions, candidate: Options) -> CheckOptions:
    """Return the options of a check of a candidate."""
    batches = options.batches
    if batches is None and options.inputs is None:
        batches = SYNTHETIC_BATCHES
    return CheckOptions(
        candidate=candidate,
        weights=options.weights,
        inputs=options.inputs,
        batches=batches,
        batch_size=options.batch_size,
        seed=options.seed,
        device=options.device,
        tolerances=options.objective.tolerances or Tolerances(),
        metric=options.objective.metric,
        gradients=options.objective.gradients,
        max_change=options.objective.max_change,
        isolated=True,
    )


def readable_source(model: Input, options: TuneOptions, hand_over: HandOver) -> CheckSource:
    """
    Return a copy of the model, which TensorFlow may run and whose layers have policies in the file.

    :raises ModelFileError: if the model does not meet this, or an input file cannot be read.
    """
    check_readable(
        CheckOptions(
            inputs=options.inputs, weights=options.weights, metric=options.objective.metric
        )
    )
    source = check_sides.read_source(model, hand_over)
    if source.loaded is None:
        raise ModelFileError(
            model.display_path,
            "graph",
            "contains only a graph and no Keras model, so no layer has a policy that can be "
            "changed; use `policytool check --to` to measure the whole graph",
        )
    return source


class TrialRuns(ExitStack):
    """The trials of one search, as a context manager that removes their files."""

    def __init__(
        self,
        source: CheckSource,
        candidates: Candidates,
        options: TuneOptions,
        tools: TensorFlowTools,
        hand_over: HandOver,
    ) -> None:
        super().__init__()
        self.source = source
        if (loaded := source.loaded) is not None:
            tools.worker.fit(lambda: best_release(loaded))
        self.candidates = candidates
        self.options = options
        self.tools = tools
        self.hand_over = hand_over
        self.weights = check_sides.read_weights(options.weights, source, hand_over=hand_over)
        self.split = Split.NONE
        self.last: CheckRun | None = None
        """The last run; all runs use its device and inputs."""

        self.not_comparable: NotComparable | None = None
        """Why no output of the reference can be compared; None if an output can."""

        self.metrics: dict[frozenset[str], TaskMetric] = {}
        """The metric of each completed trial, by its set of layers."""

        self.versions: Mapping[str, str] = {}
        self._library = ""
        self._backend = "tensorflow"
        self._token = uuid.uuid4().hex
        self._check_options = check_options(options, candidates.keeping(frozenset()))
        self._rule = safety_rule(source, self._check_options)

    def __enter__(self) -> Self:
        folder = self.enter_context(self.hand_over.temporary_folder())
        self.reference = check_sides.prepare_side(
            self.source,
            reference_options(self.source, two=False),
            (self.hand_over, folder),
            self.weights,
            dequantize=True,
        )
        return self

    def run(self, kept: frozenset[str]) -> Trial:
        """
        Run the trial of a set, and return it. If the model cannot run with the set, the trial has
        failed.

        :raises WorkerError: if the child process ended.
        :raises UsageError: if the outputs of the model do not support the objective.
        """
        try:
            return self.measure(kept)
        except WorkerError as error:
            if error.ended:
                raise
            return self._trial(kept, failure=str(error))
        except ModelFileError as error:
            return self._trial(kept, failure=error.message)

    def measure(self, kept: frozenset[str]) -> Trial:
        """
        Run the trial of a set with which the model must be able to run, and return it.

        :raises ModelFileError: if the policies of the set cannot be applied.
        :raises WorkerError: if the model cannot be run.
        :raises UsageError: if the outputs of the model do not support the objective.
        """
        with self.hand_over.temporary_folder() as folder:
            with steps.budget(self.source.input.display_path):
                side = check_sides.prepare_side(
                    self.source,
                    self.candidates.keeping(kept),
                    (self.hand_over, folder),
                    self.weights,
                )
            return self.measure_side(side, kept)

    def measure_side(self, side: PreparedSide, kept: frozenset[str]) -> Trial:
        """
        Run a model with the layers of a set in float32, and return its trial.

        :raises WorkerError: if the model cannot be run.
        :raises UsageError: if the outputs of the model do not support the objective.
        """
        with steps.budget(self.source.input.display_path):
            job = self._job(side)
        answer = self.tools.worker.run(job)
        runs = answers.runs_from_json(
            answer["runs"],
            self._check_options.tolerances,
            self._rule,
            max_drop=metric.max_drop if (metric := self.options.objective.metric) else None,
        )
        self.last = runs[0]
        self.not_comparable = not_comparable(runs)
        self.split = Split.BATCHES if answer["split"] else Split.NONE
        self.versions = answer["versions"]
        self._library, self._backend = answer["libraries"][0], answer["backends"][0]
        excesses = [objective_excess(run, self.options.objective) for run in runs]
        errors = [largest_error(run) for run in runs]
        task = runs[0].verdict.metric
        if task is not None:
            self.metrics[kept] = task
        shares = [smallest_agreement(run) for run in runs]
        asks_agreement = self.options.objective.agreement is not None
        gradients = runs[0].gradients
        return replace(
            self._trial(kept),
            excess=excesses[0],
            validation=excesses[1] if len(excesses) > 1 else None,
            promise=promise(runs[1]) if len(runs) > 1 else None,
            error=None if None in errors else max(error for error in errors if error is not None),
            agreement=min(share for share in shares if share is not None)
            if asks_agreement
            else None,
            gradient_error=gradient_error(gradients) if gradients is not None else None,
            metric=task.worst.candidate if task is not None else None,
        )

    def side(self) -> CheckSide:
        """Return the reference for reports."""
        return CheckSide(
            path=self.source.input.display_path,
            policy=self.reference.policy,
            policies={},
            library=self._library,
            backend=self._backend,
            weights="random" if self.reference.job.get("weights", "") is None else "file",
            dequantized=self.reference.dequantized,
        )

    def _trial(self, kept: frozenset[str], *, failure: str | None = None) -> Trial:
        """Return a failed trial of a set."""
        return Trial(
            kept=tuple(path for path in self.candidates.paths if path in kept),
            excess=math.inf,
            validation=None,
            error=None,
            agreement=None,
            gradient_error=None,
            failure=failure,
        )

    def _job(self, side: PreparedSide) -> dict[str, Any]:
        """Return the job that measures a candidate on both halves of the inputs."""
        job = check_job((self.reference, side), self.source, self._check_options, self.tools)
        return {
            **job,
            "job": "trial",
            "token": self._token,
            "inputs": {**job["inputs"], "halves": True},
        }


VERSION: Final = 1

_BLOCK: Final = 2**20
"""Size in bytes of one read."""

_SEARCH: Final = codec.reader(Mapping[str, str])
_TRIALS: Final = codec.reader(tuple[Trial, ...])


class Record(Struct, frozen=True, kw_only=True):
    """The file with the trials of a search."""

    path: Path
    search: Mapping[str, str]
    """
    Digests of the options and inputs of the search. Its trials are valid for another search only if
    all digests are equal.
    """

    def read(self) -> tuple[Trial, ...]:
        """
        Return the trials of an earlier search; nothing if the file does not exist.

        :raises ModelFileError: if the file cannot be read, is not a record, or belongs to another
            search.
        """
        try:
            text = opening.read_user_file(self.path, limits.JSON_BYTES)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._record_error(
                "unreadable", f"cannot be read for --resume: {error.strerror or error}"
            ) from error
        try:
            record, _ = jsontext.parse(text)
            if not isinstance(record, dict) or record["version"] != VERSION:
                raise TypeError("expected an object")
            search = _SEARCH(record["search"])
            trials: tuple[Trial, ...] = _TRIALS(record["trials"])
        except (jsontext.JsonError, KeyError, TypeError, ValueError) as error:
            raise self._record_error(
                "not-a-record",
                "is not a record of `policytool tune --resume`; specify another file",
            ) from error
        for name, digest in self.search.items():
            if search.get(name) != digest:
                raise self._record_error(
                    "other-search",
                    f"belongs to a search with other {name}; repeat that command, or specify "
                    "another file",
                )
        return trials

    def write(self, trials: Sequence[Trial]) -> None:
        """
        Replace the file atomically.

        :raises ModelFileError: if writing fails; the file is unchanged.
        """
        # imports hashlib, random and socket, which are only needed to write a file
        from policytool.support.files.atomic import Draft, remove_stale

        values = {"version": VERSION, "search": self.search, "trials": trials}
        target = Path(os.path.realpath(self.path))
        try:
            remove_stale(target.parent)
            with Draft.beside(target) as draft:
                draft.path.write_bytes(f"{codec.encode(values)}\n".encode())
                draft.publish(target, like=target if target.exists() else None, overwrite=True)
        except OSError as error:
            raise self._record_error(
                "unwritable", f"cannot be written for --resume: {error.strerror or error}"
            ) from error

    def _record_error(self, code: str, message: str) -> ModelFileError:
        return ModelFileError(str(self.path), code, message)


def record_of(
    path: Path, model: PrivateCopy, candidates: Candidates, tune_options: TuneOptions
) -> Record:
    """
    Return the record of a search.

    :raises ModelFileError: if a file of the search cannot be read.
    """
    options = (
        tune_options.candidate,
        tune_options.objective,
        *(tune_options.batches, tune_options.batch_size, tune_options.seed, tune_options.device),
        candidates.paths,
    )
    metric = tune_options.objective.metric
    files: dict[str, Sequence[object]] = {
        "model files": model.files,
        "inputs": [tune_options.inputs],
        "weights": [tune_options.weights],
        "labels": [metric.labels if metric is not None else None],
    }
    return Record(
        path=path,
        search={
            "options": hashlib.sha256(repr(options).encode()).hexdigest(),
            **{name: _digest(paths) for name, paths in files.items()},
        },
    )


def _digest(paths: Iterable[object]) -> str:
    """
    Return the digest of the contents of files, and of the names of user functions.

    :raises ModelFileError: if a file cannot be read.
    """
    digest = hashlib.sha256()
    for entry in paths:
        path = array_file(entry) if isinstance(entry, Path) else entry
        if path != entry:
            digest.update(str(entry).rpartition(":")[2].encode())
        if not isinstance(path, Path) or not path.is_file():
            digest.update(str(path).encode())
            continue
        try:
            content = hashlib.sha256()
            for block in opening.blocks(path, _BLOCK):
                content.update(block)
            digest.update(content.digest())
        except OSError as error:
            raise ModelFileError(
                str(path), "unreadable", f"cannot be read: {error.strerror or error}"
            ) from error
    return digest.hexdigest()


class TuneOptions(RunOptions, frozen=True, kw_only=True):
    """The options of a search."""

    candidate: Options
    """The policy of the converted layers, and the policies that the user sets for layers."""

    objective: Objective
    budget: Budget = field(default_factory=Budget)
    record: Path | None = None
    """The file in which trials are recorded, and from which an earlier search continues."""


def tune_options(arguments: TuneArguments) -> TuneOptions:
    """
    Return the options of a search from the arguments.

    :raises UsageError: if an option has an invalid value, or lacks another option that it needs.
    """
    batches, batch_size = parse_batches(arguments.batches)
    metric, max_drop = metric_and_drop(arguments.metric)
    return TuneOptions(
        candidate=options_from_arguments(
            tuned_policy(arguments.to),
            as_texts(arguments.set),
            include=arguments.include,
            quantizes=True,
        ),
        objective=objective(
            tuple(parse_tolerance(text) for text in as_texts(arguments.tolerance)),
            labels=as_path(arguments.labels),
            metric=metric,
            max_drop=max_drop,
            gradients=arguments.gradients,
            has_inputs=arguments.inputs is not None,
        ),
        weights=as_path(arguments.weights),
        inputs=file_or_function(str(as_path(arguments.inputs)))
        if arguments.inputs is not None
        else None,
        batches=batches,
        batch_size=batch_size,
        budget=parse_budget(str(arguments.budget)),
        record=as_path(arguments.resume),
        device=arguments.device,
    )


def tune_destination(arguments: TuneArguments) -> Destination:
    """
    Return the destination of the tuned model.

    :raises UsageError: if the output is stdout.
    """
    output, is_directory = output_of(arguments.output)
    return Destination(
        output=output,
        is_directory=is_directory,
        overwrite=arguments.existing == "replace",
        write=not arguments.preview,
    )
