"""``inspect``: reads models and selects layers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct, field

from policytool.commands.batch.task import Caching, Task
from policytool.formats import Probe, discovery, format_detection
from policytool.formats.discovery import Input  # noqa: TC001  # TASK evaluates annotations
from policytool.formats.input_identity import InputIdentity, input_identity, remote_identity
from policytool.model import reading
from policytool.model.model import Effect, Layer, Model  # TASK evaluates annotations
from policytool.support import steps
from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.files.remote_path import RemotePath
from policytool.support.patterns.matching import Matcher, check_pattern, matching_in
from policytool.support.processes import interrupts
from policytool.support.spilled_values import SpilledValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

NO_MODEL: Final = frozenset(
    {
        "foreign",
        "empty",
        "html-page",
        "no-model",
        "no-config",
        "json-not-keras",
        "yaml-not-keras",
        "tfjs-not-keras",
        "orbax-not-keras",
        "h5-not-keras",
        "invalid-json",
        "lfs-pointer",
        "checkpoint-part",
    }
)
"""
Error codes of files that are not models. Such files are skipped if they were found in a directory
or by a glob.
"""

_DAMAGED: Final = frozenset({"lfs-pointer", "empty", "invalid-json"})
_MODEL_NAMES: Final = (".h5", ".hdf5", ".keras", "keras_metadata.pb")
"""
Suffixes of model files. A file with such a name, or a model directory, is probably a damaged model
if its error code is in :data:`_DAMAGED`. It is not skipped, because a CI gate must not pass it.
"""


LOST: Final = frozenset({"worker-crashed", "worker-timeout"})
"""Error codes of files that ended the process that read them."""


Value = TypeVar("Value")


class Failure(Struct, frozen=True, kw_only=True):
    """A path that could not be read."""

    path: str
    code: str
    message: str
    details: str = ""
    """Further information that ``-v`` shows, such as the traceback of a library."""


class Inspection(Struct, frozen=True, kw_only=True):
    """The result of a call."""

    models: Sequence[Model]
    failures: tuple[Failure, ...]
    passed_over: int = 0
    """The number of skipped files from directories and globs that are not models."""


class Selection(Struct, frozen=True, kw_only=True):
    """The layers to show. Totals always include all layers."""

    layer: str | None = None
    """The path of a layer, or else a regular expression that must fully match a path."""

    only: str | None = None
    """``deprecated``, ``mixed``, or the name of a policy."""

    depth: int | None = None
    """The number of levels below the model to show."""

    every_release: bool = False
    """Whether to show the verdicts of all releases."""


def attempt(source: Input, with_sizes: bool = False) -> Model | Failure | None:  # noqa: FBT001, FBT002
    """
    Return the model of an input, its failure, or None for a discovered file that is not a model.

    :param with_sizes: whether to compute the output shapes and the numbers of parameters of the
        layers, which takes time
    """
    try:
        with steps.budget(source.display_path):
            document = format_detection.document(source.path, source.display_path)
            return reading.sized_model(document) if with_sizes else reading.model_of(document)
    except ModelFileError as error:
        return failure_of(source, error)


def _identity(source: Input) -> InputIdentity | None:
    """Return the identity of an input; None if it is unknown whether the input has changed."""
    path = source.path
    return input_identity(path) if isinstance(path, Path) else remote_identity(path)


def _refresh(source: Input) -> None:
    """Discard cached data of a remote input, so that the next read requests it again."""
    if isinstance(source.path, RemotePath):
        opening.forget()


def _is_complete(source: Input) -> bool:
    """Return whether the files of an input refer to no other files that its identity omits."""
    try:
        detected = format_detection.format_of(Probe(source.path, source.display_path))
    except (OSError, ModelFileError):
        return False
    return detected is None or not detected.names_parts


CACHING: Final[Caching[Input]] = Caching(
    identity=_identity, is_complete=_is_complete, refresh=_refresh
)
"""The functions with which ``--cache`` caches the results of reading a model."""

TASK: Final = Task(
    module=__name__, attempt=attempt, shown=lambda source: source.display_path, caching=CACHING
)
"""Reads one file."""


def failure_of(source: Input, error: ModelFileError) -> Failure | None:
    """
    Return the failure of an input; None for a discovered file that is not a model.

    :raises KeyboardInterrupt: if a signal has arrived, because a signal during a call of a C
        library can cause the error.
    """
    interrupts.check()
    if is_passed_over(source, error):
        return None
    return Failure(path=error.path, code=error.code, message=error.message)


def is_passed_over(source: Input, error: ModelFileError) -> bool:
    """
    Return whether an unreadable path is skipped without a failure: the user did not name it, and it
    does not look like a damaged model.
    """
    if source.exact or error.code not in NO_MODEL:
        return False
    is_meant = source.path.name.endswith(_MODEL_NAMES) or opening.is_directory(source.path)
    return error.code not in _DAMAGED or not is_meant


def collect(results: Iterable[Model | Failure | None]) -> Inspection:
    """Return the results as one value, in the order of the inputs."""
    models = SpilledValues(Model)
    failures, passed_over = separate_failures(results, models.append)
    return Inspection(models=models.all(), failures=failures, passed_over=passed_over)


def split_results(
    results: Iterable[Value | Failure | None],
) -> tuple[tuple[Value, ...], tuple[Failure, ...], int]:
    """Return the values, the failures, and the number of skipped files that are not models."""
    values: list[Value] = []
    failures, passed_over = separate_failures(results, values.append)
    return tuple(values), failures, passed_over


def separate_failures(
    results: Iterable[Value | Failure | None], add: Callable[[Value], object]
) -> tuple[tuple[Failure, ...], int]:
    """
    Pass each value to ``add`` as it arrives; return the failures, and the number of skipped files
    that are not models.
    """
    failures: list[Failure] = []
    passed_over = 0
    for result in results:
        if result is None:
            passed_over += 1
        elif isinstance(result, Failure):
            failures.append(result)
        else:
            add(result)
    return tuple(failures), passed_over


def inspect(path: str | Input) -> Model:
    """
    Return the saved model at ``path``, without importing TensorFlow or Keras and without reading
    its weights.

    :raises ModelFileError: if the path is not a readable model; it has a stable ``code``.
    """
    source = discovery.named_input(path, remote=True)
    with steps.budget(source.display_path):
        return reading.sized_model(format_detection.document(source.path, source.display_path))


def select_layers(model: Model, selection: Selection) -> tuple[Layer, ...]:
    """
    Return the layers of a model that match a selection.

    :raises UsageError: if the pattern is not a regular expression.
    :raises ModelFileError: if matching exceeds the limit of steps.
    """
    tests: list[Callable[[Layer], bool]] = []
    with matching_in(model.path) as matcher:
        if selection.layer is not None:
            tests.append(_path_test(selection.layer, model, matcher))
        if selection.only is not None:
            tests.append(_only_test(selection.only))
        if selection.depth is not None:
            deepest = selection.depth
            tests.append(lambda layer: layer.path.count("/") <= deepest)
        return tuple(layer for layer in model.layers if all(test(layer) for test in tests))


def check_selection(
    results: Iterable[Model | Failure | None], selection: Selection
) -> Iterator[Model | Failure | None]:
    """
    Yield each result, or a failure for a model on which the pattern exceeds the limit of steps.

    :raises UsageError: if the pattern is not a regular expression.
    """
    for result in results:
        if isinstance(result, Model) and selection.layer is not None:
            try:
                select_layers(result, selection)
            except ModelFileError as error:
                yield Failure(path=error.path, code=error.code, message=error.message)
                continue
        yield result


class SuggestedFix(Struct, frozen=True, kw_only=True):
    """The command that ``audit`` prints for a model, or why it could not be planned."""

    arguments: tuple[str, ...] | None = None
    """The arguments after ``policytool migrate PATH``; None if no command was planned."""

    effect: Effect = Effect.UNCHANGED
    """The effect of the command on the results of the model."""

    existing: str | None = None
    """The output of the command, which may be its result, if it exists and is not the model."""

    obstacle: str | None = None
    """Why no command was planned, such as a limit that was exceeded; None if there is one."""


class FittingArchitectures(Struct, frozen=True, kw_only=True):
    """The architectures next to weights that the weights fit."""

    names: tuple[str, ...]
    """The names of the files in the directory of the weights."""

    command: tuple[str, ...] | None = None
    """
    The arguments after ``policytool migrate`` that join the weights with the first file; None if
    the result cannot be converted, or if each file has its own weights.
    """


class ExportSummary(Struct, frozen=True, kw_only=True):
    """Whether Keras exports a model to a format."""

    exporter: str
    failing: str | None = None
    """The class that fails first; None if none does."""

    unmeasured: str | None = None
    """The class or operation that was not measured; None if all were."""

    weights: tuple[str, ...] = ()
    """The dtypes of the weights in the exported file."""


class ModelExtras(Struct, frozen=True, kw_only=True):
    """What reports show in addition to a model, which is read from more than its config."""

    fix: SuggestedFix | None = None
    """None if the newest Keras loads the model, or if no command is known to help."""

    fits: FittingArchitectures | None = None
    """The architectures next to a file of weights that they fit; None if there are none."""

    exports: tuple[ExportSummary, ...] = ()
    """Empty if the newest Keras fails to load the model."""


class SelectedInspection(Struct, frozen=True, kw_only=True):
    """An inspection, and for each of its models the layers to show."""

    inspection: Inspection
    selection: Selection = Selection()
    extras: Mapping[str, ModelExtras] = field(default_factory=dict)
    """What reports show in addition to a model, by its path."""

    @property
    def is_selection(self) -> bool:
        """Whether layers were selected by name or policy, so that all of them are shown."""
        return self.selection.layer is not None or self.selection.only is not None

    def shown(self) -> Iterator[tuple[Model, tuple[Layer, ...]]]:
        """Yield each model with the layers to show."""
        for model in self.inspection.models:
            yield model, select_layers(model, self.selection)


def select(inspection: Inspection, selection: Selection) -> SelectedInspection:
    """Return the inspection with a selection of layers."""
    return SelectedInspection(inspection=inspection, selection=selection)


def _path_test(pattern: str, model: Model, matcher: Matcher) -> Callable[[Layer], bool]:
    if any(pattern in {layer.path, *layer.also_at} for layer in model.layers):
        return lambda layer: pattern in {layer.path, *layer.also_at}
    check_pattern(pattern, f"--layer {pattern!r} is not a layer path and")
    return lambda layer: any(
        matcher.fullmatch(pattern, path) for path in (layer.path, *layer.also_at)
    )


def _only_test(only: str) -> Callable[[Layer], bool]:
    """Return a function that tests whether a layer has the policy of ``--only``."""
    match only:
        case "deprecated":
            return lambda layer: layer.deprecated
        case "mixed":
            return lambda layer: (
                layer.policy is not None and layer.compute_dtype != layer.variable_dtype
            )
        case name:
            return lambda layer: layer.policy == name
