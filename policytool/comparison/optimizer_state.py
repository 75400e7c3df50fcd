"""
The optimizer's variables of two models: the slots of weights that belong together, whatever each
file calls them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.comparison import variables
from policytool.model import optimizer_config
from policytool.model.model import Variable
from policytool.model.optimizer_variables import (
    OptimizerState,
    StyledOptimizer,
    is_in_use,
    read_optimizer,
    read_state,
)
from policytool.model.trainable_weights import UnmappedError, trainable_tensors
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.comparison.pairing import ComparedModel
    from policytool.comparison.result import VariablePair
    from policytool.comparison.variables import Named, Opened
    from policytool.formats.document import Tensor
    from policytool.support.text.jsontext import Json

_FORMER_DECAY: Final = "schedule_decay"
"""What standalone Keras calls the ``decay`` of Nadam."""

_GROUP: Final = "optimizer"
"""The group of ``.keras`` weights that holds the optimizer's variables."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadState:
    """The state of one file's optimizer."""

    optimizer: StyledOptimizer
    state: OptimizerState

    def keeps(self, weight: Tensor, kind: str) -> bool:
        """Return whether a slot is one that steps of training read."""
        return is_in_use(self.optimizer, kind, weight.shape or ())


def stored_variables(subject: ComparedModel) -> list[Named]:
    """Return the optimizer's stored variables, by their whole path."""
    document = subject.document
    below = [
        tensor
        for tensor in document.tensors or ()
        if document.format == "keras" and tensor.path[0] == _GROUP
    ]
    return [_named_tensor(tensor) for tensor in (*document.state, *below)]


def optimizer_of(subject: ComparedModel) -> StyledOptimizer | None:
    """Return a file's optimizer; None where it has none that a release writes."""
    if subject.loaded is None:
        return None
    try:
        return read_optimizer(subject.loaded, subject.optimizer)
    except SpellingError:  # an observation of the file tells it
        return None


def optimizer_configs(
    a: ComparedModel, b: ComparedModel
) -> tuple[dict[str, Json], dict[str, Json]]:
    """
    Return the configs of both optimizers, without a wrapper for loss scaling. If one file has a
    schedule, a decay in the other is returned as the equivalent schedule.
    """
    optimizers = [optimizer_of(side) for side in (a, b)]
    config_a, config_b = (dict(side.config) if side is not None else {} for side in optimizers)
    for side, config, other_config in zip(
        optimizers, (config_a, config_b), (config_b, config_a), strict=True
    ):
        if _FORMER_DECAY in config:
            config["decay"] = config.pop(_FORMER_DECAY)
        schedule = (
            optimizer_config.schedule_of_decay(side.class_name, config)
            if side is not None
            else None
        )
        if schedule is not None and isinstance(other_config.get("learning_rate"), dict):
            config |= {"decay": None, "lr": None, "learning_rate": schedule}
    return config_a, config_b


def read_optimizer_state(subject: ComparedModel) -> ReadState | None:
    """Return a file's state; None where it is not known what its variables are."""
    optimizer = optimizer_of(subject)
    if optimizer is None or subject.loaded is None:
        return None
    try:
        trainable = trainable_tensors(subject.loaded.document, subject.loaded.placed)
        state = read_state(subject.loaded, optimizer, trainable)
    except UnmappedError:  # a note says that the variables are not compared
        return None
    return ReadState(optimizer=optimizer, state=state) if state is not None else None


def are_named_alike(a: ComparedModel, b: ComparedModel) -> bool:
    """
    Return whether the names of variables whose meaning is not known tell which belong together:
    HDF5 has names, an archive numbers. A file without variables lacks those of the other.
    """
    if not a.document.format == b.document.format == "keras":
        return a.document.format == b.document.format == "h5"
    ones, others = (
        {(variable.name, variable.shape) for variable, _ in stored_variables(side)}
        for side in (a, b)
    )
    return ones == others or not (ones and others)


def state_pairs(
    a: ReadState, b: ReadState, weights: Mapping[Tensor, Tensor], opened: Opened
) -> tuple[VariablePair, ...]:
    """
    Pair the variables of two states; slots are paired by their weights.

    :param weights: the stored weights of A that are also in B, each with its counterpart
    """
    return tuple(
        variables.paired_by_slot(
            _named_tensor(tensor_a) if tensor_a is not None else None,
            _named_tensor(tensor_b) if tensor_b is not None else None,
            opened,
        )
        for tensor_a, tensor_b in _paired_tensors(a, b, weights)
    )


def _paired_tensors(
    a: ReadState, b: ReadState, weights: Mapping[Tensor, Tensor]
) -> Iterator[tuple[Tensor | None, Tensor | None]]:
    """
    Yield pairs of tensors, and slots in use that only one file has. A tensor that exists once per
    file, such as the iterations, is left out if the other file lacks it.
    """
    once = [(side.iterations, side.rate, side.schedule, *side.own) for side in (a.state, b.state)]
    yield from (
        (tensor_a, tensor_b)
        for tensor_a, tensor_b in zip(*once, strict=False)
        if tensor_a is not None and tensor_b is not None
    )
    left = dict(b.state.slots)
    for (weight, kind), tensor_a in a.state.slots.items():
        weight_b = weights.get(weight)
        tensor_b = left.pop((weight_b, kind), None) if weight_b is not None else None
        if tensor_b is not None or a.keeps(weight, kind):
            yield tensor_a, tensor_b
    yield from (
        (None, tensor_b) for (weight, kind), tensor_b in left.items() if b.keeps(weight, kind)
    )


def _named_tensor(tensor: Tensor) -> Named:
    return (
        Variable(
            name="/".join(tensor.path[1:]).removesuffix(":0"),
            shape=tensor.shape,
            dtype=tensor.dtype,
        ),
        tensor,
    )
