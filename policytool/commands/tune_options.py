"""The options of a search."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import fspath
from typing import TYPE_CHECKING

from policytool.commands.arguments.declaration import as_path, as_texts
from policytool.commands.destinations import Destination, output_of
from policytool.migration.planning.options import options_from_arguments
from policytool.numerics.check_sides import file_or_function
from policytool.numerics.tuning.candidate_layers import tuned_policy
from policytool.numerics.tuning.objectives import objective
from policytool.numerics.tuning.search import Budget, parse_budget
from policytool.numerics.verdicts.task_metric import metric_and_drop
from policytool.numerics.verdicts.tolerances import parse_tolerance

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.commands.arguments.running import TuneArguments
    from policytool.migration.planning.options import Options
    from policytool.numerics.check_sides import UserFunction
    from policytool.numerics.tuning.objectives import Objective


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """The options of a search."""

    candidate: Options
    """The policy of the converted layers, and the policies that the user sets for layers."""

    objective: Objective
    weights: Path | None = None
    inputs: Path | UserFunction | None = None
    """A file with arrays, or a function that returns batches; None for synthetic inputs."""

    batches: int | None = None
    batch_size: int | None = None
    seed: int = 1
    budget: Budget = field(default_factory=Budget)
    record: Path | None = None
    """The file in which trials are recorded, and from which an earlier search continues."""

    device: str = "auto"


def tune_options(arguments: TuneArguments) -> TuneOptions:
    """
    Return the options of a search from the arguments.

    :raises UsageError: if an option has an invalid value, or lacks another option that it needs.
    """
    metric, max_drop = metric_and_drop(arguments.metric)
    return TuneOptions(
        candidate=options_from_arguments(
            tuned_policy(arguments.to),
            as_texts(arguments.set),
            include=arguments.include,
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
        inputs=file_or_function(fspath(arguments.inputs)) if arguments.inputs is not None else None,
        batches=arguments.batches,
        batch_size=arguments.batch_size,
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
