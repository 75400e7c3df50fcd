"""The public functions; importing them imports nothing else of policytool."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from policytool.results import Audit, Check, Comparison, Explanation, Migration, Model, Tuning

__all__ = ["audit", "check", "diff", "explain", "inspect", "migrate", "tune"]


def inspect(path: str | os.PathLike[str], *, limits: Mapping[str, int] | None = None) -> Model:
    """
    Return the saved model at ``path``: HDF5, ``.keras``, SavedModel, architecture JSON or YAML,
    TensorFlow.js, or only weights.

    The result contains the values that ``policytool inspect`` shows, and is immutable. The function
    reads the names, shapes and dtypes of weights, but not their values.

    :param limits: limits to raise, by name, such as ``{"json-bytes": 2**30}``; ``policytool
        limits`` lists them
    :raises policytool.ModelFileError: if the file is not a readable model; the error has a message
        and a stable ``code``
    :raises policytool.UsageError: for unknown limits
    """
    from os import fspath

    from policytool.commands import inspect as inspection
    from policytool.results import Model
    from policytool.support.limits import override  # keeps `import policytool` free of everything

    with override(limits or {}):
        return Model(inspection.inspect(fspath(path)))


def audit(
    path: str | os.PathLike[str],
    *,
    target: str | Iterable[str] | None = None,
    device: str | None = None,
    weights: bool = False,
    select: Iterable[str] | None = None,
    ignore: Iterable[str] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Audit:
    """
    Return the findings of ``policytool audit`` in the saved model at ``path``, without reading a
    settings file and without suppressing any finding.

    :param target: the release or releases that must load the model, such as ``keras3`` or
        ``tf2.15``; None checks for the newest Keras
    :param device: the device that will run the model, ``cpu`` or ``gpu``
    :param weights: whether to also read and check the stored values
    :param select: the rules to run: rule IDs, prefixes such as ``PT1``, names, or ``ALL``; None
        runs all rules
    :param ignore: the rules to skip; if a rule is both selected and ignored, the more specific
        selector wins
    :param limits: limits to raise, by name, as for :func:`inspect`
    :raises policytool.ModelFileError: if the file is not a readable model
    :raises policytool.UsageError: for unknown targets, devices, rules and limits
    """
    from os import fspath

    from policytool.commands import audit as auditing
    from policytool.results import Audit
    from policytool.support.limits import override

    options = auditing.audit_options(
        target=target, device=device, weights=weights, select=select, ignore=ignore
    )
    with override(limits or {}):
        return Audit(auditing.audit(fspath(path), options))


def migrate(
    path: str | os.PathLike[str],
    *,
    to: str | None = None,
    assignments: Mapping[str, str] | None = None,
    include_exceptions: bool = False,
    outputs: Literal["keep", "follow"] = "keep",
    loss_scale: Literal["drop", "keep"] = "drop",
    optimizer: Literal["follow", "keep"] = "follow",
    target: str | None = None,
    allow_weight_rewrite: bool = False,
    retrace: bool = False,
    output: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    allow_overflow: bool = False,
    dry_run: bool = False,
    verify: bool | None = None,
    trust: bool = False,
    python: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> Migration:
    """
    Rewrite the policies of the saved model at ``path``, or convert the model, like ``policytool
    migrate``, and return the plan and the result.

    A model that cannot be migrated or converted does not raise an error: its ``status`` is
    ``blocked``, and ``blockers`` contains the reasons.

    :param to: the policy for all layers that use the policy of the model; None only replaces
        deprecated policy formats
    :param assignments: map of layer paths, or regular expressions for the full path, to policies
    :param include_exceptions: with ``to``, whether to also change layers with an explicit policy
    :param outputs: ``keep`` the layers that compute the outputs, and those after them, in float32
        under a 16-bit policy, or let them ``follow``
        the policy in the same way as other layers
    :param loss_scale: ``drop`` the loss scale of a policy, or ``keep`` it in the optimizer
    :param optimizer: adapt the loss scaling of the saved optimizer to ``to`` (``follow``), or
        ``keep`` it
    :param target: the release to write for, such as ``keras3``, ``tf_keras`` or ``tf2.4``; the file
        is converted if editing it is not enough
    :param allow_weight_rewrite: whether a conversion may rescale weights if predictions cannot stay
        unchanged otherwise
    :param retrace: whether to re-export a SavedModel with TensorFlow, so that graph and variables
        get the new policies
    :param output: a file or a directory; None writes the result next to the input, with the policy
        or the target in its name
    :param in_place: whether to replace the input and keep the original as ``NAME.bak``
    :param overwrite: whether to replace existing outputs and backups
    :param allow_overflow: whether to write values that overflow the new dtype as infinity
    :param dry_run: whether to return the plan without writing files
    :param verify: whether to compare predictions before and after in a separate TensorFlow process,
        and write nothing if they differ; None compares them if there is a ``target`` and TensorFlow
        can load the model, like the command, and otherwise sets ``not_verified`` to the reason
    :param trust: whether code from the file may run
    :param python: the Python interpreter with TensorFlow; None for the current one
    :param limits: limits to raise, by name, as for :func:`inspect`
    :raises policytool.ModelFileError: if the model cannot be read or written, or
        cannot be verified with ``verify=True``; the original is unchanged
    :raises policytool.UsageError: for unknown policies, patterns, releases and limits, and for
        conflicting options
    """
    from os import fspath

    from policytool.commands import migrate_all as migration
    from policytool.commands.destinations import Destination
    from policytool.migration.planning.options import options_from_arguments
    from policytool.results import Migration
    from policytool.support.errors import UsageError
    from policytool.support.files.remote_path import from_text
    from policytool.support.limits import override

    if in_place and output is not None:
        raise UsageError("in_place and output conflict: in_place replaces the original")
    destination = Destination(
        output=from_text(fspath(output)) if output is not None else None,
        in_place=in_place,
        overwrite=overwrite,
        allow_overflow=allow_overflow,
        write=not dry_run,
    )
    options = options_from_arguments(
        to,
        assignments or {},
        include_exceptions=include_exceptions,
        outputs=outputs,
        loss_scale=loss_scale,
        optimizer=optimizer,
        target=target,
        allow_weight_rewrite=allow_weight_rewrite,
        retrace=retrace,
    )
    with override(limits or {}):
        return Migration(
            migration.migrate_one(
                fspath(path), options, destination, verify=verify, trust=trust, python=python
            )
        )


def diff(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    values: bool = True,
    layer: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> Comparison:
    """
    Return the differences between the saved models at ``a`` and ``b``, like ``policytool diff``.
    The models may have different formats and releases.

    :param values: whether to read and compare the stored values, in blocks
    :param layer: a layer path, or a regular expression for the full path; None compares all layers
    :param limits: limits to raise, by name, as for :func:`inspect`
    :raises policytool.ModelFileError: if a file is not a readable model
    :raises policytool.UsageError: for a pattern that matches no layer, and for
        unknown limits
    """
    from os import fspath

    from policytool.commands import diff as comparison
    from policytool.results import Comparison
    from policytool.support.limits import override

    with override(limits or {}):
        return Comparison(comparison.diff(fspath(a), fspath(b), values=values, layer=layer))


def check(
    model: str | os.PathLike[str],
    other: str | os.PathLike[str] | None = None,
    *,
    to: str | None = None,
    assignments: Mapping[str, str] | None = None,
    inputs: str | os.PathLike[str] | None = None,
    max_change: float = 1.0,
    output_kinds: Mapping[str, str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    metric: str | None = None,
    max_drop: float | None = None,
    compare_to: str | os.PathLike[str] | None = None,
    gradients: bool = False,
    trust: bool = False,
    python: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> Check:
    """
    Return whether predictions change under a policy compared with float32, or between two models,
    and the errors of every layer, like ``policytool check``.

    :param other: a second model, which becomes the candidate; the first is then the reference
    :param to: the policy of the candidate; None keeps the policies in the file
    :param assignments: map of layer paths, or regular expressions for the full path, to policies
    :param inputs: a ``.npz`` or ``.npy`` file, or ``MODULE:FUNCTION`` for a function that returns
        or yields batches; None for synthetic inputs, which leave the answer undecided
    :param max_change: the largest change that is safe, in percent
    :param output_kinds: map of output names to the kinds of ``--output-kind``, for outputs whose
        kind is not recognized
    :param labels: a ``.npz`` or ``.npy`` file with the labels of the inputs
    :param metric: the name of a metric of the library, or ``MODULE:FUNCTION``
    :param max_drop: by how much the metric may get worse; None for the default of ``--max-drop``
    :param compare_to: the JSON report of an earlier check
    :param gradients: whether to also run one backward pass
    :param trust: whether code from the files may run
    :param python: the Python interpreter with TensorFlow; None for the current one
    :param limits: limits to raise, by name, as for :func:`inspect`
    :raises policytool.ModelFileError: if a model cannot be read or run
    :raises policytool.WorkerError: if TensorFlow is missing or cannot run the models
    :raises policytool.UsageError: for unknown policies, patterns, limits and metrics
    """
    from os import fspath
    from pathlib import Path

    from policytool.commands import check as checks
    from policytool.commands.check_options import CheckOptions
    from policytool.commands.earlier_check import read_earlier_check
    from policytool.migration.planning.options import options_from_arguments
    from policytool.numerics.user_functions import file_or_function
    from policytool.numerics.verdicts.output_kinds import named_kinds
    from policytool.numerics.verdicts.safety import share_of
    from policytool.numerics.verdicts.task_metric import wanted_metric
    from policytool.results import Check
    from policytool.support.limits import override

    wanted = CheckOptions(
        candidate=options_from_arguments(to, assignments or {}),
        inputs=file_or_function(fspath(inputs)) if inputs is not None else None,
        gradients=gradients,
        max_change=share_of(max_change),
        output_kinds=named_kinds(f"{name}={kind}" for name, kind in (output_kinds or {}).items()),
        metric=wanted_metric(
            Path(labels) if labels is not None else None,
            metric,
            max_drop,
            has_inputs=inputs is not None,
        ),
        earlier=read_earlier_check(Path(compare_to)) if compare_to is not None else None,
    )
    with override(limits or {}):
        return Check(
            checks.check_files(
                fspath(model),
                fspath(other) if other is not None else None,
                wanted,
                python=python,
                trust=trust,
            )
        )


def tune(
    model: str | os.PathLike[str],
    *,
    to: str,
    output: str | os.PathLike[str] | None = None,
    assignments: Mapping[str, str] | None = None,
    keep_rules: bool = False,
    inputs: str | os.PathLike[str] | None = None,
    tolerance: float | None = None,
    agreement: float | None = None,
    labels: str | os.PathLike[str] | None = None,
    metric: str | None = None,
    max_drop: float | None = None,
    gradients: bool = False,
    prefer: str | None = None,
    max_trials: int = 100,
    time: float | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    trust: bool = False,
    python: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> Tuning:
    """
    Find a minimal set of layers to keep in float32, and write the model with all other layers
    converted, like ``policytool tune``.

    :param to: the policy of the converted layers, such as ``mixed_float16``
    :param output: the file to write; None for a file next to the model
    :param assignments: map of layer paths, or regular expressions for the full path, to policies
    :param keep_rules: whether to convert no layer that ``migrate`` keeps in float32 by default
    :param inputs: a ``.npz`` or ``.npy`` file, or ``MODULE:FUNCTION`` for a function that returns
        or yields batches; None for synthetic inputs
    :param tolerance: the relative error allowed for outputs; None for 0.01, unless ``agreement`` or
        ``metric`` is set
    :param agreement: the share of rows for which the largest output must stay the same
    :param labels: a ``.npz`` or ``.npy`` file with the labels of the inputs
    :param metric: the name of a metric of the library, or ``MODULE:FUNCTION``
    :param max_drop: by how much the metric may get worse; None for the default of ``--max-drop``
    :param gradients: whether gradients must be finite and close to those in float32
    :param prefer: ``speed`` or ``memory``; None keeps as few layers in float32 as possible
    :param max_trials: the maximum number of sets of layers to try
    :param time: the time in seconds after which no trial begins; None for no limit
    :param overwrite: whether to replace an existing output
    :param dry_run: whether to search without writing the model
    :param trust: whether code from the file may run
    :param python: the Python interpreter with TensorFlow; None for the current one
    :param limits: limits to raise, by name, as for :func:`inspect`
    :raises policytool.ModelFileError: if the model cannot be read, run or written
    :raises policytool.WorkerError: if TensorFlow is missing or cannot run the model
    :raises policytool.UsageError: for unknown policies, patterns, limits and metrics
    """
    from os import fspath
    from pathlib import Path

    from policytool.commands import tune as tuning
    from policytool.commands.destinations import Destination
    from policytool.commands.tune_options import TuneOptions
    from policytool.migration.planning.options import options_from_arguments
    from policytool.numerics.tuning.candidates import tuned_policy
    from policytool.numerics.tuning.objectives import objective
    from policytool.numerics.tuning.results import preference
    from policytool.numerics.tuning.search import Budget
    from policytool.numerics.user_functions import file_or_function
    from policytool.numerics.verdicts.tolerances import GivenTolerance
    from policytool.results import Tuning
    from policytool.support.limits import override

    wanted = TuneOptions(
        candidate=options_from_arguments(tuned_policy(to), assignments or {}),
        objective=objective(
            (GivenTolerance(pattern=None, value=tolerance),) if tolerance is not None else (),
            agreement=agreement,
            labels=Path(labels) if labels is not None else None,
            metric=metric,
            max_drop=max_drop,
            gradients=gradients,
            has_inputs=inputs is not None,
        ),
        keep_rules=keep_rules,
        inputs=file_or_function(fspath(inputs)) if inputs is not None else None,
        preference=preference(prefer),
        budget=Budget(trials=max_trials, seconds=time),
    )
    destination = Destination(
        output=Path(output) if output is not None else None,
        overwrite=overwrite,
        write=not dry_run,
    )
    with override(limits or {}):
        return Tuning(
            *tuning.tune_file(fspath(model), wanted, destination, python=python, trust=trust)
        )


def explain(text: str, *, limits: Mapping[str, int] | None = None) -> Explanation:
    """
    Return the entries that explain an error message of Keras or TensorFlow, like ``policytool
    explain``: at most three, the most likely first.

    :param text: a message or a whole traceback
    :param limits: limits to raise, by name, as for :func:`inspect`
    :raises policytool.UsageError: if the text is empty or too long, and for unknown limits
    """
    from policytool.results import Explanation
    from policytool.support.limits import override
    from policytool.troubleshooting.matching import explain_text

    with override(limits or {}):
        return Explanation(explain_text(text))
