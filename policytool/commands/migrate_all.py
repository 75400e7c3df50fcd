"""``migrate`` for many files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.commands import inspect, remote_migration, saved_plans, tensorflow
from policytool.commands.arguments.declaration import as_path, as_texts
from policytool.commands.batch import parallel
from policytool.commands.destinations import (
    Destination,
    output_of,
    target_of,
    without_outputs,
)
from policytool.commands.inspect import LOST, Failure
from policytool.commands.migrate import MigrateRequest, Migration
from policytool.commands.saved_plans import SavedPlanRequest
from policytool.formats import discovery
from policytool.migration.planning.options import options_from_arguments
from policytool.numerics.workers import Worker
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.limits import TENSORFLOW_SECONDS
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from policytool.commands.arguments.migrate import MigrateArguments
    from policytool.commands.batch.parallel import Jobs
    from policytool.commands.migrate import Result
    from policytool.commands.saved_plans import SavedPlan
    from policytool.formats.discovery import Input
    from policytool.migration.planning.options import Options
    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.workers import Interpreter

ON_A_CLUSTER: Final = "a Dask cluster (--jobs ADDRESS) runs no TensorFlow"


def migrate_all(
    inputs: Sequence[Input],
    options: Options,
    destination: Destination,
    tools: TensorFlowTools | None = None,
    *,
    jobs: Jobs = 1,
    details: bool = True,
    several: bool | None = None,
    weights: Path | None = None,
) -> Iterator[Result]:
    """
    Migrate each input and yield its result.

    Migrations that need TensorFlow run in this process, one file after the other, because
    TensorFlow has its own process. All others run in ``jobs`` processes. Inputs that share files,
    such as two with the same output, run in their order.

    :param tools: the child processes, which are started only if TensorFlow is needed
    :param several: whether the run has several inputs, if ``inputs`` is only a shard of them; None
        to count ``inputs``
    :param weights: the weights of the only input, which is an architecture
    :raises UsageError: if several inputs have the same output or the same weights, or if options
        contradict the only model, such as a pattern that matches no layer.
    :raises WorkerError: if the processes cannot be started.
    """
    chosen = without_outputs(inputs, options.suffix, destination)
    if weights is not None and (several or [source.exact for source in chosen] != [True]):
        raise UsageError("--weights are those of one architecture; specify one file")
    if tools is not None:
        tools = tools.decide_verification(options.target if destination.write else None)
    request = MigrateRequest(
        options=options,
        destination=destination,
        several=len(chosen) > 1 if several is None else several,
        details=details,
        no_verify_reason=tools.no_verify_reason if tools is not None and options.target else None,
        weights=weights,
    )
    if request.several and chosen:  # one error, and not a failure for each input
        target_of(chosen[0].path, options.suffix, destination, several=True)
    if tools is not None and (options.retrace or tools.verify is not False):
        yield from parallel.run_serially(
            remote_migration.TASK,
            chosen,
            request,
            lambda source: remote_migration.attempt(source, request, tools),
        )
    else:
        yield from parallel.run_all(remote_migration.TASK, chosen, request, jobs)


def saved_plans_in(file: Path, paths: tuple[str, ...]) -> list[SavedPlan]:
    """
    Return the plans in a file, each with the path of its model. A single plan is applied to a
    single path, even if that is not the path in the plan.

    :raises UsageError: if the file contains no saved plan, or has no plan for a path.
    """
    return saved_plans.plans_with_paths(saved_plans.read_plans(file), paths)


def migrate_saved(
    every: Sequence[SavedPlan],
    destination: Destination,
    tools: TensorFlowTools | None = None,
    *,
    jobs: Jobs = 1,
    details: bool = True,
) -> Iterator[Result]:
    """
    Apply each saved plan and yield its result.

    :func:`migrate_all` describes which process does the work.

    :raises UsageError: if a plan needs TensorFlow, and ``jobs`` is a cluster.
    :raises WorkerError: if the processes cannot be started.
    """
    if isinstance(jobs, str) and any(saved.plan.retrace for saved in every):
        raise UsageError(f"{ON_A_CLUSTER} and cannot apply a plan with --retrace")
    request = SavedPlanRequest(destination=destination, details=details)
    if tools is not None:
        tools = tools.decide_verification(None)
    if tools is not None and (tools.verify or any(saved.plan.retrace for saved in every)):
        yield from parallel.run_serially(
            saved_plans.TASK,
            every,
            request,
            lambda saved: saved_plans.attempt(saved, request, tools),
        )
    else:
        yield from parallel.run_all(saved_plans.TASK, every, request, jobs)


def migrate_one(path: str, arguments: MigrateArguments) -> Migration:
    """
    Migrate one model and return the result.

    :raises ModelFileError: if the model cannot be read, migrated or written.
    :raises UsageError: if options contradict each other, or a pattern matches no layer.
    """
    options, destination = migrate_options(arguments), migrate_destination(arguments)
    model = discovery.named_input(path, remote=True)
    remote_migration.check([model.path], destination)
    source, target = migrate_interpreters(arguments)
    with Worker(source) as worker, Worker(target) as other:
        tools = tensorflow.tools(arguments, worker, other, verify=arguments.verify)
        weights = as_path(arguments.weights)
        result = next(migrate_all([model], options, destination, tools, weights=weights))
    match result:
        case Migration() as done:
            return done
        case Failure() as failure:
            raise ModelFileError(failure.path, failure.code, failure.message)
    raise ModelFileError(path, "no-model", "is not a model")


def migrate_interpreters(arguments: MigrateArguments) -> tuple[Interpreter, Interpreter]:
    """
    Return the interpreters for the source and the target. They have a time limit if predictions are
    compared by default, and not because the user requests it.
    """
    is_default = arguments.verify is None and arguments.target is not None and not arguments.retrace
    source, target = tensorflow.interpreters(arguments.python, arguments.backend)
    if is_default:
        seconds = TENSORFLOW_SECONDS.value
        return replace(source, timeout=seconds), replace(target, timeout=seconds)
    return source, target


def migrate_options(arguments: MigrateArguments) -> Options:
    """
    Return the options of a migration from the arguments.

    :raises UsageError: if no layer can have a policy, or a name is not a release.
    """
    if arguments.weights is not None and arguments.target is None:
        raise UsageError(
            "--weights joins an architecture and its weights in a model for a release; specify "
            "the release with --target"
        )
    return options_from_arguments(
        arguments.to,
        as_texts(arguments.set),
        include=arguments.include,
        keep=arguments.keep,
        target=arguments.target,
        allow_weight_rewrite="weight-rewrite" in arguments.allow,
        retrace=arguments.retrace,
    )


def migrate_destination(arguments: MigrateArguments) -> Destination:
    """
    Return the destination of migrated models.

    :raises UsageError: if the output is stdout, or options contradict each other.
    """
    in_place, output = arguments.in_place, arguments.output
    if in_place and arguments.weights is not None:
        raise UsageError(
            "--in-place and --weights conflict: the joined model is a new file; specify it with -o"
        )
    if in_place and output is not None:
        raise UsageError(
            "--in-place and -o conflict: --in-place replaces the input, and -o leaves it unchanged"
        )
    if in_place and arguments.existing == "skip":
        raise UsageError(
            "--in-place and --existing skip conflict: the first replaces existing files, and the "
            "second keeps them"
        )
    path, is_directory = output_of(output)
    return Destination(
        output=path,
        is_directory=is_directory,
        in_place=bool(in_place),
        backup=in_place != "no-backup",
        overwrite=arguments.existing == "replace",
        skip_existing=arguments.existing == "skip",
        allow_overflow="overflow" in arguments.allow,
        write=not arguments.preview,
    )


def only_model(inputs: list[Input], options: Options) -> list[Input]:
    """
    Return the model that a user named, or the only model among the discovered inputs, as a list;
    an empty list if there is none.

    :raises UsageError: for several models; the message lists them.
    :raises ModelFileError: if the process that read the model crashed.
    """
    if len(inputs) == 1 and inputs[0].exact:
        return inputs
    return the_one_model(inputs, options, Destination(write=False))


def the_one_model(
    inputs: Iterable[Input], options: Options, destination: Destination, several: str = ""
) -> list[Input]:
    """
    Return the only model among the discovered inputs, as a list; an empty list if there is none.

    :param several: the end of the message about several models, such as another way to name them
    :raises UsageError: for several models; the message lists them.
    :raises ModelFileError: if the process that read the model crashed.
    """
    candidates = without_outputs(list(inputs), options.suffix, destination)
    read = list(parallel.run_all(inspect.TASK, candidates, False, None))
    models = [
        candidate for candidate, result in zip(candidates, read, strict=True) if result is not None
    ]
    if len(models) > 1:
        listed = join_first([model.display_path for model in models], 10)
        raise UsageError(f"found {len(models)} models ({listed}); specify one of them{several}")
    for result in read:
        # the command would crash on it again, after the same time
        if isinstance(result, Failure) and result.code in LOST:
            raise ModelFileError(result.path, result.code, result.message)
    return models
