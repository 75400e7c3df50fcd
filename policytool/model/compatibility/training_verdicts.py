"""
Verdicts on training configurations: whether releases that load the file with ``compile=False`` also
load it with ``compile=True``.

A release fails because of a row of
:mod:`policytool.model.compatibility.training_incompatibilities`, or because it does not have a loss
or metric (:mod:`policytool.releases.known_arguments`). Losses and metrics that no release has are
custom code. The verdict is then unknown, because releases can find them in ``custom_objects``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.model import optimizer_config
from policytool.model.compatibility import optimizer_state, training_incompatibilities
from policytool.model.model import PartVerdict
from policytool.releases import keras_objects, known_arguments
from policytool.releases.releases import KERAS2, KERAS3, family_of, releases_in
from policytool.support.errors import short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.model.compatibility.training_incompatibilities import TrainingEvidence
    from policytool.releases.keras_objects import KerasObject
    from policytool.support.text.jsontext import Json

_KEYS: Final = {
    "loss": known_arguments.LOSSES,
    "metrics": known_arguments.METRICS,
    "weighted_metrics": known_arguments.METRICS,
}
_NOUNS: Final = {known_arguments.LOSSES: "loss", known_arguments.METRICS: "metric"}

_REGISTERED: Final = "Custom>"
_ARCHIVES: Final = frozenset({"json", "keras", "orbax"})
"""Formats with the config of an archive. Their objects are built when they are loaded."""

_READING_FUNCTIONS: Final = {
    "h5": releases_in("after tf2.12"),
    "keras": releases_in("tf2.12 on"),
}
"""By format, the releases of Keras 2 that read the function that TF 2.12 and later store."""

_ONE_CLASS: Final = releases_in("tf1.15 to tf2.9")
"""The releases with a single class for each optimizer."""

_LAMBDAS: Final = frozenset({"<lambda>", keras_objects.CODE})


class LossOrMetric(Struct, frozen=True, kw_only=True):
    """A loss or a metric, with its name in the file."""

    kind: str
    """:data:`~policytool.releases.known_arguments.LOSSES` or ``METRICS``."""

    name: str
    is_class: bool = False
    """Whether it is an object of a class with this name, instead of a function."""

    is_function: bool = False
    """Whether it is a serialized function, instead of a name."""

    keras3: bool
    """Whether Keras 3 wrote the file."""

    keys: frozenset[str] = frozenset()
    """The config keys of an object."""

    @property
    def is_own(self) -> bool:
        """
        Whether no release has it, either as a loss or as a metric. Only Keras 3 finds the name
        ``precision``: in the files of Keras 2, and as a serialized function, it is custom.
        """
        return not any(
            known_arguments.is_known_name(
                kind, self.name, is_function=self.is_function, keras3=self.keras3
            )
            for kind in (known_arguments.LOSSES, known_arguments.METRICS)
        )

    @property
    def is_lambda(self) -> bool:
        """Whether it is a lambda, which is a function without a name."""
        return self.name in _LAMBDAS

    @property
    def words(self) -> str:
        """The description for a sentence."""
        noun = f"the {_NOUNS[self.kind]}"
        return f"{noun}, a lambda," if self.is_lambda else f"{noun} {short(self.name)}"


def verdict(evidence: TrainingEvidence, loader: str) -> PartVerdict:
    """Return the verdict of a release on a training configuration."""
    row = training_incompatibilities.first_matching_row(
        training_incompatibilities.REFUSALS, evidence, loader
    )
    if row is not None:
        return PartVerdict(reason=row.reason)
    absent = _missing_optimizer(evidence, loader)
    if absent is not None:
        return PartVerdict(reason=f"the optimizer {absent} does not exist")
    refused_key = _refused_optimizer_key(evidence, loader)
    if refused_key is not None:
        return PartVerdict(reason=refused_key)
    objects = tuple(
        entry for entry in losses_and_metrics(evidence) if _is_looked_up(evidence, loader, entry)
    )
    missing = next((entry for entry in objects if _is_missing(evidence, loader, entry)), None)
    if missing is not None:
        is_archive = evidence.document.format in _ARCHIVES
        return PartVerdict(
            reason=f"{missing.words} "
            + (
                "does not exist"
                if is_archive
                else "cannot be found by its name in this file format"
            )
        )
    refused = next(
        (reason for entry in objects for reason in _refused_keys(evidence, loader, entry)), None
    )
    if refused is not None:
        return PartVerdict(reason=refused)
    custom_entry = next((entry for entry in objects if entry.is_own), None)
    if custom_entry is not None:
        return PartVerdict(
            doubt=f"{custom_entry.words} is custom and must be passed in custom_objects"
        )
    return PartVerdict(
        reason=optimizer_state.refusal(evidence, loader),
        doubt=_unknown_optimizer_doubt(evidence, loader),
    )


def _missing_optimizer(evidence: TrainingEvidence, loader: str) -> str | None:
    """
    Return the class of the optimizer if another release has it, but not this one. Rows decide about
    registered names such as ``Custom>Adam``, as TF 2.11 and 2.12 write them.
    """
    entry = optimizer_config.unwrap(evidence.optimizer)
    class_name = keras_objects.class_of(entry)
    if class_name is None:
        return None
    name = class_name.removeprefix(_REGISTERED)
    registered = f"{_REGISTERED}{name}"
    is_known = known_arguments.is_known(known_arguments.OPTIMIZERS, registered)
    if is_known and (
        class_name == registered
        or ((isinstance(entry, dict) and entry.get("module")) and not _lacks(loader, registered))
    ):
        return None
    if not known_arguments.is_known(known_arguments.OPTIMIZERS, name):
        return None
    return name if _lacks(loader, name) else None


def _refused_optimizer_key(evidence: TrainingEvidence, loader: str) -> str | None:
    """
    Return why a release up to TF 2.9 does not build the optimizer: its class lacks a key. Later
    releases have two classes for each optimizer, and choose by the keys.
    """
    serialized = keras_objects.read(optimizer_config.unwrap(evidence.optimizer))
    if serialized is None or loader not in _ONE_CLASS or evidence.document.format != "h5":
        return None
    name = serialized.class_name
    if not known_arguments.is_known(known_arguments.OPTIMIZERS, name):
        return None
    objection = known_arguments.objection(
        loader, known_arguments.OPTIMIZERS, name, serialized.arguments, module=False
    )
    if objection is None or not objection.refused:
        return None
    return f"the optimizer {name} has no argument `{objection.refused[0]}`"


def _lacks(loader: str, optimizer: str) -> bool:
    objection = known_arguments.objection(
        loader, known_arguments.OPTIMIZERS, optimizer, {}, module=False
    )
    return objection is not None and objection.missing


def is_always_read(evidence: TrainingEvidence, loader: str) -> bool:
    """
    Return whether a loader reads the training configuration even with ``compile=False``. Keras 3.15
    loads no Orbax checkpoint with ``compile=False``, because it reads the optimizer of the model.
    For JSON, ``model_from_json`` has no such argument, and Keras 3.0 to 3.15 compile the model.
    """
    return evidence.document.format in {"orbax", "json"} or (
        loader == "keras3.0" and evidence.document.format == "h5"
    )


def losses_and_metrics(evidence: TrainingEvidence) -> Iterator[LossOrMetric]:
    """
    Yield each loss and metric of a training configuration once, except the metrics that
    ``compile()`` chooses by shape, such as ``accuracy``, because no release looks them up.
    """
    if not isinstance(evidence.configuration, dict):
        return
    yielded: set[LossOrMetric] = set()
    is_archive = evidence.document.format in _ARCHIVES
    for key, kind in _KEYS.items():
        for name, config, is_function in _names(evidence.configuration.get(key)):
            keys = config if config is not None and known_arguments.is_class(kind, name) else ()
            entry = LossOrMetric(
                kind=kind,
                name=name,
                is_class=config is not None,
                is_function=is_function,
                keras3=evidence.keras3,
                keys=frozenset(keys),
            )
            is_by_shape = (
                kind == known_arguments.METRICS
                and not is_function
                and (name.lower() if is_archive else name) in known_arguments.BY_SHAPE
            )
            if entry not in yielded and not is_by_shape:
                yielded.add(entry)
                yield entry


def _is_looked_up(evidence: TrainingEvidence, loader: str, entry: LossOrMetric) -> bool:
    """
    Return whether a release looks up a loss or metric when it loads the file. From HDF5, Keras 3.0
    to 3.15 looks up metrics only when training begins.
    """
    return (
        evidence.document.format in _ARCHIVES
        or entry.kind == known_arguments.LOSSES
        or family_of(loader) == KERAS2
    )


def _is_missing(evidence: TrainingEvidence, loader: str, entry: LossOrMetric) -> bool:
    """
    Return whether a release lacks a loss or metric that another release has. For archives,
    ``compile()`` looks up names only when training begins.
    """
    if entry.is_own:
        return False
    if entry.is_class:
        return known_arguments.arguments(loader, entry.kind, entry.name) is None
    return evidence.document.format not in _ARCHIVES and not known_arguments.resolves_name(
        loader, "h5", entry.kind, entry.name
    )


def _refused_keys(evidence: TrainingEvidence, loader: str, entry: LossOrMetric) -> Iterator[str]:
    """
    Yield why a release does not build a loss, or a metric of an archive: its class lacks a key.
    """
    is_read_now = entry.kind == known_arguments.LOSSES or evidence.document.format in _ARCHIVES
    if entry.is_own or not is_read_now:
        return
    known = known_arguments.arguments(loader, entry.kind, entry.name)
    is_read = family_of(loader) == KERAS2 and loader in _READING_FUNCTIONS.get(
        evidence.document.format, _READING_FUNCTIONS["h5"]
    )
    keys = entry.keys - {"fn"} if is_read else entry.keys
    if entry.is_class and known and (refused := sorted(keys - known)):
        yield f"{entry.words} has no argument `{short(refused[0])}`"


def _names(value: Json) -> Iterator[tuple[str, Mapping[str, Json] | None, bool]]:
    """
    Yield the names in a value, each with the config of an object, and whether it is a serialized
    function. The config of names and functions is None. The value may be a single name, a list, or
    a list for each output.
    """
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item, None, False
        elif isinstance(item, list):
            pending += reversed(item)
        elif (serialized := keras_objects.read(item)) is not None:
            yield _name_of_object(serialized)
        elif isinstance(item, dict):
            pending += reversed(item.values())


def _name_of_object(serialized: KerasObject) -> tuple[str, Mapping[str, Json] | None, bool]:
    if serialized.function is not None:
        return serialized.function, None, True
    wrapped = serialized.arguments.get("fn")
    if serialized.class_name in known_arguments.METRIC_WRAPPERS and isinstance(wrapped, str):
        return wrapped, None, False
    return serialized.class_name, serialized.arguments, False


def _unknown_optimizer_doubt(evidence: TrainingEvidence, loader: str) -> str | None:
    """
    Return the doubt about an optimizer that is custom, or missing from the configuration although
    its variables are stored.
    """
    if evidence.optimizer is not None:
        return _custom_optimizer_doubt(evidence, loader)
    if not any(
        tensor.path[:1] == training_incompatibilities.INNER_STATE[:1]
        for tensor in evidence.document.tensors or ()
    ):
        return None
    return "the file contains variables of an unknown optimizer"


def _custom_optimizer_doubt(evidence: TrainingEvidence, loader: str) -> str | None:
    """
    Return the doubt about an optimizer that no release has. In HDF5, Keras 3 also finds optimizers
    by the names in their configs, such as a subclass of Adam.
    """
    if evidence.document.format not in {*_ARCHIVES, "h5", "savedmodel"} or evidence.wrapper:
        return None
    name = evidence.outer.rpartition(">")[2]
    names = {name.lower()}
    if evidence.document.format == "h5" and family_of(loader) == KERAS3:
        names.add(str(evidence.inner.get("name")).lower())
    if not name or not names.isdisjoint(optimizer_config.ALIASES):
        return None
    return f"the optimizer {short(name)} is custom and must be passed in custom_objects"
