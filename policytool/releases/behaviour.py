"""
What layers compute in each release, and the masks that they return.

Whether a converted layer computes what it did: ``data/layer_behaviour.json`` and
``data/layer_values.json``, which ``fixtures/layer_behaviour.py`` and ``fixtures/layer_values.py``
have from the libraries themselves. Each case of the first is a layer with arguments, converted and
run in both libraries; the second has the values of arguments that agree, alone and in pairs. What
was measured with the newest of each stands for the others of its library.
``data/layer_releases.json`` has the releases in which a layer computes other values than in the
release before.

How layers propagate masks, by release: ``data/layer_masks.json``, which ``fixtures/layer_masks.py``
measures in the libraries themselves and explains. A mask tells later layers which steps of a
sequence are padding. Keras 2 and the releases of Keras 3 compute the masks of outputs in different
ways, and some layers clear the masks of their inputs.

Keras 3 has every mask twice. While a model is built, layers pass symbolic masks on, and a layer
with a mask argument gets one as an argument of its call, which its node and the config keep. While
the model runs, masks are attached to tensors. From 3.10 on a call has a written mask only if its
one argument is a tensor of the layer's dtype (``original_kwargs`` in
``keras/src/layers/layer.py``); all other layers use what is attached.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.releases import data, keras_objects
from policytool.releases.releases import KERAS3, family_of, releases_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CASTS_LOSE_MASKS: Final = releases_in("keras3.5 to keras3.13")
"""
The releases in which the cast of an input to a layer's compute dtype has no mask, both while a
model is built and while it runs (measured with 11 kinds of layers in each release from 3.0 to 3.15;
``maybe_convert`` in keras/src/layers/layer.py).
"""

ULP: Final = 4
"""The maximum difference of float32 results, in ulp of the largest."""

EPS: Final = 16
"""The maximum difference of 16-bit results, in eps of the compute dtype."""

NUMBER: Final = "number"
NUMBERS: Final = "numbers"
SHAPES: Final = frozenset({"batch_input_shape", "query_shape", "key_shape", "value_shape"})
"""Keys with the shapes of inputs, which are those of the tensors that the layer is called on."""

LEFT_OUT: Final = frozenset({"name", "dtype", "trainable", *SHAPES})
"""Keys that do not affect the results of a layer, or that are measured as policies."""

TRAINING: Final = ("_initializer", "_regularizer", "_constraint")
"""The ends of keys about variables before and during training, which change no prediction."""

_FLOAT32: Final = "float32"

ANY_ACTIVATION: Final = "any activation"
"""Stands for the values of an argument that is an activation: those that agree in any layer."""

ANY_LAYER: Final = "any layer"
"""Stands for the values of an argument that is a layer, or a list of layers."""

Facts = dict[str, Any]


class Proof(StrEnum):
    """The evidence that a converted layer computes the same."""

    PROVEN = "proven"
    """Layers of its class and arguments gave the same results in both libraries."""

    UNTESTED = "untested"
    """No measurement covers its class and arguments."""


def direction(*, to_keras3: bool) -> str:
    """Return the name of a direction in the data."""
    return "keras2 to keras3" if to_keras3 else "keras3 to keras2"


def unmeasured_arguments(
    class_name: str, config: Mapping[str, object], *, to_keras3: bool
) -> tuple[str, ...] | None:
    """
    Return the arguments of a layer that no measured layer of its class had, such as
    ``use_bias=False``; None if no layer of the class was measured.

    :param config: the layer's config in the source
    """
    facts = measurements()[direction(to_keras3=to_keras3)].get(class_name)
    values = _values(class_name, to_keras3=to_keras3)
    cases = [case for case in facts["cases"].values() if agrees(case)] if facts is not None else []
    if not cases and not values:
        return None
    measured = [case.get("arguments", {}) for case in cases]
    default = facts["default"] if facts is not None else {}
    return tuple(
        f"{key}={value}" if isinstance(value, bool) or value not in (NUMBER, NUMBERS) else key
        for key, value in arguments(config, default).items()
        if not key.endswith(TRAINING)
        and not any(key in case and case[key] == value for case in measured)
        and not _is_among(value, values.get(key, ()), to_keras3=to_keras3)
    )


def _values(class_name: str, *, to_keras3: bool) -> Mapping[str, Sequence[object]]:
    """Return the measured values of each argument of a class, which also agree in pairs."""
    measured: Facts = measured_values()[direction(to_keras3=to_keras3)]
    values: Mapping[str, Sequence[object]] = measured["classes"].get(class_name, {})
    return values


def _is_among(value: object, values: Sequence[object], *, to_keras3: bool) -> bool:
    """Return whether a value was measured, or belongs to a kind of values that was."""
    if value in values or (_is_text(value) and any(map(_is_text, values))):
        return True
    if ANY_ACTIVATION in values:
        return value in measured_values()[direction(to_keras3=to_keras3)]["activations"]
    layers = value if isinstance(value, list) else [value]
    return ANY_LAYER in values and all(str(layer).startswith("@") for layer in layers)


def _is_text(value: object) -> bool:
    """Return whether a value is a list of strings, such as a vocabulary."""
    return (
        isinstance(value, list)
        and all(isinstance(item, str) for item in value)
        and "@" not in {item[:1] for item in value}
    )


def measured_values() -> Facts:
    """Return the data about values of arguments."""
    return data.read("layer_values")


def objection(class_name: str, config: Mapping[str, object], *, to_keras3: bool) -> str | None:
    """
    Return the reason why a layer is not converted between Keras 2 and Keras 3 although the target
    can build it; None if no measurement shows a difference.

    :param config: the layer's config in the source
    """
    facts = measurements()[direction(to_keras3=to_keras3)].get(class_name)
    if facts is None:
        return None
    layer_arguments = arguments(config, facts["default"])
    for name, case in facts["cases"].items():
        special = {
            key: value
            for key, value in case.get("arguments", {}).items()
            if value not in (NUMBER, NUMBERS)
        }
        applies = bool(special) and all(
            key in layer_arguments and layer_arguments[key] == value
            for key, value in special.items()
        )
        if (applies or name == class_name) and (difference := _differs(case)) is not None:
            return difference
    return None


def arguments(config: Mapping[str, object], default: Mapping[str, object]) -> Facts:
    """
    Return the arguments in a layer's config that differ from those of a default instance, as kinds
    of arguments in the data. Missing keys have the default. Old configs have 0 and 1 for False and
    True.
    """
    return {
        key: word
        for key, value in sorted(config.items())
        if key not in LEFT_OUT
        and (
            word := kind_of_argument(
                bool(value) if isinstance(default.get(key), bool) and value in (0, 1) else value
            )
        )
        != default.get(key)
    }


def kind_of_argument(value: object) -> object:
    """
    Return an argument as the data has it: numbers and lists of numbers by their kind, objects by
    their class.
    """
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | float):
        return NUMBER
    if isinstance(value, dict) and keras_objects.class_of(value) == keras_objects.TUPLE:
        value = value.get("items")  # in the metadata of a SavedModel
    if isinstance(value, list | tuple):
        kinds = [kind_of_argument(item) for item in value]
        return (
            NUMBERS if kinds and all(item in (NUMBER, NUMBERS, None) for item in kinds) else kinds
        )
    return f"@{name}" if (name := keras_objects.class_of(value)) is not None else "object"


def agrees(case: Facts, bound: int = ULP) -> bool:
    """
    Return whether a case had the same results in float32, up to a bound in ulp of the largest.
    """
    error = case.get(_FLOAT32)
    return isinstance(error, int) and error <= bound


def _differs(case: Facts) -> str | None:
    error = case.get(_FLOAT32)
    if isinstance(error, int) and error > ULP:
        return f"outputs differ by {error} ulp (measured)"
    return f"it fails: {case['fails']}" if "fails" in case else None


@cache
def measurements() -> Facts:
    """Return the data."""
    return data.read("layer_behaviour")


def measured_releases(family: str) -> tuple[str, ...]:
    """Return the releases of one family that were measured, oldest first."""
    return tuple(name for name in _table()["releases"] if family_of(name) == family)


def changing_releases(
    class_name: str, config: Mapping[str, object], family: str
) -> frozenset[str] | None:
    """
    Return the releases of a family in which a layer fails or computes other values than in the
    release before; None if its class was not measured.

    :param config: the layer's config, which may omit default values
    """
    facts = measurements()[direction(to_keras3=family != KERAS3)].get(class_name)
    if facts is None and not _values(class_name, to_keras3=family != KERAS3):
        return None
    layer_arguments = arguments(config, facts["default"] if facts is not None else {}).items()
    return frozenset(
        release
        for case in _table()["classes"].get(class_name, {}).values()
        if case["arguments"].items() <= layer_arguments
        for release in case["releases"]
        if family_of(release) == family
    )


def _table() -> dict[str, Any]:
    return data.read("layer_releases")


Row = dict[str, Any]

POSITIVE: Final = ">0"
"""The notation of the data for any positive number."""

_MISSING: Final = object()


class MaskRule(Struct, frozen=True, kw_only=True):
    """The treatment of the masks of a layer's inputs in one release."""

    out: Mapping[str, tuple[str, ...]]
    """
    By subset of masked inputs, one digit for each input, the mask of each output: ``none``,
    ``first``, ``second``, ``third``, ``and``, ``or``, ``ones``, ``concat`` and the other words of
    the data. A subset that raises an error is not in it.
    """

    reads: frozenset[str]
    """The subsets whose masks change the values of the output in some rows."""

    clears: frozenset[int]
    """The positions of the inputs that later layers receive without their masks."""

    attached_out: Mapping[str, tuple[str, ...]]
    """:attr:`out` for the masks that are attached to tensors while the model runs."""

    attached_clears: frozenset[int]
    """:attr:`clears` for the masks that are attached to tensors while the model runs."""

    written: frozenset[str]
    """The arguments of the layer's node that contain masks, such as ``query_mask``."""

    errors: Mapping[str, str]
    """By subset, the error message of the library that fails with such masks."""


class FullyMaskedResult(Struct, frozen=True):
    """
    The output of attention for steps that may attend to no other step: ``zeros``, the values with
    ``uniform`` weights, the result as if it were ``unmasked``, or ``nan``.
    """

    query: str
    """The output if the step of the query is masked."""

    value: str
    """The output if every step of the value is masked."""


def mask_rule(
    class_name: str,
    config: Mapping[str, object],
    release: str,
    *,
    inputs: int = 1,
    call: Sequence[str] = (),
) -> MaskRule | None:
    """
    Return the treatment of masks by a layer in a release; None if it was not measured.

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
    """Return a config's value as the data has it; ``layer.KEY`` is a value of the inner layer."""
    outer, _, inner = key.partition(".")
    value = config.get(outer, _MISSING)
    if not inner:
        known = value is _MISSING or isinstance(value, int | float | list)
        return value if known else kind_of_argument(value)
    return _argument(keras_objects.arguments_of(value), inner)


def _input_count(row: Row) -> int:
    subsets = [*row["masks"], *row.get("error", {})]
    return len(subsets[0].partition(" ")[0])


def _key(row: Row) -> str:
    return repr({key: row[key] for key in row if key not in ("arguments", "call", "releases")})


def _rule(row: Row) -> MaskRule:
    """Return the mask rule of a row of the data."""
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
    """Return masks in the notation of the rules as tuples, one entry for each output."""
    return {
        subset: tuple(word) if isinstance(word, list) else (word,) for subset, word in masks.items()
    }
