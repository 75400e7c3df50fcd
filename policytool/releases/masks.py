"""
How layers propagate masks, by release: ``data/layer_masks.json``, which ``fixtures/layer_masks.py``
measures in the libraries themselves and explains.

A mask tells later layers which steps of a sequence are padding. Keras 2 and the releases of Keras 3
compute the masks of outputs in different ways, and some layers clear the masks of their inputs.

Keras 3 has every mask twice. While a model is built, layers pass symbolic masks on, and a layer
with a mask argument gets one as an argument of its call, which its node and the config keep. While
the model runs, masks are attached to tensors. From 3.10 on a call has a written mask only if its
one argument is a tensor of the layer's dtype (``original_kwargs`` in
``keras/src/layers/layer.py``); all other layers use what is attached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import behaviour, data
from policytool.releases.releases import releases_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Row = dict[str, Any]

POSITIVE: Final = ">0"
"""How the data says that an argument is any positive number."""

_MISSING: Final = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskRule:
    """What a layer does with the masks of its inputs in one release."""

    out: Mapping[str, tuple[str, ...]]
    """
    By subset of masked inputs, one digit for each input, the mask of each output: ``none``,
    ``first``, ``second``, ``third``, ``and``, ``or``, ``ones``, ``concat`` and the other words of
    the data. A subset that raises an error is not in it.
    """

    reads: frozenset[str]
    """The subsets whose masks change the values of the output in some rows."""

    clears: frozenset[int]
    """The positions of the inputs that later layers are called on without their masks."""

    attached_out: Mapping[str, tuple[str, ...]]
    """:attr:`out` for the masks that are attached to tensors while the model runs."""

    attached_clears: frozenset[int]
    """:attr:`clears` for the masks that are attached to tensors while the model runs."""

    written: frozenset[str]
    """The arguments by which a mask stands in the layer's node, such as ``query_mask``."""

    errors: Mapping[str, str]
    """By subset, the message of the library that cannot call the layer on such masks."""


@dataclass(frozen=True, slots=True)
class FullyMaskedResult:
    """
    What attention gives where nothing may be attended to: ``zeros``, the values with ``uniform``
    weights, the result as if it were ``unmasked``, or ``nan``.
    """

    query: str
    """If the step of the query is masked."""

    value: str
    """If every step of the value is masked."""


def mask_rule(
    class_name: str,
    config: Mapping[str, object],
    release: str,
    *,
    inputs: int = 1,
    call: Sequence[str] = (),
) -> MaskRule | None:
    """
    Return what a layer does with masks in a release; None if it was not measured.

    :param config: the layer's config, which may leave out what is the default
    :param inputs: the number of tensors that the layer is called on
    :param call: what the call has beside its inputs, in the words of the data: ``self`` for an
        attention layer on one tensor, or the names of true call arguments
    """
    rows = [
        row
        for row in data.read("layer_masks")["classes"].get(class_name, ())
        if release in releases_in(row["releases"]) and _input_count(row) == inputs
    ]
    rules = {_key(row): row for row in matching_rows(rows, config, call)}
    return _rule(next(iter(rules.values()))) if len(rules) == 1 else None


def fully_masked_result(
    class_name: str,
    config: Mapping[str, object],
    release: str,
    *,
    call: Sequence[str] = (),
) -> FullyMaskedResult | None:
    """
    Return the output of an attention layer in a release for steps that may attend to no other step;
    None if it was not measured.

    :param call: the names of the call arguments that are true, such as ``return_attention_scores``
    """
    rows = [
        row
        for row in data.read("layer_masks")["fully_masked"].get(class_name, ())
        if release in releases_in(row["releases"])
    ]
    results = {(row["query"], row["value"]) for row in matching_rows(rows, config, call)}
    return FullyMaskedResult(*next(iter(results))) if len(results) == 1 else None


def matching_rows(
    rows: Iterable[Row], config: Mapping[str, object], call: Sequence[str]
) -> list[Row]:
    """
    Return the most specific rows that apply to a config and a call; several if rows with equally
    many arguments apply.
    """
    matches = [
        row
        for row in rows
        if set(row.get("call", ())) <= set(call)
        and all(
            _matches_condition(_argument(config, key), value)
            for key, value in row.get("arguments", {}).items()
        )
    ]
    most = max((_specificity(row) for row in matches), default=0)
    return [row for row in matches if _specificity(row) == most]


def _specificity(row: Row) -> int:
    return len(row.get("arguments", {})) + len(row.get("call", ()))


def _matches_condition(value: object, condition: object) -> bool:
    if condition == POSITIVE:
        return isinstance(value, int | float) and value > 0
    return value == condition


def _argument(config: Mapping[str, object], key: str) -> object:
    """
    Return a config's value in the words of the data; ``layer.KEY`` is a value of the inner layer.
    """
    outer, _, inner = key.partition(".")
    value = config.get(outer, _MISSING)
    if not inner:
        known = value is _MISSING or isinstance(value, int | float | list)
        return value if known else behaviour.kind_of_argument(value)
    inner_config = value.get("config") if isinstance(value, dict) else None
    return _argument(inner_config, inner) if isinstance(inner_config, dict) else _MISSING


def _input_count(row: Row) -> int:
    subsets = [*row["masks"], *row.get("error", {})]
    return len(subsets[0].partition(" ")[0])


def _key(row: Row) -> str:
    return repr({key: row[key] for key in row if key not in ("arguments", "call", "releases")})


def _rule(row: Row) -> MaskRule:
    attached = {**row, **row.get("run_time", {})}
    return MaskRule(
        out=_words(row["masks"]),
        reads=frozenset(row.get("reads", ())) | frozenset(row.get("reads_masked_rows", ())),
        clears=frozenset(row.get("clears", ())),
        attached_out=_words(attached["masks"]),
        attached_clears=frozenset(attached.get("clears", ())),
        written=frozenset(row.get("written", ())),
        errors={
            subset: message
            for subsets, message in row.get("error", {}).items()
            for subset in subsets.split(" ")
        },
    )


def _words(masks: Mapping[str, str | list[str]]) -> dict[str, tuple[str, ...]]:
    return {
        subset: tuple(word) if isinstance(word, list) else (word,) for subset, word in masks.items()
    }
