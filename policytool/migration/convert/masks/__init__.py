"""
The masks that reach each call of a model in each release, and their operations in a graph.

Masks are expressions over the tensors of a model, so the masks of two releases, and masks that are
operations in a functional graph of Keras 3, can be compared. A table contains each expression once:
two masks are the same object if the same operations compute them from the same tensors, in any
order and with any repetition. In a graph an Embedding writes ``NotEqual``, a Masking ``NotEqual``
and ``Any``, merging layers ``LogicalOr``, a Concatenate a chain that ends in ``Any``
(``compute_mask`` of each in keras/src/layers). Measured rules describe the effect of a layer's call
on masks.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.migration.convert.architecture import Network, Role, Unit, is_attention
from policytool.migration.convert.tensor_facts import called_class, compute_dtype
from policytool.model.calls import Call, Reference, tensors
from policytool.releases import behaviour, keras_objects
from policytool.releases.behaviour import FullyMaskedResult, MaskRule
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts, operation_facts
from policytool.releases.releases import KERAS3, family_of
from policytool.support import steps
from policytool.support.grouping import EachOnce

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument


_NUMBER: Final = attrgetter("number")

Scope = tuple[str, ...]
"""The calls of nested models around a tensor, from the outside in, such as ``encoder:0``."""


class MaskOp(StrEnum):
    """The operation that computes a mask from its parts."""

    NONZERO = "nonzero"
    """``tensor != value``, with the dtype to which the tensor is cast before, if any."""

    ANY = "any"
    """Whether any value along the last axis of a mask is true."""

    EITHER = "either"
    BOTH = "both"
    JOIN = "join"
    """Masks that are concatenated along the steps."""

    ONES = "ones"
    """True at each step of a tensor."""

    TENSOR = "tensor"
    """A tensor that is used as a mask."""

    LAYER = "layer"
    """The mask that a layer computes from the masks of its inputs by an unmeasured rule."""


class ScopedTensor(Struct, frozen=True):
    """A tensor of a model or of a nested model."""

    scope: Scope
    reference: Reference


class Mask(Struct, frozen=True, eq=False):
    """A mask; only :class:`MaskTable` creates masks."""

    op: MaskOp
    parts: tuple[Mask | ScopedTensor | str | float | None, ...]
    number: int
    """The position of the mask in the table, by which masks are sorted."""


class MaskTable:
    """All masks of one conversion."""

    def __init__(self) -> None:
        self._masks: dict[tuple[object, ...], Mask] = {}

    def mask(self, op: MaskOp, *parts: Mask | ScopedTensor | str | float | None) -> Mask:
        """Return the mask of an operation and its parts."""
        return self._masks.setdefault((op, *parts), Mask(op, parts, len(self._masks)))

    def combine(self, op: MaskOp, masks: Iterable[Mask]) -> Mask:
        """
        Return the mask that is true where any of the masks is true (``EITHER``), or where all masks
        are true (``BOTH``).
        """
        parts = [
            part
            for mask in dict.fromkeys(masks)
            for part in (mask.parts if mask.op is op else (mask,))
            if isinstance(part, Mask)
        ]
        steps.spend(len(parts), walk="masks in masks")
        # the parts of masks are sorted: sorting such runs, unlike a set, takes linear time
        ordered_parts = list(dict.fromkeys(sorted(parts, key=_NUMBER)))
        return ordered_parts[0] if len(ordered_parts) == 1 else self.mask(op, *ordered_parts)

    def join(self, inputs: Iterable[tuple[ScopedTensor, Mask | None]]) -> Mask:
        """Return the concatenated masks of tensors, with ones for tensors without a mask."""
        return self.mask(
            MaskOp.JOIN, *(mask or self.mask(MaskOp.ONES, tensor) for tensor, mask in inputs)
        )


CAST: Final = "Cast"
_COPY: Final = "ConvertToTensor"
"""
The operation that Attention layers of Keras 3 apply to the mask of their output (``compute_mask``
in keras/src/layers/attention/attention.py).
"""

_LOGICAL: Final = frozenset({"LogicalAnd", "LogicalOr"})
_REUSED: Final = _LOGICAL | {"NotEqual", "Any"}
_MASK_OPS: Final = _REUSED | {CAST, _COPY, "ExpandDims", "OnesLike", "ZerosLike"}


_FROM_FUNCTIONS: Final = _REUSED | {CAST, "Equal", "ExpandDims", "Where", "ZerosLike"}
"""The operations that are also read from op layers of Keras 2."""

_TENSORS: Final = frozenset({"x", "y"})
_CONFIG: Final = frozenset({"axis", "dtype", "keepdims"})


class MaskOperations:
    """The masks that the operations of a network compute, in the format of Keras 2 or Keras 3."""

    def __init__(self, network: Network, scope: Scope, table: MaskTable) -> None:
        self.units = {unit.name: _as_operation(unit) for unit in network.units}
        """The units of the network; op layers of Keras 2 are converted to Keras 3 operations."""

        self._scope = scope
        self._table = table
        self._masks: dict[str, Mask] = {}
        for name in self._in_order():
            mask = self._mask(self._operation(name))
            if mask is not None:
                self._masks[name] = mask

    def tensor(self, reference: Reference) -> ScopedTensor:
        """Return a tensor of this network."""
        return ScopedTensor(self._scope, reference)

    def mask(self, reference: Reference) -> Mask:
        """Return the mask that a tensor represents."""
        return self._masks.get(reference.layer) or self._table.mask(
            MaskOp.TENSOR, self.tensor(reference)
        )

    def reusable(self) -> dict[Mask, Reference]:
        """Return the masks that an operation computes from other masks, with their tensors."""
        return {
            mask: Reference(layer=name)
            for name, mask in reversed(self._masks.items())
            if self.units[name].class_name in _REUSED
            and not (mask.op is not MaskOp.ANY and self.units[name].class_name == "Any")
        }

    def attention(self, reference: Reference) -> set[tuple[str, Mask]]:
        """Return the masks that the argument ``attention_mask`` combines, with their places."""
        placed_masks: set[tuple[str, Mask]] = set()
        walk = EachOnce([reference])
        for tensor in walk:
            unit = self._operation(tensor.layer)
            operands = [item for item in _arguments(unit) if isinstance(item, Reference)]
            axis = unit.config.get("axis") if unit is not None else None
            if unit is not None and unit.class_name == "LogicalAnd":
                walk.add(operands)
            elif (
                unit is not None
                and unit.class_name == "ExpandDims"
                and axis in (-1, 1)
                and operands
            ):
                mask = self.mask(operands[0])
                if axis != -1 or mask.op is not MaskOp.ONES:
                    placed_masks.add(("rows" if axis == -1 else "columns", mask))
            else:
                placed_masks.add(("full", self.mask(tensor)))
        return placed_masks

    def before_cast(self, reference: Reference) -> Reference:
        """
        Return the tensor before its cast to a layer's compute dtype in Keras 3. Both libraries cast
        before the comparison.
        """
        unit = self._operation(reference.layer)
        if unit is None or unit.class_name != CAST:
            return reference
        source = next(iter(_arguments(unit)), None)
        return source if isinstance(source, Reference) else reference

    def _in_order(self) -> Iterator[str]:
        """Yield the names of the operations, each after the operations that it depends on."""
        visited: set[str] = set()
        for first, unit in self.units.items():
            pending = [(first, False)] if unit.role is Role.OPERATION else []
            while pending:
                name, operands = pending.pop()
                unit_of = self._operation(name)
                if operands:
                    yield name
                elif unit_of is not None and name not in visited:
                    visited.add(name)
                    pending.append((name, True))
                    pending += [
                        (reference.layer, False) for reference in tensors(_arguments(unit_of))
                    ]

    def _operation(self, name: str) -> Unit | None:
        """
        Return the operation with a name; None for a layer, and for an operation with several calls.
        """
        unit = self.units.get(name)
        called_once = unit is not None and len(unit.calls) == 1
        return unit if called_once and unit is not None and unit.role is Role.OPERATION else None

    def _mask(self, unit: Unit | None) -> Mask | None:
        """Return the mask that an operation computes; the masks of its operands are known."""
        args = _arguments(unit)
        if unit is not None and _joins(unit):
            return self._steps_joined(unit)
        if unit is None or not args or not isinstance(args[0], Reference):
            return None
        operands = [operand for operand in args if isinstance(operand, Reference)]
        if unit.class_name == "NotEqual" and len(args) > 1 and isinstance(args[1], int | float):
            return self._nonzero(args[0], float(args[1]))
        if unit.class_name == "Any" and unit.config.get("axis") in (-1, [-1]):
            return (
                self._mask_of_concatenation(args[0])
                or self._ones(args[0])
                or self._table.mask(MaskOp.ANY, self.mask(args[0]))
            )
        if unit.class_name in _LOGICAL and len(operands) == len(args):
            op = MaskOp.EITHER if unit.class_name == "LogicalOr" else MaskOp.BOTH
            return self._table.combine(op, map(self.mask, operands))
        return self.mask(args[0]) if unit.class_name == _COPY else None

    def _steps_joined(self, unit: Unit) -> Mask | None:
        """Return the mask that :class:`MaskBuilder` concatenates along the steps."""
        items = next(iter(_arguments(unit)), None)
        if not isinstance(items, list | tuple) or unit.config.get("axis") != 1:
            return None
        masks = [self.mask(reference) for reference in items if isinstance(reference, Reference)]
        return self._table.mask(MaskOp.JOIN, *masks) if len(masks) == len(items) else None

    def _nonzero(self, tensor: Reference, value: float) -> Mask:
        """Return the mask of a comparison of a tensor with a value."""
        source = self.before_cast(tensor)
        dtype = self.units[tensor.layer].config.get("dtype") if source != tensor else None
        cast = (str(dtype),) if dtype in HALVES else ()
        return self._table.mask(MaskOp.NONZERO, self.tensor(source), value, *cast)

    def _ones(self, reference: Reference) -> Mask | None:
        """
        Return a mask without masked steps if an operation computes ``x == 0 or x != 0``, which is
        how :class:`MaskBuilder` writes such a mask; otherwise None.
        """
        unit = self._operation(reference.layer)
        comparisons = [
            self._operation(operand.layer)
            for operand in _arguments(unit)
            if isinstance(operand, Reference)
        ]
        names = [comparison.class_name for comparison in comparisons if comparison is not None]
        tensors = {
            str(_arguments(comparison)[0]) for comparison in comparisons if _arguments(comparison)
        }
        if names != ["Equal", "NotEqual"] or len(tensors) > 1:
            return None
        tensor = _arguments(comparisons[0])[0]
        return (
            self._table.mask(MaskOp.ONES, self.tensor(tensor))
            if isinstance(tensor, Reference)
            else None
        )

    def _mask_of_concatenation(self, reference: Reference) -> Mask | None:
        """
        Return the mask that Keras 3 computes for a Concatenate from the masks of its
        inputs; None if the tensor is anything else, or the shapes of its inputs are
        unknown.
        """
        unit = self._operation(reference.layer)
        if unit is None or not _joins(unit):
            return None
        arguments = _arguments(unit)
        items = arguments[0] if arguments and isinstance(arguments[0], list | tuple) else arguments
        broadcast = [self._broadcast(item) for item in items if isinstance(item, Reference)]
        inputs = [pair for pair in broadcast if pair is not None]
        if not inputs or len(inputs) != len(items):
            return None
        if unit.config.get("axis") != -1:
            return self._table.join(inputs)
        masks = [mask for _, mask in inputs if mask is not None]
        if len(masks) < len(inputs):  # an input without a mask makes all steps visible
            return self._table.mask(MaskOp.ONES, inputs[0][0])
        return self._table.combine(MaskOp.EITHER, masks)

    def _broadcast(self, reference: Reference) -> tuple[ScopedTensor, Mask | None] | None:
        """
        Return the input of a Concatenate, and its mask, from the tensor in which Keras 3 broadcasts
        the mask to the shape of the input; None if the tensor is anything else.
        """
        unit = self._operation(reference.layer)
        operands = [operand for operand in _arguments(unit) if isinstance(operand, Reference)]
        if unit is None or not operands:
            return None
        if unit.class_name == "OnesLike":
            return self.tensor(operands[0]), None
        if unit.class_name != "LogicalOr" or len(operands) != 2:  # noqa: PLR2004  # a mask and zeros
            return None
        expanded, zeros = (self._operation(operand.layer) for operand in operands)
        mask, source = (next(iter(_arguments(operation)), None) for operation in (expanded, zeros))
        is_broadcast = (
            expanded is not None
            and zeros is not None
            and (expanded.class_name, zeros.class_name) == ("ExpandDims", "ZerosLike")
        )
        if is_broadcast and isinstance(mask, Reference) and isinstance(source, Reference):
            return self.tensor(source), self.mask(mask)
        return None


def is_mask_operation(unit: Unit) -> bool:
    """Return whether a unit is an operation from which Keras 3 builds masks."""
    return unit.role is Role.OPERATION and (unit.class_name in _MASK_OPS or _joins(unit))


def _joins(unit: Unit) -> bool:
    return operation_facts(unit.class_name).joins == "axis"


def _arguments(unit: Unit | None) -> list[Argument]:
    calls = unit.calls[:1] if unit is not None else ()
    return [argument for call in calls for argument in (*call.args, *call.kwargs.values())]


def _as_operation(unit: Unit) -> Unit:
    """Return the operation that is equivalent to an op layer; other units are unchanged."""
    row = called_class(unit).row if layer_facts(unit.class_name).is_op_layer else None
    if row is None or row.op not in _FROM_FUNCTIONS or unit.custom or len(unit.calls) != 1:
        return unit
    kwargs = unit.calls[0].kwargs
    others = (value for key, value in sorted(kwargs.items()) if key in _TENSORS)
    config = {
        key: value
        for key, value in kwargs.items()
        if key in _CONFIG and isinstance(value, bool | int | str)
    }
    call = Call(args=(*unit.calls[0].args, *others))
    return replace(unit, class_name=row.op, role=Role.OPERATION, config=config, calls=(call,))


_MEASURED_INPUTS: Final = 3
"""The largest measured number of inputs; merging layers treat more inputs in the same way."""


_VISIBLE: Final = frozenset({"uniform", "unmasked"})
"""The results of masks that subtract the same number from all scores."""

ATTENTION_INPUTS: Final = ("query", "value", "key")
PLACES: Final = ("first", "second", "third")
"""The names of input masks in the rules."""

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
    """Return the tensors of a call whose masks may affect it."""
    facts = layer_facts(unit.class_name)
    if facts.makes_projections and not unit.custom:
        operands = [arguments.get(name) for name in ATTENTION_INPUTS]
        return [tensor for tensor in operands if isinstance(tensor, Reference)]
    first_tensors = list(tensors(next(iter(arguments.values()), None)))
    return first_tensors[:1] if facts.takes_states and not unit.custom else first_tensors


def rule_of(
    unit: Unit, arguments: Mapping[str, Argument], inputs: int, release: str
) -> MaskRule | None:
    """Return a layer's rule in a release; None if it was not measured."""
    if unit.custom:
        return None
    if layer_facts(unit.class_name).is_op_layer:
        return _NO_MASK
    return behaviour.mask_rule(
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
    Return an attention's result for its fully masked steps in a release; None if unknown.

    In float64, a MultiHeadAttention of Keras 2 weights all these steps by their ``scores``, which
    remain significant after it subtracts the large number for a mask (``Softmax.call`` in
    tf_keras/src/layers/activation/softmax.py).
    """
    result = behaviour.fully_masked_result(
        unit.class_name, plain_config(unit), release, call=_true_arguments(arguments)
    )
    subtracts = is_attention(unit) and family_of(release) != KERAS3
    if result is None or not subtracts or compute_dtype(unit) != "float64":
        return result
    return FullyMaskedResult(
        *("scores" if outcome in _VISIBLE else outcome for outcome in (result.query, result.value))
    )


def takes_mask_argument(name: str, rule: MaskRule | None) -> bool:
    """
    Return whether a MultiHeadAttention gets the mask of an input as an argument. If it clears the
    masks of its inputs, it reads the mask of the query only from the argument (``call`` in
    keras/src/layers/attention/multi_head_attention.py).
    """
    return name != "query" or rule is None or not rule.attached_clears


def symbolic_mask(rule: MaskRule | None, known_masks: Sequence[object]) -> str:
    """
    Return the mask of a call's first output while a model is built, in the notation of the rules.

    If the release cannot call the layer on such masks, the result is that for the mask of the first
    input only, which a layer with one input keeps; ``error`` if this call fails too.

    :param known_masks: the known mask of each input; None for an input without a mask
    """
    if rule is None:
        return "none"
    if not fails(rule, known_masks):
        return rule.out.get(_masked_inputs(known_masks), ("none",))[0]
    if known_masks[0] is None:
        return "error"
    first = _masked_inputs([known_masks[0], *(None for _ in known_masks[1:])])
    return rule.out.get(first, (PLACES[0] if len(known_masks) == 1 else "error",))[0]


def read_masks(
    rule: MaskRule | None, input_masks: Sequence[Mask | None]
) -> frozenset[tuple[str, Mask]]:
    """
    Return the masks that change a call's values, with the numbers of their inputs.

    If a release cannot call the layer on these masks, they count if the layer reads any masks.

    :param input_masks: the mask of each input; None for an input without a mask
    """
    subset = _masked_inputs(input_masks)
    may_read = rule is None or bool(rule.reads and subset in rule.errors)
    if not may_read and rule is not None and subset not in rule.reads:
        return frozenset()
    return frozenset(
        (str(place), mask) for place, mask in enumerate(input_masks) if mask is not None
    )


def fails(rule: MaskRule | None, input_masks: Sequence[object]) -> bool:
    """Return whether calling a layer on such masks fails, except for some input sizes."""
    return rule is not None and any(input_masks) and _masked_inputs(input_masks) in rule.errors


def output_masks(
    words: Mapping[str, tuple[str, ...]] | None,
    call: tuple[str, int],
    inputs: Sequence[ScopedTensor],
    input_masks: Sequence[Mask | None],
    table: MaskTable,
) -> list[Mask | None]:
    """
    Return the masks of a call's outputs.

    :param words: a rule's notation for the outputs, by the masked inputs; None if there is no rule
    :param call: the name of the layer and the number of the call
    """
    if not any(input_masks):
        return [None]
    outputs = ("other",) if words is None else words.get(_masked_inputs(input_masks), ("none",))
    return [
        _output_mask(word, (*call, output), inputs, input_masks, table)
        for output, word in enumerate(outputs)
    ]


def _output_mask(
    word: str,
    output: tuple[str, int, int],
    inputs: Sequence[ScopedTensor],
    input_masks: Sequence[Mask | None],
    table: MaskTable,
) -> Mask | None:
    """Return the mask of one output of a call, from the word that a rule has for it."""
    known_masks = [mask for mask in input_masks if mask is not None]
    match word:
        case "none":
            return None
        case "first" | "second" | "third" if len(input_masks) <= _MEASURED_INPUTS:
            return input_masks[PLACES.index(word)]
        case "or":
            return table.combine(MaskOp.EITHER, known_masks)
        case "and" | "first" | "second" | "third":
            return table.combine(MaskOp.BOTH, known_masks)
        case "ones":
            return table.mask(MaskOp.ONES, inputs[0])
        case "concat" if len(inputs) == len(input_masks):
            return table.join(zip(inputs, input_masks, strict=True))
    name, call, place = output
    return table.mask(MaskOp.LAYER, name, float(call), float(place), word, *input_masks)


def _masked_inputs(input_masks: Sequence[object]) -> str:
    """
    Return which inputs are masked in the rules' notation, a digit per input; more than three inputs
    are written as three.
    """
    digits = "".join("0" if mask is None else "1" for mask in input_masks)
    if len(digits) <= _MEASURED_INPUTS:
        return digits
    return "111" if "0" not in digits else "110" if "1" in digits else "000"


def _true_arguments(arguments: Mapping[str, Argument]) -> list[str]:
    return [name for name, value in arguments.items() if value is True]


def plain_config(unit: Unit) -> dict[str, object]:
    """Return a config in the form of a file, in which layers have a class and a config."""
    return {key: _plain_value(value) for key, value in unit.config.items()}


def _plain_value(value: Value) -> object:
    if isinstance(value, Unit) and value.role is not Role.OPERATION:
        return keras_objects.short(value.class_name, plain_config(value))  # type: ignore[arg-type]  # policies stay values
    return value
