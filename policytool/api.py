"""The public functions; importing them imports nothing else of policytool."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from policytool.commands.migrate import Migration
    from policytool.comparison.result import Comparison
    from policytool.model.model import Model
    from policytool.numerics.check_results.checks import Check
    from policytool.rules.finding import Audited

__all__ = ["audit", "check", "diff", "inspect", "migrate"]


def inspect(path: str | os.PathLike[str], *, limits: Mapping[str, int] | None = None) -> Model:
    """
    Return the saved model at ``path``: HDF5, ``.keras``, SavedModel, architecture JSON or YAML,
    TensorFlow.js, or weights alone.

    The values are those that ``policytool inspect`` renders, all of them frozen. Weights are not
    read, only their names, shapes and dtypes.

    :param limits: bounds by name, such as ``{"json-bytes": 2**30}``, instead of the usual ones;
        ``policytool limits`` lists them
    :raises policytool.support.errors.ModelFileError: for what is no model that can be read, with a
        sentence and a stable ``code``.
    :raises policytool.support.errors.UsageError: for limits that do not exist
    """
    from os import fspath

    from policytool.commands import inspect as inspection
    from policytool.support.limits import override  # keeps `import policytool` free of everything

    with override(limits or {}):
        return inspection.inspect(fspath(path))


def audit(
    path: str | os.PathLike[str],
    *,
    targets: Iterable[str] = (),
    device: str | None = None,
    weights: bool = False,
    select: Iterable[str] | None = None,
    ignore: Iterable[str] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Audited:
    """
    Return what the rules of ``policytool audit`` find in the saved model at ``path``; no settings
    file is read, and nothing is let pass.

    :param targets: the loaders that are to take the model, such as ``keras3`` and ``tf2.15``
    :param device: ``cpu`` or ``gpu``, where the model is to run
    :param weights: whether stored values are read too
    :param select: ids of rules, beginnings of ids such as ``PT1``, names, or ``ALL``; None asks all
        rules
    :param ignore: the same for rules that are not asked; where both name a rule, the more specific
        counts
    :param limits: bounds by name instead of the usual ones, as for :func:`inspect`
    :raises policytool.support.errors.ModelFileError: for what is no model that can be read
    :raises policytool.support.errors.UsageError: for targets, devices, rules and limits that do not
        exist
    """
    from os import fspath

    from policytool.commands import audit as auditing
    from policytool.support.limits import override

    with override(limits or {}):
        return auditing.audit(
            fspath(path),
            auditing.audit_options(
                targets=targets, device=device, weights=weights, select=select, ignore=ignore
            ),
        )


def migrate(
    path: str | os.PathLike[str],
    *,
    to: str | None = None,
    assignments: Mapping[str, str] | None = None,
    target: str | None = None,
    allow_weight_rewrite: bool = False,
    output: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
    verify: bool | None = False,
    trust: bool = False,
    python: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> Migration:
    """
    Rewrite the policies of the saved model at ``path``, or convert it, as ``policytool migrate``
    does, and return the plan and what became of it.

    What cannot be migrated or converted is no error: the ``status`` is ``refused``, and
    ``plan.refusals`` says why.

    :param to: the policy that the layers which follow the model's change to; None changes
        deprecated spellings alone
    :param assignments: layer path, or regular expression that matches one in full, to policy
    :param target: the loader to write for, such as ``keras3``, ``tf_keras`` or ``tf2.4``: the file
        is edited where that is enough, else converted
    :param allow_weight_rewrite: whether a conversion may multiply weights, where nothing else
        computes the same
    :param output: a file or a directory; None names the result after the policy or the target,
        beside the input
    :param in_place: replace the input, which stays as ``NAME.bak``
    :param verify: whether TensorFlow compares the predictions before and after, in a process of its
        own, and nothing is written if they differ; None does so for a ``target`` if it is possible
        here, as the command does, and ``not_verified`` says why if it is not
    :param trust: whether code that a file holds may run
    :param python: the interpreter that has TensorFlow; None for this one
    :param limits: bounds by name instead of the usual ones, as for :func:`inspect`
    :raises policytool.support.errors.ModelFileError: for what cannot be read or written, or
        not verified with ``verify=True``; the original then is what it was
    :raises policytool.support.errors.UsageError: for policies, patterns, loaders and limits that do
        not exist
    """
    from os import fspath
    from pathlib import Path

    from policytool.commands import migrate_all as migration
    from policytool.commands.destinations import Destination
    from policytool.migration.planning.options import options_from_arguments
    from policytool.support.limits import override

    destination = Destination(
        output=Path(output) if output is not None else None,
        in_place=in_place,
        overwrite=overwrite,
        write=not dry_run,
    )
    options = options_from_arguments(
        to, assignments or {}, target=target, allow_weight_rewrite=allow_weight_rewrite
    )
    with override(limits or {}):
        return migration.migrate_one(
            fspath(path), options, destination, verify=verify, trust=trust, python=python
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
    Return what differs between the saved models at ``a`` and ``b``, whatever their formats and
    generations, as ``policytool diff`` shows it.

    :param values: whether stored values are read and compared, a block of a tensor at a time
    :param layer: an exact layer path, else a regular expression that a path must match in full;
        None compares all
    :param limits: bounds by name instead of the usual ones, as for :func:`inspect`
    :raises policytool.support.errors.ModelFileError: for what is no model that can be read
    :raises policytool.support.errors.UsageError: for a pattern that matches no layer, and limits
        that do not exist
    """
    from os import fspath

    from policytool.commands import diff as comparison
    from policytool.support.limits import override

    with override(limits or {}):
        return comparison.diff(fspath(a), fspath(b), values=values, layer=layer)


def check(
    model: str | os.PathLike[str],
    other: str | os.PathLike[str] | None = None,
    *,
    to: str | None = None,
    assignments: Mapping[str, str] | None = None,
    inputs: str | os.PathLike[str] | None = None,
    tolerance: float | None = None,
    gradients: bool = False,
    trust: bool = False,
    python: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> Check:
    """
    Run a saved model in float32 and under a policy, or two saved models, and return how far every
    layer is off, as ``policytool check`` shows it.

    :param other: a second file, which is the candidate then; the first is the reference
    :param to: the candidate's policy; None for the file as it is
    :param assignments: layer path, or regular expression that matches one in full, to policy
    :param inputs: a ``.npz`` or ``.npy`` file; None for synthetic inputs
    :param tolerance: the relative error that outputs and layers may have; None for what their
        dtypes explain
    :param gradients: whether to make a backward step too
    :param trust: whether code that a file holds may run
    :param python: the interpreter that has TensorFlow; None for this one
    :param limits: bounds by name instead of the usual ones, as for :func:`inspect`
    :raises policytool.support.errors.ModelFileError: for what cannot be read or run
    :raises policytool.support.errors.WorkerError: where TensorFlow is missing, or cannot run the
        models
    :raises policytool.support.errors.UsageError: for policies, patterns and limits that do not
        exist
    """
    from os import fspath
    from pathlib import Path

    from policytool.commands import check as checks
    from policytool.migration.planning.options import options_from_arguments
    from policytool.numerics.verdicts.tolerances import GivenTolerance, Tolerances
    from policytool.support.limits import override

    wanted = checks.CheckOptions(
        candidate=options_from_arguments(to, assignments or {}),
        inputs=Path(inputs) if inputs is not None else None,
        gradients=gradients,
        tolerances=Tolerances(
            given=(GivenTolerance(pattern=None, value=tolerance),) if tolerance is not None else ()
        ),
    )
    with override(limits or {}):
        return checks.check_files(
            fspath(model),
            fspath(other) if other is not None else None,
            wanted,
            python=python,
            trust=trust,
        )
