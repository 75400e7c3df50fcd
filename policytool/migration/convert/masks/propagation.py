"""What one call of a layer makes of masks, by the rules that were measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, Unit
from policytool.migration.convert.call_arguments import is_attention
from policytool.migration.convert.masks.expressions import Mask, MaskOp
from policytool.migration.convert.tensor_dtypes import compute_dtype
from policytool.model.calls import Reference, tensors
from policytool.releases import keras_objects, masks
from policytool.releases.layer_classes import layer_facts
from policytool.releases.masks import FullyMaskedResult, MaskRule
from policytool.releases.releases import KERAS3, family_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.masks.expressions import MaskTable, ScopedTensor
    from policytool.model.calls import Argument

_MEASURED_INPUTS: Final = 3
"""The largest number of inputs that rules were measured for; merging layers treat more alike."""

_SCORES: Final = "scores"
_VISIBLE: Final = frozenset({"uniform", "unmasked"})
"""The results of a mask that is subtracted from all scores alike."""

ATTENTION_INPUTS: Final = ("query", "value", "key")
_NONE: Final = "none"
_ERROR: Final = "error"
PLACES: Final = ("first", "second", "third")
_NO_MASK: Final = MaskRule(
    out={"1": ("none",)},
    reads=frozenset(),
    clears=frozenset(),
    attached_out={},
    attached_clears=frozenset(),
    written=frozenset(),
    errors={},
)


def input_tensors(unit: Unit, arguments: Mapping[str, Argument]) -> list[Reference]:
    """Return the tensors of a call whose masks may count."""
    facts = layer_facts(unit.class_name)
    if facts.makes_projections and not unit.custom:
        named = [arguments.get(name) for name in ATTENTION_INPUTS]
        return [tensor for tensor in named if isinstance(tensor, Reference)]
    taken = list(tensors(next(iter(arguments.values()), None)))
    return taken[:1] if facts.takes_states and not unit.custom else taken


def rule_of(
    unit: Unit, arguments: Mapping[str, Argument], inputs: int, release: str
) -> MaskRule | None:
    """Return a layer's rule in a release; None for one that was not measured."""
    if unit.custom:
        return None
    if layer_facts(unit.class_name).is_op_layer:
        return _NO_MASK
    return masks.mask_rule(
        unit.class_name,
        plain_config(unit),
        release,
        inputs=min(inputs, _MEASURED_INPUTS),
        call=_true_arguments(arguments),
    )


def fully_masked_result(
    unit: Unit, arguments: Mapping[str, Argument], release: str
) -> FullyMaskedResult | None:
    """
    Return what a release gives for the steps of an attention that may attend to none.

    In float64 a MultiHeadAttention of Keras 2 weights all steps by their ``scores`` there, as those
    outlast the large number that it subtracts for a mask (``Softmax.call`` in
    tf_keras/src/layers/activation/softmax.py).
    """
    found = masks.fully_masked_result(
        unit.class_name, plain_config(unit), release, call=_true_arguments(arguments)
    )
    subtracts = is_attention(unit) and family_of(release) != KERAS3
    if found is None or not subtracts or compute_dtype(unit) != "float64":
        return found
    return FullyMaskedResult(
        *(_SCORES if one in _VISIBLE else one for one in (found.query, found.value))
    )


def takes_mask_argument(name: str, rule: MaskRule | None) -> bool:
    """
    Return whether a MultiHeadAttention takes the mask of an input as an argument: one that clears
    the masks of its inputs looks up the query's only there (``call`` in
    keras/src/layers/attention/multi_head_attention.py).
    """
    return name != "query" or rule is None or not rule.attached_clears


def symbolic_mask(rule: MaskRule | None, found: Sequence[object]) -> str:
    """
    Return what the mask of a call's first output is while a model is built, in the words of the
    rules.

    Where the release cannot call the layer on such masks, it is what the mask of the first input
    alone gives, and of a layer on one tensor that mask; ``error`` where that cannot be called
    either.

    :param found: what is known of the mask of each input, None for an input without a mask
    """
    if rule is None:
        return _NONE
    if not fails(rule, found):
        return rule.out.get(_subset(found), (_NONE,))[0]
    if found[0] is None:
        return _ERROR
    first = _subset([found[0], *(None for _ in found[1:])])
    return rule.out.get(first, (PLACES[0] if len(found) == 1 else _ERROR,))[0]


def read_masks(rule: MaskRule | None, found: Sequence[Mask | None]) -> frozenset[tuple[str, Mask]]:
    """
    Return the masks that change a call's values, with the numbers of their inputs.

    Where a release cannot call a layer on such masks, they do if other masks of the layer do.
    """
    subset = _subset(found)
    may_read = rule is None or bool(rule.reads and subset in rule.errors)
    if not may_read and rule is not None and subset not in rule.reads:
        return frozenset()
    return frozenset((str(place), mask) for place, mask in enumerate(found) if mask is not None)


def fails(rule: MaskRule | None, found: Sequence[object]) -> bool:
    """Return whether a release cannot call a layer on such masks, but for inputs of some sizes."""
    return rule is not None and any(found) and _subset(found) in rule.errors


def output_masks(
    words: Mapping[str, tuple[str, ...]] | None,
    call: tuple[str, int],
    inputs: Sequence[ScopedTensor],
    found: Sequence[Mask | None],
    table: MaskTable,
) -> list[Mask | None]:
    """
    Return the masks of a call's outputs.

    :param words: what a rule says of them; None if there is no rule
    :param call: the name of the layer and the number of the call
    """
    if not any(found):
        return [None]
    outputs = ("other",) if words is None else words.get(_subset(found), ("none",))
    return [
        _output_mask(word, (*call, output), inputs, found, table)
        for output, word in enumerate(outputs)
    ]


def _output_mask(
    word: str,
    output: tuple[str, int, int],
    inputs: Sequence[ScopedTensor],
    found: Sequence[Mask | None],
    table: MaskTable,
) -> Mask | None:
    present = [mask for mask in found if mask is not None]
    if word == _NONE:
        return None
    if word in PLACES and len(found) <= _MEASURED_INPUTS:
        return found[PLACES.index(word)]
    if word == "or":
        return table.either(present)
    if word == "and" or word in PLACES:
        return table.both(present)
    if word == "ones":
        return table.mask(MaskOp.ONES, inputs[0])
    if word == "concat" and len(inputs) == len(found):
        pairs = zip(inputs, found, strict=True)
        return table.mask(
            MaskOp.JOIN, *(mask or table.mask(MaskOp.ONES, tensor) for tensor, mask in pairs)
        )
    name, call, place = output
    return table.mask(MaskOp.LAYER, name, float(call), float(place), word, *found)


def _subset(found: Sequence[object]) -> str:
    """Return which inputs are masked, as the rules say it; of more inputs as of three."""
    digits = "".join("0" if mask is None else "1" for mask in found)
    if len(digits) <= _MEASURED_INPUTS:
        return digits
    return "111" if "0" not in digits else "110" if "1" in digits else "000"


def _true_arguments(arguments: Mapping[str, Argument]) -> list[str]:
    return [name for name, value in arguments.items() if value is True]


def plain_config(unit: Unit) -> dict[str, object]:
    """Return a config in the form of a file: layers in it as their class and config."""
    return {key: _plain_value(value) for key, value in unit.config.items()}


def _plain_value(value: Value) -> object:
    if isinstance(value, Unit) and value.role is not Role.OPERATION:
        return keras_objects.short(value.class_name, plain_config(value))  # type: ignore[arg-type]  # policies stay values
    return value
