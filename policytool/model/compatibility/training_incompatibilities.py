"""
The measured incompatibilities between training configurations and releases: the reasons for a
failure, and the optimizer state that is lost.

The rows describe the results of real releases with the fixtures and ``compile=True``
(``fixtures/loads.py``, ``fixtures/training_state.py``), also with other losses, and with the
optimizers of all releases. ``tests/model/compatibility/test_training_incompatibilities.py``
compares them with the records. They apply to files that load with ``compile=False``; for other
files, see :mod:`policytool.model.compatibility.incompatibilities`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats.document import Layout
from policytool.formats.hdf5.read import TRAINING
from policytool.model import optimizer_config
from policytool.model.compatibility.incompatibilities import UNICODE_TEXT
from policytool.model.optimizer_config import UnmappedError, trainable_tensors
from policytool.releases import dtypes, keras_objects, known_arguments
from policytool.releases.policy import Dynamic
from policytool.releases.policy_formats import KERAS2_CLASSES
from policytool.releases.releases import LOADERS, position, releases_in
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.formats.document import Document
    from policytool.model.tree.storage import Placed
    from policytool.support.text.jsontext import Json

_SINCE_TF211: Final = ("weight_decay", "is_legacy_optimizer")
"""Keys that the optimizers of TF 2.11 and later write."""

_BEFORE_SLOTS: Final = 2
"""The number of variables before the slots: the step count and the learning rate."""

_LAYERS: Final = ("layers",)
"""The group of the layers in an archive."""

_NAMELESS: Final = "CategoricalGeneralizedCrossEntropy"
"""A loss class without a function of this name, which Keras 3.15 looks up when it loads HDF5."""

_OF_KERAS2: Final = ("jit_compile", "is_legacy_optimizer")
"""Keys of Keras 2 optimizers that Keras 3 supports in HDF5, but not in archives."""

INNER_STATE: Final = ("optimizer", "inner_optimizer")
"""The group in a ``.keras`` with the state of an optimizer that was wrapped when it was saved."""


_WITHOUT_DTYPE: Final = frozenset(
    {
        *("AUC", "BinaryIoU", "F1Score", "FBetaScore", "FalseNegatives", "FalsePositives", "IoU"),
        *("MeanIoU", "OneHotIoU", "OneHotMeanIoU", "Precision", "PrecisionAtRecall", "R2Score"),
        *("Recall", "RecallAtPrecision", "SensitivityAtSpecificity", "SpecificityAtSensitivity"),
        *("TrueNegatives", "TruePositives"),
    }
)
"""The metrics whose variables do not have the dtype of the metric in Keras 3.0 and 3.3."""


_DEFAULT_OPTIMIZER: Final = "rmsprop"
"""
The optimizer of ``compile()`` for archives that do not name one. Keras 3.15.1 writes them for a
model that it saved as HDF5 before.
"""


class TrainingEvidence(Struct, frozen=True, kw_only=True):
    """The facts about a file that the rows test."""

    document: Document
    optimizer: Json
    configuration: Json
    """The training configuration, which contains the optimizer."""

    placed: Placed
    """The layers, each with its variables."""

    keras3: bool
    """Whether Keras 3 wrote the file."""

    @property
    def outer(self) -> str:
        """The stored class of the optimizer, or of its wrapper."""
        return keras_objects.class_of(self.optimizer) or ""

    @property
    def wrapper(self) -> dict[str, Json] | None:
        """The config of the loss-scaling wrapper; None if there is none."""
        serialized = keras_objects.read(self.optimizer)
        if serialized is None or not optimizer_config.is_wrapped(self.optimizer):
            return None
        return serialized.config if isinstance(serialized.config, dict) else None

    @property
    def inner(self) -> dict[str, Json]:
        """The config of the optimizer without its wrapper."""
        serialized = keras_objects.read(optimizer_config.unwrap(self.optimizer))
        return serialized.arguments if serialized is not None else {}

    @property
    def is_never_wrapped(self) -> bool:
        """Whether the loss-scaling wrapper has an optimizer that later releases do not rebuild."""
        inner = optimizer_config.class_of(self.optimizer)
        return self.wrapper is not None and inner in optimizer_config.NEVER_WRAPPED

    @property
    def wraps_custom(self) -> bool:
        """Whether the optimizer in the wrapper is registered as Custom."""
        name = keras_objects.name_of(optimizer_config.unwrap(self.optimizer))
        return str(name).startswith("Custom>")

    @property
    def has_weights(self) -> bool:
        """Whether the file has a variable of a layer."""
        return any(tensor.path[:1] == _LAYERS for tensor in self.document.tensors or ())

    @property
    def trains_nothing(self) -> bool:
        """Whether no weight of the model is trainable."""
        if self.document.tensors is None:
            return False
        try:
            return not trainable_tensors(self.document, self.placed)
        except UnmappedError:  # there are several weights, in an unknown order
            return False

    @property
    def losses(self) -> tuple[Json, ...]:
        """The losses: a single loss, or a loss for each output."""
        loss = self.configuration.get("loss") if isinstance(self.configuration, dict) else None
        if isinstance(loss, dict) and keras_objects.class_of(loss) is None:
            return tuple(loss.values())
        return tuple(loss) if isinstance(loss, list) else (loss,)

    @property
    def metrics(self) -> tuple[keras_objects.KerasObject, ...]:
        """The metrics that are objects of a class."""
        found = self.configuration if isinstance(self.configuration, dict) else {}
        lists = {key: found.get(key) for key in ("metrics", "weighted_metrics")}
        objects = filter(None, map(keras_objects.read, keras_objects.dicts(lists)))
        kind = known_arguments.METRICS
        return tuple(each for each in objects if known_arguments.is_class(kind, each.class_name))


class TrainingRow(Struct, frozen=True, kw_only=True):
    """The result of some releases for a kind of training configuration."""

    formats: frozenset[str]
    releases: frozenset[str]
    reason: str
    """A sentence part."""

    shows: Callable[[TrainingEvidence], bool]
    advice: str


_RECOMPILE: Final = "load it with compile=False and compile it again"
_ARCHIVE: Final = (
    "to continue training, pass the LossScaleOptimizer to compile() and save the model as .keras"
)


_NEVER_WRAPPED: Final = "Keras 2 cannot rebuild a LossScaleOptimizer around this optimizer"


def _row(
    formats: str,
    releases: str,
    reason: str,
    applies: Callable[[TrainingEvidence], bool],
    advice: str = _RECOMPILE,
) -> TrainingRow:
    return TrainingRow(
        formats=frozenset(formats.split()),
        releases=releases_in(releases),
        reason=reason,
        shows=applies,
        advice=advice,
    )


def _has_other_multiplier(evidence: TrainingEvidence) -> bool:
    """Return whether the growth factor of the loss scale is not 2."""
    try:
        scale = (
            optimizer_config.scale_of(evidence.wrapper) if evidence.wrapper is not None else None
        )
    except SpellingError:
        return False
    return isinstance(scale, Dynamic) and scale.multiplier != Dynamic().multiplier


def _is_loss_of_keras2(loss: Json) -> bool:
    serialized = keras_objects.read(loss)
    return (
        serialized is not None
        and known_arguments.is_class(known_arguments.LOSSES, serialized.class_name)
        and (serialized.arguments.get("reduction") == "auto" or "fn" in serialized.arguments)
    )


def _has_array(evidence: TrainingEvidence) -> bool:
    objects = keras_objects.dicts(evidence.configuration)
    return any(keras_objects.class_of(value) == keras_objects.ARRAY for value in objects)


def _has_bare_schedule(evidence: TrainingEvidence) -> bool:
    """
    Return whether Keras 3 reads a schedule without a module. It does not read the config of a class
    that it does not find, such as ``Custom>Adam``: it uses the optimizer of the name in the config.
    """
    schedule = keras_objects.read(evidence.inner.get("learning_rate"))
    is_found = evidence.wrapper is not None or evidence.outer.lower() in optimizer_config.ALIASES
    return schedule is not None and schedule.module is None and is_found


def _warms_up(evidence: TrainingEvidence) -> bool:
    schedule = keras_objects.arguments_of(evidence.inner.get("learning_rate"))
    return "warmup_target" in schedule


def _has_slots(evidence: TrainingEvidence) -> bool:
    return any(tensor.shape for tensor in evidence.document.state)


def _has_state_in(evidence: TrainingEvidence, *group: str) -> bool:
    return any(tensor.path[: len(group)] == group for tensor in evidence.document.tensors or ())


def _has_policy(evidence: TrainingEvidence) -> bool:
    """Return whether a metric that sums has a policy, or what is no dtype, as its dtype."""
    return any(
        serialized.class_name not in _WITHOUT_DTYPE
        and (dtype := serialized.arguments.get("dtype")) is not None
        and not (isinstance(dtype, str) and dtypes.itemsize(dtype))
        for serialized in evidence.metrics
    )


def _has_policy_of_keras2(evidence: TrainingEvidence) -> bool:
    """Return whether a metric has a policy in a format that Keras 3 does not read in metrics."""
    policies = (serialized.arguments.get("dtype") for serialized in evidence.metrics)
    return any(
        isinstance(policy, dict) and keras_objects.class_of(policy) in KERAS2_CLASSES
        for policy in policies
    )


def _is_misplaced(loader: str) -> Callable[[TrainingEvidence], bool]:
    """Return a test for a loss, metric or optimizer in a module in which a release has it not."""

    def is_misplaced(evidence: TrainingEvidence) -> bool:
        objects = map(keras_objects.read, keras_objects.dicts(evidence.configuration))
        return any(
            serialized.module is not None
            and serialized.registered_name in (None, serialized.class_name)
            and known_arguments.is_misplaced(loader, serialized.module, serialized.class_name)
            for serialized in objects
            if serialized is not None
        )

    return is_misplaced


def _is_registered(evidence: TrainingEvidence) -> bool:
    """Return whether a class or function of Keras has the registered name of a custom object."""
    objects = map(keras_objects.read, keras_objects.dicts(evidence.configuration))
    return any(
        serialized.registered_name not in (None, serialized.class_name, serialized.function)
        and str(serialized.module).startswith("keras.")
        for serialized in objects
        if serialized is not None
    )


REFUSALS: Final[tuple[TrainingRow, ...]] = (
    *(
        _row(
            "json keras",
            loader,
            "a loss, metric or optimizer of Keras has a module that does not contain it",
            _is_misplaced(loader),
        )
        for loader in sorted(releases_in("keras3.0 on").intersection(LOADERS), key=position)
    ),
    # Measured with edited files of Keras 3.6 and 3.15 in Keras 3.0, 3.6 and 3.15
    _row(
        "h5 json keras",
        "after keras3.14",
        "an object of Keras has the registered name of a custom object",
        _is_registered,
    ),
    _row(
        "h5",
        "tf1.15 to tf2.4",
        UNICODE_TEXT,
        lambda evidence: TRAINING in evidence.document.unicode_attributes,
    ),
    # Measured with all 43 metric classes: in Keras 3.0 and 3.3, the others ignore their dtype
    _row(
        "json keras",
        "keras3.0 to keras3.4",
        "a metric has a policy as its dtype, which needs Keras 3.5 or later",
        _has_policy,
    ),
    _row(
        "json keras",
        "keras3.5 on",
        "a metric has a policy in the format of Keras 2",
        _has_policy_of_keras2,
    ),
    _row(
        "h5",
        "tf1.15",
        "loss-scaling optimizers need TF 2.0 or later",
        lambda evidence: evidence.wrapper is not None,
    ),
    _row(
        "h5",
        "tf1.15 to tf2.3",
        "LossScaleOptimizerV1 needs TF 2.4 or later",
        lambda evidence: evidence.outer == "LossScaleOptimizerV1",
    ),
    _row(
        "h5",
        "tf1.15 to tf2.5",
        "LossScaleOptimizerV3 needs a release later than TF 2.5",
        lambda evidence: evidence.outer == "LossScaleOptimizerV3",
    ),
    _row(
        "h5 savedmodel",
        "tf2.0 to tf2.3",
        ("LossScaleOptimizer uses the format of TF 2.4 and later, with an `inner_optimizer`"),
        lambda evidence: evidence.wrapper is not None and "inner_optimizer" in evidence.wrapper,
    ),
    _row(
        "h5",
        "tf2.4 on",
        "the growth factor of its loss scale is not 2, the only value supported since TF 2.4",
        _has_other_multiplier,
    ),
    _row(
        "h5",
        "tf1.15 to tf2.5",
        "the optimizer is from TF 2.11 or later and is registered as Custom",
        lambda evidence: evidence.outer.startswith("Custom>"),
    ),
    _row(
        "h5",
        "tf2.9",
        "the optimizer is from TF 2.11 or later and has keys that TF 2.9 does not support",
        lambda evidence: (
            optimizer_config.is_new_style(optimizer_config.unwrap(evidence.optimizer))
            and any(key in evidence.inner for key in _SINCE_TF211)
        ),
    ),
    _row(
        "savedmodel",
        "tf2.2",
        "the training configuration has no sample_weight_mode, which TF 2.2 requires",
        lambda evidence: _lacks_key(evidence.configuration, "sample_weight_mode"),
    ),
    _row(
        "h5",
        "keras3.0 on",
        ("the learning rate of the optimizer is stored as `lr`, the name used up to Keras 2.2"),
        lambda evidence: "lr" in evidence.inner,
    ),
    _row(
        "h5 keras",
        "tf1.15 to tf2.12",
        "the schedule has the argument `warmup_target`, which needs TF 2.13 or later",
        _warms_up,
    ),
    _row(
        "h5",
        "keras3.0 on",
        "Keras 3 does not find the learning rate schedule, which is stored without a module",
        _has_bare_schedule,
    ),
    _row(
        "h5 keras",
        "keras3.0 on",
        "LossScaleOptimizer uses the Keras 2 format",
        lambda evidence: evidence.wrapper is not None and "name" not in evidence.wrapper,
    ),
    _row(
        "h5 keras",
        "keras3.0 on",
        ("the loss is a Keras 2 object with arguments that Keras 3 does not support"),
        lambda evidence: any(map(_is_loss_of_keras2, evidence.losses)),
    ),
    # Measured with four losses of TF 2.15 in TF 2.4, 2.9 and 2.12
    _row(
        "h5 savedmodel",
        "tf1.15 to tf2.12",
        "the loss is an object with the argument `fn`, which needs TF 2.13 or later",
        lambda evidence: any(
            "fn" in keras_objects.arguments_of(loss) and _is_loss_of_keras2(loss)
            for loss in evidence.losses
        ),
    ),
    _row(
        "keras",
        "after tf2.12",
        "a loss or a metric has an array as an argument, which Keras 2 does not read",
        _has_array,
    ),
    # Measured with six optimizers, with and without a wrapper; unless the model was never built
    _row(
        "keras",
        "tf2.12",
        "TF 2.12 cannot build the optimizer of an archive if it is from optimizers.legacy",
        lambda evidence: (
            bool(evidence.document.tensors)
            and (_is_legacy(evidence.optimizer) or evidence.outer == "LossScaleOptimizer")
            and not evidence.keras3
        ),
    ),
    _row(
        "keras",
        "keras3.0 on",
        "the optimizer is from optimizers.legacy, which does not exist in Keras 3",
        lambda evidence: _is_legacy(evidence.optimizer),
    ),
    _row(
        "keras",
        "keras3.0 on",
        "the optimizer is from Keras 2 and has keys that Keras 3 does not support",
        lambda evidence: any(key in evidence.inner for key in _OF_KERAS2),
    ),
    _row(
        "h5",
        "keras3.0 on",
        "the optimizer is registered as Custom, but Keras 3 looks it up by the name in its config",
        lambda evidence: (
            evidence.outer.startswith("Custom>")
            and str(evidence.inner.get("name")).lower() not in optimizer_config.ALIASES
        ),
    ),
    _row(
        "h5",
        "keras3.0 on",
        "Keras 3 does not find the Lamb optimizer in HDF5 files",
        lambda evidence: evidence.outer.lower() == "lamb",
    ),
    # TF 2.12 finds an inner optimizer that it registered as Custom
    _row("h5 keras", "after tf2.12", _NEVER_WRAPPED, lambda evidence: evidence.is_never_wrapped),
    _row(
        "h5 keras",
        "tf2.12",
        _NEVER_WRAPPED,
        lambda evidence: evidence.is_never_wrapped and not evidence.wraps_custom,
    ),
    _row(
        "h5 keras",
        "tf2.12 on",
        "Keras 2 cannot rebuild Nadam for a model without trainable weights",
        lambda evidence: (
            optimizer_config.class_of(evidence.optimizer) == "Nadam"
            and optimizer_config.is_new_style(optimizer_config.unwrap(evidence.optimizer))
            and evidence.trains_nothing
        ),
    ),
    _row(
        "h5",
        "keras3.0 on",
        "Keras 3 looks up the loss CategoricalGeneralizedCrossEntropy under the wrong name",
        lambda evidence: any(keras_objects.class_of(loss) == _NAMELESS for loss in evidence.losses),
    ),
    _row(
        "keras",
        "after keras3.9",
        ("Nadam's momentum product is stored before its slots, the order used up to Keras 3.9"),
        lambda evidence: evidence.keras3 and _momentum_product_number(evidence) == _BEFORE_SLOTS,
    ),
    _row(
        "keras",
        "keras3.0 to keras3.9",
        ("Nadam's momentum product is stored after its slots, the order used since Keras 3.10"),
        lambda evidence: (
            evidence.keras3 and (_momentum_product_number(evidence) or 0) > _BEFORE_SLOTS
        ),
    ),
    _row(
        "keras",
        "tf2.15 on",
        "the LossScaleOptimizer was saved before the first step and has no name",
        lambda evidence: (
            evidence.outer == "LossScaleOptimizerV3"
            and evidence.has_weights
            and not _has_state_in(evidence, *INNER_STATE, "vars", "1")
        ),
    ),
)
"""The causes of failures; the reason is that of the first row that applies."""

LOST_STATE: Final[tuple[TrainingRow, ...]] = (
    _row(
        "h5",
        "tf2.12 on",
        "no release restores the state of LossScaleOptimizerV3 from HDF5; training "
        "restarts at step 0 with empty slots",
        lambda evidence: evidence.outer == "LossScaleOptimizerV3" and _has_slots(evidence),
        _ARCHIVE,
    ),
    _row(
        "h5",
        "keras3.0 on",
        "Keras 3 does not restore loss-scaling optimizers from HDF5; training "
        "restarts at step 0 with empty slots",
        lambda evidence: evidence.wrapper is not None and _has_slots(evidence),
        _ARCHIVE,
    ),
    _row(
        "h5",
        "keras3.0 on",
        ("Keras 3 restores only the step count of the optimizer from HDF5, not its slots"),
        lambda evidence: evidence.wrapper is None and _has_slots(evidence),
        "to continue training, save the model as .keras",
    ),
    _row(
        "keras",
        "keras3.0 on",
        "the state belongs to a loss-scaling optimizer, but the config describes its inner "
        "optimizer; training restarts at step 0 with empty slots",
        lambda evidence: (
            evidence.keras3 and evidence.wrapper is None and _has_state_in(evidence, *INNER_STATE)
        ),
        _ARCHIVE,
    ),
    _row(
        "keras",
        "tf2.12 on",
        "the archive contains no state for the optimizer, which is from optimizers.legacy; "
        "training restarts at step 0 with empty slots",
        lambda evidence: (
            _is_legacy(evidence.optimizer) and not _has_state_in(evidence, INNER_STATE[0])
        ),
        "save the model as HDF5 or as a SavedModel instead",
    ),
)
"""
The optimizer state that is lost by releases that load the training configuration.

SavedModels restore their state when training continues.
"""


def evidence(document: Document, placed: Placed, *, keras3: bool) -> TrainingEvidence | None:
    """
    Return the facts that the rows test. None for a model that is not compiled, and for formats
    without weights, except JSON.
    """
    configuration = optimizer_config.configuration(document)
    if configuration is None or (
        document.layout in {None, Layout.VARIABLE_NAMES} and document.format != "json"
    ):
        return None
    place = optimizer_config.optimizer_place(document)
    default = _DEFAULT_OPTIMIZER if document.format == "keras" else None
    return TrainingEvidence(
        document=document,
        optimizer=default if place is None else place[1],
        configuration=configuration,
        placed=placed,
        keras3=keras3,
    )


def first_matching_row(
    rows: tuple[TrainingRow, ...], evidence: TrainingEvidence, loader: str
) -> TrainingRow | None:
    """Return the first row that applies to a loader; None if no row does."""
    for row in rows:
        if (
            evidence.document.format in row.formats
            and loader in row.releases
            and row.shows(evidence)
        ):
            return row
    return None


def _is_legacy(optimizer: Json) -> bool:
    return ".legacy" in str(_module(optimizer_config.unwrap(optimizer)))


def _momentum_product_number(evidence: TrainingEvidence) -> int | None:
    """
    Return the number of the only scalar that Nadam stores besides its step count and learning rate;
    None if it stores no such scalar, or several.
    """
    if optimizer_config.class_of(evidence.optimizer) != "Nadam":
        return None
    group = INNER_STATE if evidence.wrapper is not None else INNER_STATE[:1]
    scalars = [
        int(tensor.path[-1])
        for tensor in evidence.document.tensors or ()
        if tensor.path[:-1] == (*group, "vars") and tensor.shape == ()
    ]
    others = [number for number in scalars if number >= _BEFORE_SLOTS]
    return others[0] if len(others) == 1 else None


def _lacks_key(configuration: Json, key: str) -> bool:
    return isinstance(configuration, dict) and key not in configuration


def _module(value: Json) -> Json:
    return value.get("module") if isinstance(value, dict) else None
