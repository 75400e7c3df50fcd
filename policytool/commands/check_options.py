"""The options of a check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from policytool.commands.arguments.declaration import as_path, as_texts
from policytool.migration.planning.options import (
    Options,
    options_from_arguments,
)
from policytool.numerics.check_sides import file_or_function, parse_batches
from policytool.numerics.verdicts.output_kinds import parse_output_kinds
from policytool.numerics.verdicts.safety import MAX_CHANGE, share_of
from policytool.numerics.verdicts.task_metric import metric_and_drop, metric_options
from policytool.numerics.verdicts.tolerances import Tolerances
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policytool.commands.arguments.running import CheckArguments
    from policytool.numerics.check_results.verdicts import OutputKind
    from policytool.numerics.check_sides import UserFunction
    from policytool.numerics.verdicts.task_metric import MetricOptions


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of commands that run models."""

    weights: Path | None = None
    inputs: Path | UserFunction | None = None
    """A file with arrays, or a function that returns batches; None for synthetic inputs."""

    batches: int | None = None
    """
    The number of synthetic batches, or the maximum number of batches from a function; None for the
    default.
    """

    batch_size: int | None = None
    seed: int = 1
    device: str = "auto"


class CheckOptions(RunOptions, frozen=True, kw_only=True):
    """The options of a check."""

    candidate: Options = field(default_factory=Options)
    """The options that set the policies of the candidate; by default, those of the file."""

    record: Path | None = None
    """The file in which the run is recorded; the model then runs without a reference."""

    record_all: bool = False
    against: Path | None = None
    """The recorded run that is the reference."""

    isolated: bool = False
    """Whether each layer also runs in isolation if there is no error to explain."""

    gradients: bool = False
    timing: bool = False
    tf32: bool = False
    exponents: bool = False
    """Whether values of layers are counted by binary exponent, which only the HTML report shows."""

    diagnosis: bool = False
    """Whether the inputs of each call, and the effect of rounding them, are measured too."""

    sensitivity: bool = False
    """Whether the effect of errors of each call on the outputs is measured by their gradients."""

    probes_overflow: bool = True
    """Whether synthetic inputs are scaled up until the candidate overflows."""

    deterministic: bool = False
    tolerances: Tolerances = field(default_factory=Tolerances)
    """The tolerances of a search; by default, the errors that rounding explains."""

    max_change: float = MAX_CHANGE
    """The share of predictions that may change."""

    output_kinds: Mapping[str, OutputKind] = field(default_factory=dict)
    """The kinds of outputs that the user specified."""

    metric: MetricOptions | None = None
    """The metric of the task. It needs ``inputs``, because it compares outputs with labels."""

    def for_candidate(self, candidate: Options) -> CheckOptions:
        """Return the options to measure only the outputs of another candidate."""
        return replace(
            self,
            candidate=candidate,
            isolated=False,
            gradients=False,
            timing=False,
            tf32=False,
            exponents=False,
            probes_overflow=False,
        )


def check_options(arguments: CheckArguments) -> CheckOptions:
    """
    Return the options of a check from the arguments.

    :raises UsageError: if an option has an invalid value, or lacks another option that it needs.
    """
    batches, batch_size = parse_batches(arguments.batches)
    _check_recording(arguments)
    return CheckOptions(
        candidate=options_from_arguments(
            arguments.to, as_texts(arguments.set), include=arguments.include, quantizes=True
        ),
        weights=as_path(arguments.weights),
        inputs=file_or_function(str(as_path(arguments.inputs)))
        if arguments.inputs is not None
        else None,
        record=as_path(arguments.record),
        record_all="values" in arguments.measure,
        against=as_path(arguments.against),
        batches=batches,
        batch_size=batch_size,
        isolated="isolated" in arguments.measure,
        gradients="gradients" in arguments.measure,
        timing="timing" in arguments.measure,
        tf32="tf32" in arguments.measure,
        deterministic="deterministic" in arguments.measure,
        device=arguments.device,
        max_change=share_of(arguments.max_change),
        output_kinds=parse_output_kinds(as_texts(arguments.output_kind)),
        metric=metric_options(
            as_path(arguments.labels),
            *metric_and_drop(arguments.metric),
            has_inputs=arguments.inputs is not None,
        ),
    )


def _check_recording(arguments: CheckArguments) -> None:
    """
    Check that a recorded run needs no reference that runs, and no inputs but the recorded ones.

    :raises UsageError: if it does.
    """
    if "values" in arguments.measure and arguments.record is None:
        raise UsageError("--measure values needs --record FILE")
    if arguments.record is None and arguments.against is None:
        return
    if {*arguments.measure} - {"deterministic", "values"} or arguments.metric is not None:
        raise UsageError(
            "--metric and --measure, except --measure deterministic and values, compare two models "
            "that run; remove --record and --against"
        )
    if arguments.against is not None and not (arguments.inputs is arguments.batches is None):
        raise UsageError(
            "--against uses the inputs of the recorded run; remove --inputs and --batches"
        )
    if arguments.device == "all":
        raise UsageError("a recorded run uses one device; specify it with --device")


def check_second_model(options: CheckOptions) -> None:
    """
    Check that no options change the candidate, or replace the reference, in a check of two models.

    :raises UsageError: if they do.
    """
    if options.record is not None or options.against is not None:
        raise UsageError("--record and --against run one model; remove B")
    if options.candidate != Options():
        raise UsageError(
            "options that change the candidate (--to, --set, ...) cannot be combined with B, "
            "because B is the candidate"
        )
