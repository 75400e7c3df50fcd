"""What two layers that belong together say differently."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from policytool.comparison import normalization, ranks
from policytool.comparison.result import Aspect, Pairing, ValueChange
from policytool.model.model import Source
from policytool.model.tree import MODEL_CLASSES
from policytool.releases.policy import loss_scale_values
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.comparison.pairing import Pairs
    from policytool.comparison.sides import ComparedLayer, ComparedModel
    from policytool.model.model import Layer
    from policytool.releases.policy import Quantization
    from policytool.support.text.jsontext import Json

_ELSEWHERE: Final = frozenset(
    {"name", "dtype", "input_dtype", "layers", "input_layers", "output_layers"}
)
"""Keys of a config that are compared as what they stand for: names, policies, layers, wiring."""

_ASSETS: Final = frozenset({"vocabulary", "has_input_vocabulary"})
"""Keys of lookup layers whose values a SavedModel keeps in files of their own."""

_BUILT: Final = {
    "forward_layer": frozenset({"zero_output_for_mask"}),
    "backward_layer": frozenset({"zero_output_for_mask", "go_backwards"}),
}
"""
Keys that a Bidirectional sets in the layers it builds: some releases write what they are built
from.
"""


def changes(
    a: ComparedModel, b: ComparedModel, held: tuple[ComparedLayer, ComparedLayer], by: Pairing
) -> Iterator[ValueChange]:
    """Yield what differs in two layers, policies before configs."""
    one, other = (side.layer for side in held)
    if a.is_traced and b.is_traced and one.traced_dtypes != other.traced_dtypes:
        yield ValueChange(
            aspect=Aspect.TRACED, a=list(one.traced_dtypes), b=list(other.traced_dtypes)
        )
    if not (a.described and b.described):
        return
    yield from _identity(held, by)
    unknown = {
        side.layer.path
        for side, subject in zip(held, (a, b), strict=True)
        if subject.has_unknown_scales and side.layer.loss_scale is None
    }
    found = _policy(one, other, implicit=held[0].implicit or held[1].implicit)
    yield from (change for change in found if change.aspect is not Aspect.LOSS_SCALE or not unknown)
    if held[0].config is not None and held[1].config is not None:
        yield from _spelled_policy(held[0].config, held[1].config, one, other)
        found = configs(held[0].config, held[1].config, (one.class_name, other.class_name))
        built = _BUILT.get(held[0].attribute, frozenset())
        for change in found:
            if not is_asset(change, a, b):
                alike = change.spelling or change.key in built or _is_same_axis(change, a, b, held)
                yield replace(change, spelling=alike)
    if held[0].operations is not None and held[1].operations is not None:
        yield from configs(held[0].operations, held[1].operations)


def configs(
    a: Mapping[str, Json],
    b: Mapping[str, Json],
    classes: tuple[str | None, str | None] = (None, None),
) -> Iterator[ValueChange]:
    """
    Yield the keys that differ between two configs, those of A in their order, and those that are
    spelled differently.
    """
    ones, others = normalization.keys(a, classes[0]), normalization.keys(b, classes[1])
    for key in (*ones, *(key for key in others if key not in ones)):
        if key in _ELSEWHERE:
            continue
        one, other = ones.get(key), others.get(key)
        if one is not None and other is not None:
            same = normalization.same(one[2], other[2])
            if one[:2] != other[:2] or not same:  # Python's == takes a boolean for a number
                yield ValueChange(
                    aspect=Aspect.CONFIG, key=key, a=one[1], b=other[1], spelling=same
                )
        elif one is not None:
            yield ValueChange(
                aspect=Aspect.CONFIG,
                key=key,
                a=one[1],
                b=ABSENT,
                spelling=normalization.is_unsaid(key, one[2])
                or normalization.is_derived(key, classes[0]),
            )
        elif other is not None:
            yield ValueChange(
                aspect=Aspect.CONFIG,
                key=key,
                a=ABSENT,
                b=other[1],
                spelling=normalization.is_unsaid(key, other[2])
                or normalization.is_derived(key, classes[1]),
            )


def is_asset(change: ValueChange, a: ComparedModel, b: ComparedModel) -> bool:
    """
    Return whether a vocabulary is missing from a SavedModel's config because it lies in the assets,
    which are not read.
    """
    if change.key not in _ASSETS or a.is_graph == b.is_graph:
        return False
    return (change.a if a.is_graph else change.b) in {
        None,
        True,
    }  # the vocabulary is null, has_input_vocabulary is true


def _is_same_axis(
    change: ValueChange,
    a: ComparedModel,
    b: ComparedModel,
    held: tuple[ComparedLayer, ComparedLayer],
) -> bool:
    """Return whether a change is of one axis counted from either end."""
    if change.key != "axis" or change.a is ABSENT or change.b is ABSENT:
        return False
    return ranks.is_same_axis(change.a, change.b, ((a, held[0]), (b, held[1])))


def wiring(
    held: tuple[ComparedLayer, ComparedLayer], a: ComparedModel, b: ComparedModel, pairs: Pairs
) -> Iterator[ValueChange]:
    """
    Yield what feeds two layers differently; for functional models also other inputs and outputs.
    """
    one, other = held
    if one.inputs is not None and other.inputs is not None:
        yield from _input_changes(one.inputs, other.inputs, None, (a, b, pairs))
    if one.ends is not None and other.ends is not None:
        for key in one.ends:
            yield from _input_changes(one.ends[key], other.ends.get(key, ()), key, (a, b, pairs))


def _identity(held: tuple[ComparedLayer, ComparedLayer], by: Pairing) -> Iterator[ValueChange]:
    one, other = (side.layer for side in held)
    ones, others = (one.class_name, one.registered_name), (other.class_name, other.registered_name)
    if one.class_name != other.class_name:
        spelling = normalization.class_of(one.class_name) == normalization.class_of(
            other.class_name
        )
        yield ValueChange(
            aspect=Aspect.CLASS, a=one.class_name, b=other.class_name, spelling=spelling
        )
    elif one.registered_name != other.registered_name and None not in {*ones, *others}:
        yield ValueChange(aspect=Aspect.CLASS, a=one.registered_name, b=other.registered_name)
    built = [side.names[-1] if side.names else side.layer.name for side in held]
    if (
        built[0] != built[1]
    ):  # a direction of a Bidirectional has one name in the file and another when it is built
        yield ValueChange(
            aspect=Aspect.NAME,
            a=built[0],
            b=built[1],
            spelling=one.name == other.name or all(side.implicit for side in held),
        )
    if by is Pairing.MOVED:
        yield ValueChange(
            aspect=Aspect.PLACE, a="/".join(held[0].names[:-1]), b="/".join(held[1].names[:-1])
        )


def _policy(one: Layer, other: Layer, *, implicit: bool) -> Iterator[ValueChange]:
    """
    Yield how two policies differ.

    A model, and a layer that another makes by itself, may have none in one format and one in
    another, which says nothing of the model.
    """
    if Source.UNKNOWN in {one.source, other.source}:
        return
    unsaid = Source.GLOBAL in {one.source, other.source} and one.policy != other.policy
    if unsaid and (
        implicit
        or one.class_name in MODEL_CLASSES
        or "" in {one.path.rpartition("/")[0], other.path.rpartition("/")[0]}
    ):
        return
    pairs: tuple[tuple[Aspect, Json, Json], ...] = (
        (Aspect.POLICY, one.policy, other.policy),
        (Aspect.COMPUTE, one.compute_dtype, other.compute_dtype),
        (Aspect.VARIABLE, one.variable_dtype, other.variable_dtype),
        (Aspect.LOSS_SCALE, loss_scale_values(one.loss_scale), loss_scale_values(other.loss_scale)),
        (Aspect.QUANTIZATION, *_quantization_pair(one.quantization, other.quantization)),
    )
    yield from (
        ValueChange(aspect=aspect, a=before, b=after)
        for aspect, before, after in pairs
        if before != after
    )
    if one.autocast is not None and other.autocast is not None and one.autocast != other.autocast:
        yield ValueChange(aspect=Aspect.AUTOCAST, a=one.autocast, b=other.autocast)


def _quantization_pair(one: Quantization | None, other: Quantization | None) -> tuple[Json, Json]:
    """Return two quantisations as JSON, without a history that one of the files does not say."""
    found: list[dict[str, Json] | None] = [
        asdict(side) if side is not None else None for side in (one, other)
    ]
    for side in found:
        if side is not None and (
            one is None
            or other is None
            or None in {one.amax_history_length, other.amax_history_length}
        ):
            del side["amax_history_length"]
    return found[0], found[1]


def _spelled_policy(
    a: Mapping[str, Json], b: Mapping[str, Json], one: Layer, other: Layer
) -> Iterator[ValueChange]:
    """
    Yield a policy that is the same and spelled differently; one that no generation knows is
    compared as it is spelled.
    """
    found = [
        next(
            ((key, config[key]) for key in ("dtype", "input_dtype") if key in config), ("", ABSENT)
        )
        for config in (a, b)
    ]
    if found[0] == found[1]:
        return
    (_, before), (_, after) = found
    if Source.UNKNOWN in {one.source, other.source}:
        alike = (
            before is not ABSENT
            and after is not ABSENT
            and normalization.same(normalization.normal(before), normalization.normal(after))
        )
        yield ValueChange(aspect=Aspect.POLICY, key="dtype", a=before, b=after, spelling=alike)
    elif (one.policy, one.loss_scale, one.quantization) == (
        other.policy,
        other.loss_scale,
        other.quantization,
    ):
        yield ValueChange(aspect=Aspect.POLICY, key="dtype", a=before, b=after, spelling=True)


def _input_changes(
    one: tuple[int | str, ...],
    other: tuple[int | str, ...],
    key: str | None,
    sides: tuple[ComparedModel, ComparedModel, Pairs],
) -> Iterator[ValueChange]:
    a, b, pairs = sides
    ones = [pairs.as_a(source) if isinstance(source, int) else source for source in one]
    others = [pairs.of_other(source) if isinstance(source, int) else source for source in other]
    if None in {*ones, *others} or ones != others:
        yield ValueChange(aspect=Aspect.WIRING, key=key, a=_names(a, one), b=_names(b, other))


def _names(subject: ComparedModel, sources: tuple[int | str, ...]) -> Json:
    return [
        subject.layers[source].layer.name if isinstance(source, int) else source
        for source in sources
    ]
