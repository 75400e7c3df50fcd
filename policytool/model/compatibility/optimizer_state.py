"""
Comparison of the stored variables of an optimizer with those that a release creates for the
trainable weights.

An archive numbers the variables. If their number differs, Keras warns and starts with a new state.
If the number is equal and a shape differs, loading with the training configuration fails
(``load_own_variables`` in keras/src/optimizers/base_optimizer.py). HDF5 lists the names of the
variables. If one of them is not stored, loading fails; if shapes or numbers differ, Keras warns and
starts with a new state (``load_model_from_hdf5`` in keras/src/legacy/saving/legacy_h5_format.py).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from policytool.model import optimizer_config
from policytool.model.compatibility.expected_variables import shape_text
from policytool.model.optimizer_config import UnmappedError, trainable_tensors
from policytool.model.optimizer_variables.slots import (
    INNER,
    ITERATIONS,
    OUTER,
    RATE,
    Position,
    Style,
    StyledOptimizer,
    positions,
)
from policytool.releases.releases import releases_in
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.document import Tensor
    from policytool.model.compatibility.training_incompatibilities import TrainingEvidence

_Path = tuple[str, ...]

_OF_WRAPPER: Final = tuple(map(Position, (ITERATIONS, RATE, "step_counter", "dynamic_scale")))
"""The variables of a Keras 3 wrapper, which it stores before those of the optimizer."""

_STORES_TWICE: Final = releases_in("tf2.15 on")
"""The releases of Keras 2 in which a wrapper also stores the variables of its optimizer."""

_BEFORE_SLOTS: Final = 2
"""The number of variables that an optimizer stores before training creates its slots."""

_FIRST_INNER: Final = (OUTER[0], "_optimizer", OUTER[-1])
"""The group of the state in a wrapper in TF 2.13."""


def refusal(evidence: TrainingEvidence, loader: str) -> str | None:
    """Return the reason why a release fails to restore the state of the optimizer, or None."""
    document = evidence.document
    if document.missing_state:
        return f"the optimizer's variable {document.missing_state[0]} is listed, but not stored"
    if document.format != "keras":
        return None
    groups = list(_groups(evidence, loader))
    created, stored = groups[-1] if groups else ((), ())
    if len(groups) > 1 and not evidence.keras3 and len(created) != len(stored):
        return (
            f"LossScaleOptimizerV3 has {len(created)} variables, but {len(stored)} are stored, and "
            "Keras fails to print its warning"
        )
    return next(
        (
            f"the optimizer's {_variable_label(evidence, position)} has the shape "
            f"{shape_text(position.shape)}, but {shape_text(tensor.shape or ())} is stored"
            for created, stored in groups
            if len(created) == len(stored)
            for position, tensor in zip(created, stored, strict=True)
            if tensor.shape != position.shape
        ),
        None,
    )


def loss(evidence: TrainingEvidence, loader: str) -> str | None:
    """Return the reason why a release starts with a new state without an error, or None."""
    if evidence.document.format != "keras":
        return None
    groups = list(_groups(evidence, loader))
    if not groups or any(len(created) == len(stored) for created, stored in groups):
        return None  # the state of a wrapped optimizer is stored twice
    created, stored = groups[0]
    if len(stored) <= _BEFORE_SLOTS:
        return None  # the model was saved before it was trained
    return (
        f"the optimizer has {len(created)} variables, but {len(stored)} are stored; training "
        "restarts at step 0 with empty slots"
    )


def continuation(evidence: TrainingEvidence) -> str:
    """Return how to continue the training of a model whose optimizer state is lost."""
    if any(map(optimizer_config.quantization_modes, evidence.placed.sites)):
        return "to continue training, load the model that was not quantized"
    return "to continue training, copy it again"


def _groups(
    evidence: TrainingEvidence, loader: str
) -> Iterator[tuple[Sequence[Position], Sequence[Tensor]]]:
    """Yield the variables of each group of an archive that a release creates, and those stored."""
    stored = _stored_groups(evidence)
    optimizer = _optimizer_with_style(evidence)
    if optimizer is None:
        return
    is_wrapped = evidence.wrapper is not None
    try:
        shapes = [
            tensor.shape or () for tensor in trainable_tensors(evidence.document, evidence.placed)
        ]
        created = positions(optimizer, shapes, loader, is_wrapped=is_wrapped and evidence.keras3)
    except UnmappedError:
        return
    if not is_wrapped:
        yield created, stored.get(OUTER, ())
        return
    yield created, stored.get(INNER) or stored.get(_FIRST_INNER, ())
    if evidence.keras3:
        yield (*_OF_WRAPPER, *created), stored.get(OUTER, ())
    elif loader in _STORES_TWICE:
        yield created, stored.get(OUTER, ())


def _stored_groups(evidence: TrainingEvidence) -> Mapping[_Path, Sequence[Tensor]]:
    """Return the stored variables of the optimizer by group, in the order of their numbers."""
    groups: dict[_Path, dict[int, Tensor]] = defaultdict(dict)
    for tensor in evidence.document.tensors or ():
        if tensor.path[0] == OUTER[0] and tensor.path[-1].isdigit():
            groups[tensor.path[:-1]][int(tensor.path[-1])] = tensor
    return {
        path: [tensors[number] for number in sorted(tensors)] for path, tensors in groups.items()
    }


def _optimizer_with_style(evidence: TrainingEvidence) -> StyledOptimizer | None:
    try:
        class_and_config = optimizer_config.innermost(evidence.optimizer)
    except SpellingError:
        return None
    if class_and_config is None:
        return None
    if not evidence.keras3 and not optimizer_config.is_new_style(
        optimizer_config.unwrap(evidence.optimizer)
    ):
        return None  # archives do not store the state of optimizers.legacy
    class_name, config = class_and_config
    style = Style.KERAS3 if evidence.keras3 else Style.NEW
    return StyledOptimizer(class_name=class_name, config=config, style=style)


def _variable_label(evidence: TrainingEvidence, position: Position) -> str:
    """Return the name of a variable: its slot and its weight, or its own name."""
    if position.weight is None:
        return position.kind
    weight = trainable_tensors(evidence.document, evidence.placed)[position.weight]
    placed = evidence.placed
    names = (
        f"{position.kind} of variable {name} of {site.class_name} {site.name}"
        for index, site in enumerate(placed.sites)
        for name, tensor in placed.named_tensors(index)
        if tensor == weight
    )
    return next(names, position.kind)
