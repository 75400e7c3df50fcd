"""
Determines the kind of an output's values from the last activation, the loss that the file records,
the shape, and the values.

If these do not decide, the output has several possible readings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.numerics.check_results.verdicts import OutputKind
from policytool.releases import keras_objects
from policytool.releases.keras_objects import snake_case
from policytool.support.errors import UsageError, short
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from policytool.numerics.check_results.metrics import OutputChanges


Reading = frozenset[OutputKind]
"""The kinds that an output has at the same time; the worst answer decides."""

_SIGMOIDS: Final = frozenset({"sigmoid", "hard_sigmoid"})
_CATEGORICAL: Final = re.compile(r"categorical_?crossentropy|categorical_?(focal|hinge)")
_BINARY: Final = re.compile(r"binary|^(squared_?)?hinge$|dice|tversky")
_ANGULAR: Final = re.compile(r"cosine|triplet|contrastive|circle|npairs|arcface")
_NUMERIC: Final = re.compile(
    r"error|^(mse|mae|mape|msle|huber|log_?cosh|logcosh|poisson|tweedie|quantile|pinball)$"
)

_CLOSED: Final = 0.1
"""If the share of values near neither 0 nor 1 is below this, the output is a mask."""

_OPEN: Final = 0.5
"""If the share of values near neither 0 nor 1 is above this, the output is an image."""

_IMAGE_RANK: Final = 4
_IMAGE_CHANNELS: Final = 4
_LEAST_EMBEDDING: Final = 16
_BOTH: Final = frozenset({OutputKind.BINARY, OutputKind.PROBABILITY})


class OutputFacts(Struct, frozen=True, kw_only=True):
    """The properties of an output other than its values."""

    shape: tuple[int | None, ...]
    activation: str | None
    """The last activation; None if the graph of the model does not show it."""

    loss: str | None
    """The name of the recorded loss; None if the file records no loss for the output."""


def parse_output_kinds(option_values: Iterable[str]) -> dict[str, OutputKind]:
    """
    Return the kind of each output, from the ``NAME=KIND`` values of ``--output-kind``.

    :raises UsageError: if a value has another form, or the kind is unknown.
    """
    kind_by_output = {}
    for text in option_values:
        name, equals, kind = text.rpartition("=")
        if not equals or kind not in set(OutputKind):
            kinds = ", ".join(output_kind.value for output_kind in OutputKind)
            raise UsageError(
                f"--output-kind {short(text)!r} must be NAME=KIND, where KIND is one of {kinds}"
            )
        kind_by_output[name] = OutputKind(kind)
    return kind_by_output


def check_names(kinds: Mapping[str, OutputKind], outputs: Iterable[str]) -> None:
    """
    Check that the names of ``--output-kind`` are outputs of the model.

    :raises UsageError: if a name is not an output.
    """
    known = list(dict.fromkeys(outputs))
    for name in kinds:
        if name not in known:
            raise UsageError(
                f"--output-kind {short(name)!r} is not an output of the model; its outputs are "
                f"{join_first(known)}"
            )


def possible_readings(facts: OutputFacts, changes: OutputChanges) -> tuple[Reading, ...]:
    """Return the possible readings of an output; several if nothing decides between them."""
    if changes.value_changes is not None:
        return _single_kind(OutputKind.VALUES)
    rank, last = len(facts.shape), changes.width
    activation, loss = facts.activation, snake_case(facts.loss or "")
    if changes.sums_to_one and activation in (None, "softmax"):
        return _single_kind(OutputKind.CLASSES)
    if activation == "softmax" and last > 1:  # the axes were changed after the softmax
        return (*_single_kind(OutputKind.CLASSES), *_single_kind(OutputKind.REGRESSION))
    if (changes.has_unit_norm and last > 1) or _ANGULAR.search(loss):
        return _single_kind(OutputKind.EMBEDDING)
    if _CATEGORICAL.search(loss) and last > 1:
        return _single_kind(OutputKind.CLASSES)
    if activation in _SIGMOIDS or (activation is None and changes.is_probability):
        return _probability_kinds(rank, last, loss, changes)
    if _BINARY.search(loss):
        return _single_kind(OutputKind.BINARY)
    if _NUMERIC.search(loss) or last == 1 or activation not in (None, "linear"):
        return _single_kind(OutputKind.REGRESSION)
    return tuple(map(frozenset, _score_kinds(rank, last)))


def _probability_kinds(
    rank: int, last: int, loss: str, changes: OutputChanges
) -> tuple[Reading, ...]:
    """Return the possible readings of values from 0 to 1 that do not sum to 1."""
    if rank < _IMAGE_RANK:
        return (_BOTH,)
    if last > _IMAGE_CHANNELS:
        return _single_kind(OutputKind.MASK)
    share = changes.open_share if changes.open_share is not None else 1.0
    if _NUMERIC.search(loss) or share > _OPEN:
        return _single_kind(OutputKind.REGRESSION)
    mask = _single_kind(OutputKind.MASK)
    return mask if share < _CLOSED else (*mask, *_single_kind(OutputKind.REGRESSION))


def _score_kinds(rank: int, last: int) -> list[set[OutputKind]]:
    """
    Return the possible kinds of an output with several numbers per sample if nothing decides
    between them.
    """
    possible_kinds = [{OutputKind.REGRESSION}]
    if rank < _IMAGE_RANK or last > _IMAGE_CHANNELS:
        possible_kinds.append({OutputKind.CLASSES})
    if last >= _LEAST_EMBEDDING and rank == 2:  # noqa: PLR2004  # samples and dimensions
        possible_kinds.append({OutputKind.EMBEDDING})
    return possible_kinds


def _single_kind(kind: OutputKind) -> tuple[Reading]:
    return (frozenset({kind}),)


def losses_by_output(recorded: object, names: Iterable[str]) -> Mapping[str, str]:
    """
    Return the name of the loss of each output, from ``loss`` in the training config of the file,
    which is one loss for all outputs, a list in the order of the outputs, or an object by name.
    """
    listed = list(names)
    if isinstance(recorded, dict) and not recorded.keys() & set(keras_objects.KEYS):
        return {name: text for name in listed if (text := _loss_name(recorded.get(name)))}
    if isinstance(recorded, list):
        return {
            name: text
            for name, loss in zip(listed, recorded, strict=False)
            if (text := _loss_name(loss))
        }
    text = _loss_name(recorded)
    return dict.fromkeys(listed, text) if text else {}


def _loss_name(recorded: object) -> str:
    """Return the name of a loss function, or the class of a loss object; empty if there is none."""
    return keras_objects.name_of(recorded) or ""
