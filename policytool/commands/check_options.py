"""What is asked of a check."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from os import fspath
from typing import TYPE_CHECKING

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
    from policytool.numerics.verdicts.regressions import EarlierCheck
    from policytool.numerics.verdicts.task_metric import MetricOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckOptions:
    """What is asked of a check."""

    candidate: Options = field(default_factory=Options)
    """What the candidate's policies are; nothing for those of the file."""

    weights: Path | None = None
    inputs: Path | UserFunction | None = None
    """A file of arrays, or a function that returns batches of them; None for synthetic ones."""

    save_inputs: Path | None = None
    batches: int | None = None
    """How many batches are drawn, one for None, or how many of a function's are used at most."""

    batch_size: int | None = None
    seed: int = 1
    isolated: bool = False
    """Whether each layer runs alone as well although there is no error to explain."""

    gradients: bool = False
    timing: bool = False
    tf32: bool = False
    exponents: bool = False
    """Whether the values of each layer are counted by binary exponent, which only HTML shows."""

    diagnosis: bool = False
    """Whether what enters each call, and what its inputs' rounding costs, is measured as well."""

    probes_overflow: bool = True
    """Whether synthetic inputs are scaled up until the candidate overflows."""

    deterministic: bool = False
    device: str = "auto"
    tolerances: Tolerances = field(default_factory=Tolerances)
    """Errors that rounding explains, if a search has its own."""

    max_change: float = MAX_CHANGE
    """The share of predictions that may change."""

    output_kinds: Mapping[str, OutputKind] = field(default_factory=dict)
    """The kinds of values that outputs have, if they are not recognised."""

    metric: MetricOptions | None = None
    """The task's own metric; it needs ``inputs``, because it compares outputs with labels."""

    earlier: EarlierCheck | None = None
    """The earlier check to compare with."""

    def for_candidate(self, candidate: Options) -> CheckOptions:
        """Return a check of another candidate, of which nothing but the outputs is asked."""
        return replace(
            self,
            candidate=candidate,
            isolated=False,
            gradients=False,
            timing=False,
            tf32=False,
            exponents=False,
            save_inputs=None,
            probes_overflow=False,
        )


def check_options(arguments: CheckArguments) -> CheckOptions:
    """
    Return the options of a check that arguments ask for.

    :raises UsageError: for values that an option does not accept, and for options without those
        that they need.
    """
    batches, batch_size = parse_batches(arguments.batches)
    return CheckOptions(
        candidate=options_from_arguments(
            arguments.to, as_texts(arguments.set), include=arguments.include
        ),
        weights=as_path(arguments.weights),
        inputs=file_or_function(fspath(arguments.inputs)) if arguments.inputs is not None else None,
        save_inputs=as_path(arguments.save_inputs),
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


def check_second_model(candidate: Options) -> None:
    """
    Make sure that options do not change the candidate of a check of two models.

    :raises UsageError: if they do.
    """
    if candidate != Options():
        raise UsageError(
            "options that change the candidate (--to, --set, ...) cannot be combined with B, "
            "because B is the candidate"
        )
