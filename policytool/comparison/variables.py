"""
Pairs the stored variables of two layers or optimizers, and compares their values; also compares
optimizers with their states, and signatures.

Two slots of an optimizer are paired if their weights are paired, even if their names differ.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.comparison import layers
from policytool.comparison.result import (
    Aspect,
    ComparisonVerdict,
    Presence,
    Section,
    ValueChange,
    ValueComparison,
    VariablePair,
)
from policytool.model import optimizer_config
from policytool.model.model import Variable
from policytool.model.optimizer_config import UnmappedError, trainable_tensors
from policytool.model.optimizer_variables import (
    OptimizerState,
    StyledOptimizer,
    is_in_use,
    read_optimizer,
    read_state,
)
from policytool.model.tree import STATE
from policytool.releases.policy import loss_scale_values
from policytool.support.errors import SpellingError
from policytool.support.grouping import group_pairs
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from policytool.formats.document import Tensor
    from policytool.formats.document import Values as Stored

    Named = tuple[Variable, Tensor]
    from collections.abc import Iterator, Mapping

    from policytool.comparison.pairing import ComparedModel
    from policytool.formats.document import Signature, Tensor
    from policytool.support.text.jsontext import Absent, Json


UNREAD: Final = "values were not read"


class Opened(Struct, frozen=True, kw_only=True):
    """
    The opened values of both models; None for a model that stores no values, or if values are not
    compared.
    """

    a: Stored | None = None
    b: Stored | None = None
    reason: str = UNREAD
    """Why values are not compared, if ``a`` or ``b`` is None."""


def pair_variables(
    a: Sequence[Named], b: Sequence[Named], opened: Opened
) -> tuple[VariablePair, ...]:
    """
    Pair and compare the variables of two layers: first the variables of A in their order, and then
    those that are only in B.
    """
    matched = _match_variables(a, b, opened)
    at = {id(named_a): (named_b, pairing) for named_a, named_b, pairing in matched}
    matched_ids = {id(named_b) for _, named_b, _ in matched}
    result = []
    for named_a in a:
        named_b, pairing = at.get(id(named_a), (None, None))
        values = compare_variables(named_a, named_b, opened) if named_b is not None else _missing()
        result.append(
            VariablePair(
                a=named_a[0],
                b=named_b[0] if named_b is not None else None,
                values=values,
                paired=pairing,
            )
        )
    return (
        *result,
        *(
            VariablePair(a=None, b=named_b[0], values=_missing())
            for named_b in b
            if id(named_b) not in matched_ids
        ),
    )


def paired_by_slot(a: Named | None, b: Named | None, opened: Opened) -> VariablePair:
    """Return a pair of corresponding optimizer variables, or a variable in one file only."""
    if a is None or b is None:
        return VariablePair(a=a[0] if a else None, b=b[0] if b else None, values=_missing())
    return VariablePair(a=a[0], b=b[0], values=compare_variables(a, b, opened), paired="slot")


def paired_tensors(a: Sequence[Named], b: Sequence[Named], opened: Opened) -> dict[Tensor, Tensor]:
    """Return the stored variables of a layer, each with its counterpart in another layer."""
    return {named_a[1]: named_b[1] for named_a, named_b, _ in _match_variables(a, b, opened)}


def one_sided(
    a: Sequence[Named], b: Sequence[Named], reason: str | None = None
) -> tuple[VariablePair, ...]:
    """
    Return variables that are in one file only.

    :param reason: why the variables are not compared; None to report them as different
    """
    values = (
        ValueComparison(verdict=ComparisonVerdict.NOT_COMPARED, reason=reason)
        if reason
        else _missing()
    )
    return (
        *(VariablePair(a=variable, b=None, values=values) for variable, _ in a),
        *(VariablePair(a=None, b=variable, values=values) for variable, _ in b),
    )


def compare_variables(a: Named, b: Named, opened: Opened) -> ValueComparison:
    """Compare the values of two variables."""
    (variable_a, tensor_a), (variable_b, tensor_b) = a, b
    if variable_a.shape != variable_b.shape:
        return ValueComparison(verdict=ComparisonVerdict.DIFFERENT, reason="shapes differ")
    if opened.a is None or opened.b is None:
        return ValueComparison(verdict=ComparisonVerdict.NOT_COMPARED, reason=opened.reason)
    from policytool.comparison import numbers

    return numbers.compare_streams(
        opened.a.blocks(tensor_a), opened.b.blocks(tensor_b), (variable_a.dtype, variable_b.dtype)
    )


def _missing() -> ValueComparison:
    return ValueComparison(verdict=ComparisonVerdict.DIFFERENT, reason="only in one file")


def _match_variables(
    a: Sequence[Named], b: Sequence[Named], opened: Opened
) -> list[tuple[Named, Named, str]]:
    """
    Pair variables by name. Since one file may have numbers as names, pair the rest by their order
    among the variables of the same shape.
    """
    by_name = _pair_by(a, b, "name", lambda named: named[0].name)
    left_a, left_b = _unpaired_variables(a, b, by_name)
    if not left_a or not left_b:
        return by_name
    return [
        *by_name,
        *_pair_by(
            _in_layer_order(left_a, opened.a),
            _in_layer_order(left_b, opened.b),
            "order",
            lambda named: named[0].shape,
        ),
    ]


def _in_layer_order(variables: Sequence[Named], values: Stored | None) -> Sequence[Named]:
    """Return variables in the order in which their layer created them, if the file stores it."""
    if values is None:
        return variables
    by_tensor = group_pairs((variable[1], variable) for variable in variables)
    return [
        by_tensor[tensor].pop(0)
        for tensor in values.in_order(tuple(tensor for _, tensor in variables))
    ]


def _pair_by(
    a: Sequence[Named], b: Sequence[Named], pairing: str, key: Callable[[Named], Hashable]
) -> list[tuple[Named, Named, str]]:
    """
    Pair the variables with equal keys, in their order, if both layers have the same number of
    variables with the key.

    :param pairing: how the variables are paired, for the report
    """
    groups: dict[Hashable, tuple[list[Named], list[Named]]] = defaultdict(lambda: ([], []))
    for side, named in ((0, a), (1, b)):
        for variable in named:
            groups[key(variable)][side].append(variable)
    equal_groups = (group for group in groups.values() if len(group[0]) == len(group[1]))
    return [
        (named_a, named_b, pairing)
        for group_a, group_b in equal_groups
        for named_a, named_b in zip(group_a, group_b, strict=True)
    ]


def _unpaired_variables(
    a: Sequence[Named], b: Sequence[Named], matched: list[tuple[Named, Named, str]]
) -> tuple[list[Named], list[Named]]:
    matched_ids = {id(named) for named_a, named_b, _ in matched for named in (named_a, named_b)}
    return [variable for variable in a if id(variable) not in matched_ids], [
        variable for variable in b if id(variable) not in matched_ids
    ]


_FORMER_DECAY: Final = "schedule_decay"
"""The name of the ``decay`` of Nadam in standalone Keras."""


class ReadState(Struct, frozen=True, kw_only=True):
    """The optimizer of a file, with its state."""

    optimizer: StyledOptimizer
    state: OptimizerState

    def keeps(self, weight: Tensor, kind: str) -> bool:
        """Return whether training reads a slot of a weight."""
        return is_in_use(self.optimizer, kind, weight.shape or ())


def stored_variables(subject: ComparedModel) -> list[Named]:
    """Return the stored variables of the optimizer, with their paths as names."""
    document = subject.document
    below = [
        tensor
        for tensor in document.tensors or ()
        if document.format == "keras" and tensor.path[0] == STATE
    ]
    return [_named_tensor(tensor) for tensor in (*document.state, *below)]


def optimizer_of(subject: ComparedModel) -> StyledOptimizer | None:
    """Return the optimizer of a file; None if it has none, or one that no release writes."""
    if subject.loaded is None:
        return None
    try:
        return read_optimizer(subject.loaded, subject.optimizer)
    except SpellingError:  # an observation reports it
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
    """Return the optimizer with its state; None if the meaning of its variables is unknown."""
    optimizer = optimizer_of(subject)
    if optimizer is None or subject.loaded is None:
        return None
    try:
        trainable = trainable_tensors(subject.loaded.document, subject.loaded.placed)
        state = read_state(subject.loaded, optimizer, trainable)
    except UnmappedError:  # a note says that the variables are not compared
        return None
    return ReadState(optimizer=optimizer, state=state) if state is not None else None


def have_same_naming(a: ComparedModel, b: ComparedModel) -> bool:
    """
    Return whether optimizer variables of unknown meaning can be paired by name. HDF5 files and
    Orbax checkpoints store names, and archives only numbers, which must then belong to the same
    shapes. If only one file has variables, they are reported as missing in the other.
    """
    if not a.document.format == b.document.format == "keras":
        return a.document.format == b.document.format and a.document.format in {"h5", "orbax"}
    names_a, names_b = (
        {(variable.name, variable.shape) for variable, _ in stored_variables(side)}
        for side in (a, b)
    )
    return names_a == names_b or not (names_a and names_b)


def _paired_tensors(
    a: ReadState, b: ReadState, weights: Mapping[Tensor, Tensor]
) -> Iterator[tuple[Tensor | None, Tensor | None]]:
    """
    Yield the pairs of corresponding tensors of two optimizers.

    Tensors that exist once per file, such as the iterations, come first; they are left out if one
    file lacks them. Slots are paired by weight and kind. A slot that only one file has is yielded
    with None if training steps read it.

    :param weights: the stored weights of A that are also in B, each with its counterpart
    """
    single_tensors = [
        (side.iterations, side.rate, side.schedule, *side.own) for side in (a.state, b.state)
    ]
    yield from (
        (tensor_a, tensor_b)
        for tensor_a, tensor_b in zip(*single_tensors, strict=False)
        if tensor_a is not None and tensor_b is not None
    )
    unmatched_slots = dict(b.state.slots)
    for (weight, kind), tensor_a in a.state.slots.items():
        weight_b = weights.get(weight)
        tensor_b = unmatched_slots.pop((weight_b, kind), None) if weight_b is not None else None
        if tensor_b is not None or a.keeps(weight, kind):
            yield tensor_a, tensor_b
    yield from (
        (None, tensor_b)
        for (weight, kind), tensor_b in unmatched_slots.items()
        if b.keeps(weight, kind)
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


def holds_optimizer(subject: ComparedModel) -> bool:
    """Return whether the file can contain an optimizer."""
    document = subject.document
    if (
        document.format == "tfjs"
    ):  # save_keras_model drops the optimizer, but the converter of HDF5 files keeps it
        return document.training_part is not None
    return (
        document.format in {"h5", "keras", "savedmodel", "orbax"}
        and document.config_part is not None
    )


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
    changes += layers.configs(*optimizer_configs(a, b))
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
    """
    Return the pairs of the optimizer's variables: by slot and weight if both models have known
    optimizers, else by name.
    """
    state_a, state_b = (
        read_optimizer_state(a),
        read_optimizer_state(b),
    )
    if state_a is not None and state_b is not None:
        return tuple(
            paired_by_slot(
                _named_tensor(tensor_a) if tensor_a is not None else None,
                _named_tensor(tensor_b) if tensor_b is not None else None,
                opened,
            )
            for tensor_a, tensor_b in _paired_tensors(state_a, state_b, weights())
        )
    if have_same_naming(a, b):
        variables_a, variables_b = (stored_variables(side) for side in (a, b))
        return pair_variables(variables_a, variables_b, opened)
    return ()


def has_like_state(a: ComparedModel, b: ComparedModel) -> bool:
    """Return whether the variables of the two optimizers can be paired."""
    known = [read_optimizer_state(side) is not None for side in (a, b)]
    return all(known) or have_same_naming(a, b)


def signature_sections(a: ComparedModel, b: ComparedModel) -> tuple[Section, ...]:
    """Return the differences between signatures; nothing unless both files are SavedModels."""
    if not (a.document.format == b.document.format == "savedmodel"):
        return ()
    signatures_a, signatures_b = (
        {signature.name: signature for signature in side.model.signatures} for side in (a, b)
    )
    return tuple(
        _signature_section(name, signatures_a.get(name), signatures_b.get(name))
        for name in sorted(signatures_a.keys() | signatures_b.keys())
    )


def _signature_section(
    name: str, signature_a: Signature | None, signature_b: Signature | None
) -> Section:
    """Return the comparison of a signature; None stands for a model that does not have it."""
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
