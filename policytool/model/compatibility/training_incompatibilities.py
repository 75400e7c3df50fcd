"""
What loaders make of a saved training configuration: why they refuse it, and what of the optimizer's
state they lose.

The rows stand for what the real loaders said of the fixtures with ``compile=True``
(``fixtures/loads.py``, ``fixtures/training_state.py``), of their training configurations with other
losses, and with the optimizers of all releases;
``tests/model/compatibility/test_training_incompatibilities.py`` holds them against the records.
They are about files that load with ``compile=False``: for the others see
:mod:`policytool.model.compatibility.incompatibilities`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Layout
from policytool.model import optimizer_config
from policytool.releases.policy import Dynamic
from policytool.releases.releases import releases_in
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.formats.document import Document
    from policytool.support.text.jsontext import Json

_SHORT_LOSSES: Final = frozenset({"mse", "mae", "mape", "msle", "bce", "kld"})
"""
Short names of losses, in either case: Keras 3 writes them to HDF5 as they were given, and does not
find them there (3.0 to 3.15).
"""

_OLD_LOSSES: Final = frozenset(
    {"huber_loss", "logcosh", "kullback_leibler_divergence", "cosine_proximity"}
)
"""Names of losses in Keras 2 that Keras 3 has under others."""

_SINCE_TF211: Final = ("weight_decay", "is_legacy_optimizer")
"""Keys that the optimizers of TF 2.11 on write."""

INNER_STATE: Final = ("optimizer", "inner_optimizer")
"""Where a ``.keras`` has the state of an optimizer that was wrapped when it was saved."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingEvidence:
    """What the rows look at."""

    document: Document
    optimizer: Json
    configuration: Json
    """The training configuration that holds the optimizer."""

    keras3: bool
    """Whether Keras 3 wrote the file."""

    @property
    def outer(self) -> str:
        """The class of the optimizer, or of the wrapper around it, as it is written."""
        return str(self.optimizer.get("class_name")) if isinstance(self.optimizer, dict) else ""

    @property
    def wrapper(self) -> dict[str, Json] | None:
        """The config of the loss-scaling wrapper; None where there is none."""
        config = (
            self.optimizer.get("config")
            if isinstance(self.optimizer, dict) and optimizer_config.is_wrapped(self.optimizer)
            else None
        )
        return config if isinstance(config, dict) else None

    @property
    def inner(self) -> dict[str, Json]:
        """The config of the optimizer itself."""
        value = optimizer_config.unwrap(self.optimizer)
        config = value.get("config") if isinstance(value, dict) else None
        return config if isinstance(config, dict) else {}

    @property
    def losses(self) -> tuple[Json, ...]:
        """The losses, one or one for each output."""
        loss = self.configuration.get("loss") if isinstance(self.configuration, dict) else None
        if isinstance(loss, dict) and "class_name" not in loss:
            return tuple(loss.values())
        return tuple(loss) if isinstance(loss, list) else (loss,)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """What some releases make of a kind of training configuration."""

    format: str
    releases: frozenset[str]
    reason: str
    """A sentence part."""

    shows: Callable[[TrainingEvidence], bool]
    advice: str


_ANEW: Final = "load it with compile=False and compile it anew"
_ARCHIVE: Final = (
    "save models that are to be trained on as .keras, with the LossScaleOptimizer passed to "
    "compile()"
)


def _row(
    form: str,
    releases: str,
    reason: str,
    shows: Callable[[TrainingEvidence], bool],
    advice: str = _ANEW,
) -> TrainingRow:
    return TrainingRow(
        format=form, releases=releases_in(releases), reason=reason, shows=shows, advice=advice
    )


def _multiplies(found: TrainingEvidence) -> bool:
    """Return whether the loss scale grows by something else than 2."""
    try:
        scale = optimizer_config.scale_of(found.wrapper) if found.wrapper is not None else None
    except SpellingError:
        return False
    return isinstance(scale, Dynamic) and scale.multiplier != Dynamic().multiplier


def _loss_named(names: frozenset[str]) -> Callable[[TrainingEvidence], bool]:
    return lambda found: any(
        isinstance(loss, str) and loss.lower() in names for loss in found.losses
    )


def _is_loss_of_keras2(loss: Json) -> bool:
    config = loss.get("config") if isinstance(loss, dict) else None
    return isinstance(config, dict) and (config.get("reduction") == "auto" or "fn" in config)


def _schedule_alone(found: TrainingEvidence) -> bool:
    rate = found.inner.get("learning_rate")
    return isinstance(rate, dict) and "class_name" in rate and "module" not in rate


def _has_slots(found: TrainingEvidence) -> bool:
    return any(tensor.shape for tensor in found.document.state)


def _state_at(found: TrainingEvidence, *group: str) -> bool:
    return any(tensor.path[: len(group)] == group for tensor in found.document.tensors or ())


REFUSALS: Final[tuple[TrainingRow, ...]] = (
    _row(
        "h5",
        "tf1.15",
        "loss-scaling optimizers came with TF 2.0",
        lambda found: found.wrapper is not None,
    ),
    _row(
        "h5",
        "tf1.15 to tf2.3",
        "LossScaleOptimizerV1 came with TF 2.4",
        lambda found: found.outer == "LossScaleOptimizerV1",
    ),
    _row(
        "h5",
        "tf1.15 to tf2.5",
        "LossScaleOptimizerV3 came after TF 2.5",
        lambda found: found.outer == "LossScaleOptimizerV3",
    ),
    _row(
        "h5",
        "tf2.0 to tf2.3",
        "LossScaleOptimizer is spelled as TF 2.4 and later do, with an inner_optimizer",
        lambda found: found.wrapper is not None and "inner_optimizer" in found.wrapper,
    ),
    _row(
        "h5",
        "tf2.4 on",
        "its loss scale grows by another number than 2, the only one since TF 2.4",
        _multiplies,
    ),
    _row(
        "h5",
        "tf1.15 to tf2.5",
        "the optimizer is one of TF 2.11 and later, which is registered as Custom",
        lambda found: found.outer.startswith("Custom>"),
    ),
    _row(
        "h5",
        "tf2.9",
        "the optimizer is one of TF 2.11 and later, with keys that TF 2.9 does not know",
        lambda found: (
            optimizer_config.is_new_style(optimizer_config.unwrap(found.optimizer))
            and any(key in found.inner for key in _SINCE_TF211)
        ),
    ),
    _row(
        "savedmodel",
        "tf2.2",
        "TF 2.3 and later leave out sample_weight_mode",
        lambda found: _lacks(found.configuration, "sample_weight_mode"),
    ),
    _row(
        "h5",
        "keras3.0 on",
        "the optimizer's learning rate is called lr, as Keras up to 2.2 wrote it",
        lambda found: "lr" in found.inner,
    ),
    _row(
        "h5",
        "keras3.0 on",
        "the learning rate is a schedule that is named without its module, where Keras 3 does not "
        "find it",
        _schedule_alone,
    ),
    _row(
        "h5",
        "keras3.0 on",
        "LossScaleOptimizer is spelled as Keras 2 does",
        lambda found: found.wrapper is not None and "name" not in found.wrapper,
    ),
    _row(
        "h5",
        "keras3.0 on",
        "the loss is saved under a short name such as 'mse', which Keras 3 does not find in HDF5",
        _loss_named(_SHORT_LOSSES),
    ),
    _row(
        "h5",
        "keras3.0 on",
        "the loss has a name that Keras 3 has not",
        _loss_named(_OLD_LOSSES),
    ),
    _row(
        "h5",
        "keras3.0 on",
        "the loss is an object of Keras 2, with arguments that Keras 3 does not take",
        lambda found: any(map(_is_loss_of_keras2, found.losses)),
    ),
)
"""Why loaders refuse a training configuration; the first row that applies gives the reason."""

LOST: Final[tuple[TrainingRow, ...]] = (
    _row(
        "h5",
        "tf2.12 on",
        "no Keras restores the state of LossScaleOptimizerV3 from HDF5: training goes on with step "
        "0 and empty slots",
        lambda found: found.outer == "LossScaleOptimizerV3" and _has_slots(found),
        _ARCHIVE,
    ),
    _row(
        "h5",
        "keras3.0 on",
        "Keras 3 restores nothing of a loss-scaling optimizer from HDF5: training goes on with "
        "step 0 and empty slots",
        lambda found: found.wrapper is not None and _has_slots(found),
        _ARCHIVE,
    ),
    _row(
        "h5",
        "keras3.0 on",
        "Keras 3 restores the number of steps from HDF5 and none of the optimizer's slots",
        lambda found: found.wrapper is None and _has_slots(found),
        "save models that are to be trained on as .keras",
    ),
    _row(
        "keras",
        "keras3.0 on",
        "the state is that of a loss-scaling optimizer, the config has the plain one: training "
        "goes on with step 0 and empty slots",
        lambda found: found.keras3 and found.wrapper is None and _state_at(found, *INNER_STATE),
        _ARCHIVE,
    ),
    _row(
        "keras",
        "tf2.12 on",
        "the archive has no state of its optimizer, which is one of optimizers.legacy: training "
        "goes on with step 0 and empty slots",
        lambda found: (
            ".legacy" in str(_module(optimizer_config.unwrap(found.optimizer)))
            and not _state_at(found, INNER_STATE[0])
        ),
        "save models with such an optimizer as HDF5 or as a SavedModel",
    ),
)
"""
What loaders that take the training configuration lose of the optimizer's state.

SavedModels restore theirs when training goes on.
"""


def evidence(document: Document, *, keras3: bool) -> TrainingEvidence | None:
    """
    Return what the rows look at; None for a model that is not compiled, and for what holds no
    weights.
    """
    place = optimizer_config.optimizer_place(document)
    if place is None or document.layout in {None, Layout.VARIABLE_NAMES}:
        return None
    return TrainingEvidence(
        document=document,
        optimizer=place[1],
        configuration=optimizer_config.configuration(document),
        keras3=keras3,
    )


def first(
    rows: tuple[TrainingRow, ...], found: TrainingEvidence, loader: str
) -> TrainingRow | None:
    """Return the first row that applies to a loader; None where none does."""
    for row in rows:
        if row.format == found.document.format and loader in row.releases and row.shows(found):
            return row
    return None


def _lacks(configuration: Json, key: str) -> bool:
    return isinstance(configuration, dict) and key not in configuration


def _module(value: Json) -> Json:
    return value.get("module") if isinstance(value, dict) else None
