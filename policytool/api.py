"""
The public functions. Importing them imports the declarations of their options, and nothing that
reads or runs a model.

Each function accepts what the command of the same name accepts, except for options that only the
command line has, and validates it in the same way.
"""

import functools
import inspect as inspecting
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from os import fspath
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from policytool.commands.arguments.declaration import (
    DeclaredOption,
    LimitArguments,
    LiveModel,
    StrPath,
)
from policytool.commands.arguments.migrate import MigrateArguments
from policytool.commands.arguments.reading import (
    AuditArguments,
    DiffArguments,
    ExplainArguments,
    InspectArguments,
)
from policytool.commands.arguments.running import CheckArguments, TuneArguments
from policytool.support.processes.collection import without_collection

if TYPE_CHECKING:
    from policytool.formats.discovery import Input
    from policytool.results import Audit, Check, Comparison, Explanation, Migration, Model, Tuning
    from policytool.results.model import Result

__all__ = ["audit", "check", "diff", "explain", "inspect", "load", "migrate", "tune"]

Accepted = ParamSpec("Accepted")
Call = TypeVar("Call", bound=LimitArguments)
Call_co = TypeVar("Call_co", bound=LimitArguments, covariant=True)
Returned = TypeVar("Returned", bound="Result")


class _CallClass(Protocol[Accepted, Call_co]):
    """A class of arguments, which adds the positional ones, as type checkers see a call of it."""

    def __call__(self, *values: Accepted.args, **options: Accepted.kwargs) -> Call_co:
        """Return the arguments of a call."""

    def options(self) -> Iterator[DeclaredOption]:
        """Yield the declared options."""


class InspectCall(InspectArguments, kw_only=False):
    """The arguments of :func:`inspect`."""

    path: StrPath | LiveModel


class AuditCall(AuditArguments, kw_only=False):
    """The arguments of :func:`audit`."""

    path: StrPath


class MigrateCall(MigrateArguments, kw_only=False):
    """The arguments of :func:`migrate`."""

    path: StrPath


class DiffCall(DiffArguments, kw_only=False):
    """The arguments of :func:`diff`."""

    a: StrPath
    b: StrPath


class CheckCall(CheckArguments, kw_only=False):
    """The arguments of :func:`check`."""

    model: StrPath | LiveModel
    other: StrPath | LiveModel | None = None


class TuneCall(TuneArguments, kw_only=False):
    """The arguments of :func:`tune`."""

    model: StrPath | LiveModel


class ExplainCall(ExplainArguments, kw_only=False):
    """The arguments of :func:`explain`."""

    text: str


def _accepts(
    call: _CallClass[Accepted, Call],
) -> Callable[[Callable[[Call], Returned]], Callable[Accepted, Returned]]:
    """
    Return a decorator that replaces the only parameter of a function, an instance of a class of
    arguments, by one parameter for each argument. Limits apply while the function runs.
    """
    signature, positional = _signature(call), inspecting.get_annotations(call)
    parameters = "\n".join(
        f":param {declared.name}: {declared.declaration.help}" for declared in call.options()
    )

    def decorate(function: Callable[[Call], Returned]) -> Callable[Accepted, Returned]:
        @functools.wraps(function)
        def wrapper(*values: Accepted.args, **options: Accepted.kwargs) -> Returned:
            # the imports keep `import policytool` fast
            from policytool.results.program_values import ProgramValues
            from policytool.support.limits import override

            signature.bind(*values, **options)  # raises a TypeError that does not name the class
            arguments = call(*values, **options)
            arguments.validate()
            with override(arguments.limit or {}), ProgramValues() as program_values:
                arguments = program_values.saved(arguments, positional)
                command = program_values.command(function.__name__, arguments, positional)
                return replace(function(arguments), command=command)

        wrapper.__signature__ = signature.replace(  # type: ignore[attr-defined]  # inspect's
            return_annotation=function.__annotations__["return"]
        )
        del wrapper.__wrapped__, wrapper.__annotations__
        wrapper.__doc__ = f"{inspecting.cleandoc(function.__doc__ or '')}\n\n{parameters}"
        return wrapper

    return decorate


def _source(value: object) -> "str | Input":
    """Return a path, or the input of a model that the program passed."""
    from policytool.formats.discovery import Input

    return value if isinstance(value, Input) else fspath(cast("StrPath", value))


def _signature(call: _CallClass[Accepted, Call]) -> inspecting.Signature:
    """Return the positional parameters of a class of arguments, and its declared options."""
    positional = [
        inspecting.Parameter(
            name,
            inspecting.Parameter.POSITIONAL_OR_KEYWORD,
            default=getattr(call, name, inspecting.Parameter.empty),
            annotation=_annotation(annotation),
        )
        for name, annotation in inspecting.get_annotations(call).items()
    ]
    options = [
        inspecting.Parameter(
            declared.name,
            inspecting.Parameter.KEYWORD_ONLY,
            default=declared.default,
            annotation=_annotation(declared.annotation),
        )
        for declared in call.options()
    ]
    return inspecting.Signature([*positional, *options])


def _annotation(annotation: object) -> str:
    return inspecting.formatannotation(annotation).replace("collections.abc.", "")


@_accepts(InspectCall)
def inspect(call: InspectCall) -> "Model":
    """
    Return the saved model at ``path``: HDF5, ``.keras``, SavedModel, architecture JSON or YAML,
    TensorFlow.js, or only weights.

    The result contains the values that ``policytool inspect`` shows, and is immutable. The function
    reads the names, shapes and dtypes of weights, but not their values.

    :raises policytool.ModelFileError: if the file is not a readable model; the error has a message
        and a stable ``code``
    :raises policytool.UsageError: for unknown limits
    """
    from policytool.commands import inspect as inspection
    from policytool.results import Model

    return Model(inspection.inspect(_source(call.path)))


@_accepts(AuditCall)
def audit(call: AuditCall) -> "Audit":
    """
    Return the findings of ``policytool audit`` in the saved model at ``path``, without reading a
    settings file and without suppressing any finding.

    :raises policytool.ModelFileError: if the file is not a readable model
    :raises policytool.UsageError: for unknown targets, devices, rules and limits
    """
    from policytool.commands import audit as auditing
    from policytool.results import Audit

    return Audit(auditing.audit(fspath(call.path), auditing.audit_options(call)))


@_accepts(MigrateCall)
def migrate(call: MigrateCall) -> "Migration":
    """
    Rewrite the policies of the saved model at ``path``, or convert the model, like ``policytool
    migrate``, and return the plan and the result.

    A model that cannot be migrated or converted does not raise an error: its ``status`` is
    ``blocked``, and ``blockers`` contains the reasons. If predictions were not compared although
    that is the default, ``not_verified`` contains the reason.

    :raises policytool.ModelFileError: if the model cannot be read or written, or cannot be verified
        with ``verify=True``; the original is unchanged
    :raises policytool.UsageError: for unknown policies, patterns, releases and limits, and for
        conflicting options
    """
    from policytool.commands.migrate_all import migrate_one
    from policytool.results import Migration

    return Migration(migrate_one(fspath(call.path), call))


@_accepts(DiffCall)
def diff(call: DiffCall) -> "Comparison":
    """
    Return the differences between the saved models at ``a`` and ``b``, like ``policytool diff``.
    The models may have different formats and releases.

    :raises policytool.ModelFileError: if a file is not a readable model
    :raises policytool.UsageError: for a pattern that matches no layer, and for unknown limits
    """
    from policytool.commands import diff as comparison
    from policytool.results import Comparison

    return Comparison(
        comparison.diff(fspath(call.a), fspath(call.b), values=call.values, layer=call.layer)
    )


@_accepts(CheckCall)
def check(call: CheckCall) -> "Check":
    """
    Return whether predictions change under a policy compared with float32, or between two models,
    and the errors of every layer, like ``policytool check``.

    With ``other``, a second model, that one is the candidate, and the first is the reference. With
    ``record``, the model runs without a reference, and the run is recorded in a file. With
    ``against``, a recorded run is the reference.

    :raises policytool.ModelFileError: if a model cannot be read or run
    :raises policytool.WorkerError: if TensorFlow is missing or cannot run the models
    :raises policytool.UsageError: for unknown policies, patterns, limits and metrics
    """
    from policytool.commands import check_options
    from policytool.commands.check_releases import check_files
    from policytool.results import Check

    options = check_options.check_options(call)
    if call.other is not None:
        check_options.check_second_model(options)
    other = _source(call.other) if call.other is not None else None
    return Check(check_files(_source(call.model), other, options, call))


@_accepts(TuneCall)
def tune(call: TuneCall) -> "Tuning":
    """
    Find a minimal set of layers to keep in float32, and write the model with all other layers
    converted, like ``policytool tune``. ``to`` is required.

    :raises policytool.ModelFileError: if the model cannot be read, run or written
    :raises policytool.WorkerError: if TensorFlow is missing or cannot run the model
    :raises policytool.UsageError: for unknown policies, patterns, limits and metrics
    """
    from policytool.commands.tune import tune_file
    from policytool.commands.tune_run import tune_destination, tune_options
    from policytool.formats.discovery import Input
    from policytool.results import Tuning
    from policytool.support.errors import UsageError

    options, destination = tune_options(call), tune_destination(call)
    if isinstance(call.model, Input) and destination.output is None and destination.write:
        raise UsageError("a keras.Model has no file to write next to; set output, or preview=True")
    return Tuning(*tune_file(_source(call.model), options, destination, call))


@_accepts(ExplainCall)
def explain(call: ExplainCall) -> "Explanation":
    """
    Return the entries that explain an error message of Keras or TensorFlow, like ``policytool
    explain``: at most three, the most likely first. The text is a message or a whole traceback.
    With ``model``, the answer contains what the release does with this file.

    :raises policytool.UsageError: if the text is empty or too long, and for unknown limits
    """
    from policytool.commands.explain import explain as explain_message
    from policytool.results import Explanation

    model = fspath(call.model) if call.model is not None else None
    return Explanation(explain_message(call.text, model))


@without_collection()  # it would look through all objects of Keras again and again
def load(
    path: "StrPath | tuple[StrPath, StrPath]",
    *,
    custom_objects: "Mapping[str, Any] | None" = None,
    trust: bool = False,
) -> "Any":  # noqa: ANN401  # a class of the installed Keras
    """
    Return the saved model at ``path`` as a model of the installed Keras, whichever release wrote
    it. ``path`` may also be two paths: those of an architecture and of its weights.

    A file that the installed Keras does not load is first converted, like ``policytool migrate
    --target`` does, in a private directory. The model is compiled if its training configuration can
    be loaded. The installed Keras is tf_keras if ``TF_USE_LEGACY_KERAS`` is set. In contrast to all
    other functions, this one imports Keras into the running process.

    :param custom_objects: the custom classes and functions of the file, by name
    :param trust: whether code in the file may run, and names in it may be imported
    :raises policytool.ModelFileError: if the file cannot be read, converted or loaded, or if it
        needs objects that are neither in ``custom_objects`` nor registered
    :raises policytool.MissingPackageError: if no Keras is installed
    """
    from policytool.commands.load import load as load_file
    from policytool.results.program_values import check_type

    model, weights = path if isinstance(path, tuple) else (path, None)
    check_type("path", model)
    second = None if weights is None else fspath(weights)
    return load_file(fspath(model), second, custom_objects or {}, trust=trust)
