"""What stands beside the layers: the optimizer with its state, and the signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.comparison import layers, optimizer_state, variables
from policytool.comparison.result import Aspect, Presence, Section, ValueChange
from policytool.releases.policy import loss_scale_values
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from policytool.comparison.pairing import ComparedModel
    from policytool.comparison.result import VariablePair
    from policytool.comparison.variables import Opened
    from policytool.formats.document import Signature, Tensor
    from policytool.support.text.jsontext import Absent, Json


def holds_optimizer(subject: ComparedModel) -> bool:
    """Return whether the format can hold an optimizer."""
    document = subject.document
    if (
        document.format == "tfjs"
    ):  # save_keras_model drops it, and the converter of HDF5 files keeps it
        return document.training_part is not None
    return document.format in {"h5", "keras", "savedmodel"} and document.config_part is not None


def optimizer_section(
    a: ComparedModel,
    b: ComparedModel,
    weights: Callable[[], Mapping[Tensor, Tensor]],
    opened: Opened,
) -> Section | None:
    """
    Return the differences between the optimizers; None if neither file has an optimizer, or if the
    format of one file cannot store one.

    :param weights: returns the stored variables of A that are also in B, each with its counterpart
    """
    if not (holds_optimizer(a) and holds_optimizer(b)) or (
        a.optimizer is None and b.optimizer is None
    ):
        return None
    if a.optimizer is None or b.optimizer is None:
        return Section(name="optimizer", presence=Presence.B if a.optimizer is None else Presence.A)
    changes: list[ValueChange] = []
    optimizer_a, optimizer_b = a.model.optimizer, b.model.optimizer
    if optimizer_a is not None and optimizer_b is not None:
        if optimizer_a.class_name != optimizer_b.class_name:
            changes.append(
                ValueChange(aspect=Aspect.CLASS, a=optimizer_a.class_name, b=optimizer_b.class_name)
            )
        if optimizer_a.loss_scale != optimizer_b.loss_scale:
            changes.append(
                ValueChange(
                    aspect=Aspect.LOSS_SCALE,
                    a=loss_scale_values(optimizer_a.loss_scale),
                    b=loss_scale_values(optimizer_b.loss_scale),
                )
            )
    changes += layers.configs(*optimizer_state.optimizer_configs(a, b))
    return Section(
        name="optimizer",
        presence=Presence.BOTH,
        changes=tuple(changes),
        variables=_state(a, b, weights, opened),
    )


def _state(
    a: ComparedModel,
    b: ComparedModel,
    weights: Callable[[], Mapping[Tensor, Tensor]],
    opened: Opened,
) -> tuple[VariablePair, ...]:
    state_a, state_b = (
        optimizer_state.read_optimizer_state(a),
        optimizer_state.read_optimizer_state(b),
    )
    if state_a is not None and state_b is not None:
        return optimizer_state.state_pairs(state_a, state_b, weights(), opened)
    if optimizer_state.are_named_alike(a, b):
        variables_a, variables_b = (optimizer_state.stored_variables(side) for side in (a, b))
        return variables.pairs(variables_a, variables_b, opened)
    return ()


def has_like_state(a: ComparedModel, b: ComparedModel) -> bool:
    """Return whether it is known which variables of both optimizers belong together."""
    known = [optimizer_state.read_optimizer_state(side) is not None for side in (a, b)]
    return all(known) or optimizer_state.are_named_alike(a, b)


def signature_sections(a: ComparedModel, b: ComparedModel) -> tuple[Section, ...]:
    """Return how the signatures differ of two files that can have some."""
    if not (a.document.format == b.document.format == "savedmodel"):
        return ()
    ones, others = (
        {signature.name: signature for signature in side.model.signatures} for side in (a, b)
    )
    return tuple(
        _signature_section(name, ones.get(name), others.get(name))
        for name in sorted(ones.keys() | others.keys())
    )


def _signature_section(
    name: str, signature_a: Signature | None, signature_b: Signature | None
) -> Section:
    if signature_a is None or signature_b is None:
        return Section(name=name, presence=Presence.B if signature_a is None else Presence.A)
    changes = [
        *_argument_changes("input", signature_a.inputs, signature_b.inputs),
        *_argument_changes("output", signature_a.outputs, signature_b.outputs),
    ]
    if (
        signature_a.compute_dtypes != signature_b.compute_dtypes
        and signature_a.compute_dtypes
        and signature_b.compute_dtypes
    ):
        changes.append(
            ValueChange(
                aspect=Aspect.TRACED,
                a=list(signature_a.compute_dtypes),
                b=list(signature_b.compute_dtypes),
            )
        )
    return Section(name=name, presence=Presence.BOTH, changes=tuple(changes))


def _argument_changes(
    kind: str, arguments_a: Mapping[str, str], arguments_b: Mapping[str, str]
) -> Iterator[ValueChange]:
    for name in sorted(arguments_a.keys() | arguments_b.keys()):
        before: Json | Absent = arguments_a.get(name, ABSENT)
        after: Json | Absent = arguments_b.get(name, ABSENT)
        if before != after:
            yield ValueChange(aspect=Aspect.SIGNATURE, key=f"{kind} {name}", a=before, b=after)
