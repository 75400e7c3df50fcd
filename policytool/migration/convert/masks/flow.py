"""
The masks of tensors in a release, and the masks that each call of a layer uses.

In Keras 2 a mask is an attribute of its tensor (``_keras_mask``). Keras 3 computes masks twice:
while a functional model is built, when a layer with an argument ``mask`` gets its mask as an
argument of the call; and while the model runs, which determines the masks of all other layers
(``Layer.__call__`` in keras/src/layers/layer.py). A nested model of Keras 3 is built without masks,
so masks enter and leave it only while it runs. MultiHeadAttention also clears the masks of its
inputs only while it runs; in a nested model, it clears them for the outer model too, because the
tensors are the same. Keras 2 loses the mask of a tensor that an input of a nested model casts
(``_conform_to_reference_input`` in tf_keras/src/engine/functional.py).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.migration.convert.architecture import (
    Network,
    Role,
    Unit,
    call_graph,
    entries,
    exits,
    function_name,
    is_attention,
    named_arguments,
    walk,
)
from policytool.migration.convert.masks import (
    ATTENTION_INPUTS,
    CAST,
    Mask,
    MaskOp,
    MaskOperations,
    MaskTable,
    Scope,
    fails,
    input_tensors,
    output_masks,
    read_masks,
    rule_of,
    takes_mask_argument,
)
from policytool.migration.convert.ordering import calls_in_order
from policytool.migration.convert.tensor_facts import (
    compute_dtype,
    entry_dtypes,
    is_cast,
    network_dtypes,
)
from policytool.model.calls import Call, Reference, tensors
from policytool.model.flow import BEFORE_CHAIN
from policytool.model.tree import INPUT_CLASS
from policytool.releases.behaviour import CASTS_LOSE_MASKS
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import Values, layer_facts
from policytool.releases.releases import KERAS3, family_of
from policytool.support import steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.model.calls import Argument
    from policytool.model.flow import Node
    from policytool.releases.behaviour import MaskRule

ATTENTION_MASK: Final = "attention_mask"
EXPLICIT: Final = ("mask", *(f"{name}_mask" for name in ATTENTION_INPUTS))
"""The arguments of calls that contain the mask of an input."""

GIVEN_MASKS: Final = frozenset({*EXPLICIT, ATTENTION_MASK})
"""The arguments of calls that are masks."""

CallKey = tuple[Scope, str, int]
"""A call of a layer: the nested models around it, the layer's name, the number of the call."""

Used = frozenset[tuple[str, Mask]]
"""
The masks that a call uses, each with its place: the number of an input, or, for an attention layer,
``rows`` for queries, ``columns`` for values and keys, ``full`` for both.
"""


class _InputMasks(Struct, frozen=True, kw_only=True):
    """The masks of a call's inputs."""

    built: tuple[Mask | None, ...]
    """The masks while the model is built; in Keras 2 the same as ``run``."""

    run: tuple[Mask | None, ...]
    """The masks while the model runs."""


class _Unchanging(Struct, frozen=True, kw_only=True):
    """
    Cached facts that are the same for each call of a nested model, by the identity of its parts,
    which the outer network keeps alive.
    """

    orders: dict[int, list[Node]] = field(default_factory=dict)
    """The calls of a network in order."""

    rules: dict[tuple[int, int, int], MaskRule | None] = field(default_factory=dict)
    """The rule of a layer's call by its number and the number of its inputs."""


class MaskFlow:
    """The masks of one network in one release."""

    def __init__(
        self,
        network: Network,
        release: str,
        table: MaskTable,
        *,
        is_source: bool = False,
        drops_casts: bool = False,
        scope: Scope = (),
        entering: Sequence[Mask | None] = (),
        unchanging: _Unchanging | None = None,
    ) -> None:
        """
        Follow the masks.

        :param is_source: whether a release wrote the network, so that it contains all arguments
        :param drops_casts: whether the release gets the network without its casts
        :param unchanging: the cached facts of earlier calls in the outer models
        """
        self._unchanging = unchanging or _Unchanging()
        self.used: dict[CallKey, Used] = {}
        """
        The masks that each call uses, including calls in nested models; for calls of nested models,
        the masks that enter them.
        """
        self._network = network
        self._release = release
        self._table = table
        self._is_source = is_source
        self._drops_casts = drops_casts
        self._scope = scope
        self._operations = MaskOperations(network, scope, table)
        self._run: dict[Reference, Mask | None] = {}
        self._built = {} if family_of(release) == KERAS3 else self._run
        self._first: dict[Reference, Reference] = {}
        self._same: defaultdict[Reference, list[Reference]] = defaultdict(list)
        self.leaving = self._follow_network(network, entering)
        """The masks of the outputs while the model runs."""

    @property
    def _is_keras3(self) -> bool:
        return self._built is not self._run

    def _follow_network(
        self, network: Network, entering: Sequence[Mask | None]
    ) -> tuple[Mask | None, ...]:
        """
        Return the masks of a network's outputs for the masks of its inputs, and record those of all
        tensors in it.
        """
        self._run.update(zip(entries(network), entering, strict=False))
        order = self._unchanging.orders.get(id(network))
        if order is None:
            order = self._unchanging.orders[id(network)] = calls_in_order(network)
        steps.spend(len(order), walk="masks of calls")
        graph = call_graph(network)
        for name, number in order:
            unit, call = self._operations.units.get(name), graph.call((name, number))
            if unit is None or call is None:
                continue
            if unit.role is Role.OPERATION:
                if self._drops_casts and unit.class_name == CAST:
                    source = self._operations.before_cast(Reference(layer=name))
                    self._run[Reference(layer=name)] = self._run.get(source)
                continue
            if unit.class_name != INPUT_CLASS:
                self._follow(unit, number, call)
            elif network.is_chain:
                self._add_name(Reference(layer=name), BEFORE_CHAIN)
                self._run[Reference(layer=name)] = self._run.get(BEFORE_CHAIN)
        outputs = exits(network) or (entries(network) if network.is_chain else [])
        return tuple(self._run.get(output) for output in outputs)

    def _follow(self, unit: Unit, number: int, call: Call) -> None:
        """Follow the masks through one call."""
        arguments = named_arguments(unit, call)
        inputs = input_tensors(unit, arguments)
        masks = self._input_masks(unit, arguments, inputs)
        if unit.network is not None:
            self._enter(unit, number, inputs, masks)
            return
        rule = self._rule(unit, number, arguments, len(masks.run))
        key = (self._scope, unit.name, number)
        if is_attention(unit):
            self.used[key] = self._attention_masks(unit, arguments, inputs, rule)
        elif self._ignores_masks(unit, arguments):
            self.used[key] = frozenset()
        elif is_softmax(unit):  # rules describe masks of steps, not a Softmax's mask argument
            self.used[key] = read_masks(None, masks.run)
        else:
            self.used[key] = read_masks(rule, masks.run)
            if not self._is_source and fails(rule, masks.run):
                failing = self._table.mask(MaskOp.LAYER, "fails", *masks.run)
                self.used[key] = frozenset({("0", failing)})
        own_mask = self._own_mask(unit, inputs)
        passes = [(self._run, masks.run, rule.attached_out if rule is not None else None)]
        if self._is_keras3:
            passes.append((self._built, masks.built, rule.out if rule is not None else None))
        parts = [self._operations.tensor(reference) for reference in inputs]
        for recorded, before, words in passes:
            new_masks = (
                [own_mask]
                if own_mask is not None
                else output_masks(words, (unit.name, number), parts, before, self._table)
            )
            for output, mask in enumerate(new_masks):
                recorded[Reference(layer=unit.name, call=number, output=output)] = mask
        self._clear(unit, number, inputs, rule)

    def _rule(
        self, unit: Unit, number: int, arguments: Mapping[str, Argument], inputs: int
    ) -> MaskRule | None:
        """Return the rule of a call."""
        rules, key = self._unchanging.rules, (id(unit), number, inputs)
        if key not in rules:
            rules[key] = rule_of(unit, arguments, inputs, self._release)
        return rules[key]

    def _input_masks(
        self, unit: Unit, arguments: Mapping[str, Argument], inputs: Sequence[Reference]
    ) -> _InputMasks:
        """Return the masks that a call gets: by its argument ``mask``, else with its inputs."""
        value = arguments.get("mask")
        if value is not None:
            argument_masks = tuple(
                self._operations.mask(item) if isinstance(item, Reference) else None
                for item in (value if isinstance(value, list | tuple) else [value])
            )
            return _InputMasks(built=argument_masks, run=argument_masks)
        tensors_in = [None if self._loses_mask(unit, tensor) else tensor for tensor in inputs]
        built = tuple(self._built.get(tensor) if tensor else None for tensor in tensors_in)
        run = tuple(self._run.get(tensor) if tensor else None for tensor in tensors_in)
        has_mask_argument = layer_facts(unit.class_name).takes_mask or unit.network is not None
        if has_mask_argument and not self._is_source and not self._ignores_masks(unit, arguments):
            run = tuple(map(self._mask_from_build, built, run))
        return _InputMasks(built=built, run=run)

    def _ignores_masks(self, unit: Unit, arguments: Mapping[str, Argument]) -> bool:
        """
        Return whether a call has several tensors, so that a recurrent layer of Keras 3 does not use
        the mask. The output has the mask nevertheless.
        """
        is_recurrent = layer_facts(unit.class_name).takes_states and not unit.custom
        has_states = is_recurrent and _has_states(arguments)
        return self._is_keras3 and has_states and arguments.get("mask") is None

    def _mask_from_build(self, built: Mask | None, run: Mask | None) -> Mask | None:
        """
        Return the mask that a layer with an argument ``mask`` gets if the file does not contain it.

        Keras 3.0 to 3.9 pass the mask from the build of the model to each such layer; 3.10 and
        later do so only if the input is not cast. If the two masks differ, the mask is unknown.
        """
        if built is None or built is run:
            return run
        return self._table.mask(MaskOp.LAYER, "built or run", built, run)

    def _attention_masks(
        self,
        unit: Unit,
        arguments: Mapping[str, Argument],
        inputs: Sequence[Reference],
        rule: MaskRule | None,
    ) -> Used:
        """
        Return the masks that a MultiHeadAttention computes with. Keras 2 casts only the query of a
        call, and a tensor that was cast has no mask.
        """
        placed_masks: set[tuple[str, Mask]] = set()
        for name, reference in zip(ATTENTION_INPUTS, inputs, strict=False):
            mask_argument = arguments.get(f"{name}_mask")
            is_taken = isinstance(mask_argument, Reference) and takes_mask_argument(name, rule)
            mask = (
                self._operations.mask(mask_argument)
                if is_taken and isinstance(mask_argument, Reference)
                else None
                if name == "query" and not self._is_keras3 and self._is_cast(unit, reference)
                else self._run.get(reference)
            )
            if mask is not None and (rule is None or rule.reads):
                placed_masks.add(("rows" if name == "query" else "columns", mask))
        attention_mask = arguments.get(ATTENTION_MASK)
        if isinstance(attention_mask, Reference):
            placed_masks |= self._operations.attention(attention_mask)
        return frozenset(placed_masks)

    def _own_mask(self, unit: Unit, inputs: Sequence[Reference]) -> Mask | None:
        """Return the mask that an Embedding or a Masking creates."""
        if not makes_mask(unit) or not inputs:
            return None
        tensor = self._operations.tensor(self._operations.before_cast(inputs[0]))
        if layer_facts(unit.class_name).takes_ids:
            return self._table.mask(MaskOp.NONZERO, tensor, 0.0)
        dtype = compute_dtype(unit)
        value = unit.config.get("mask_value", 0.0)
        compared = float(value) if isinstance(value, int | float) else 0.0
        cast = (dtype,) if dtype in HALVES else ()
        return self._table.mask(
            MaskOp.ANY, self._table.mask(MaskOp.NONZERO, tensor, compared, *cast)
        )

    def _enter(
        self, unit: Unit, number: int, inputs: Sequence[Reference], masks: _InputMasks
    ) -> None:
        """Follow the masks through a nested model."""
        if unit.network is None:
            return
        casts = self._casts(unit.network, inputs)
        entering = [
            None if cast and not self._is_keras3 else mask
            for mask, cast in zip(masks.run, casts, strict=False)
        ]
        inner = MaskFlow(
            unit.network,
            self._release,
            self._table,
            is_source=self._is_source,
            drops_casts=self._drops_casts,
            scope=(*self._scope, f"{unit.name}:{number}"),
            entering=entering,
            unchanging=self._unchanging,
        )
        self.used.update(inner.used)
        self.used[self._scope, unit.name, number] = frozenset(
            (str(place), mask) for place, mask in enumerate(entering) if mask is not None
        )
        for output, mask in enumerate(inner.leaving):
            self._run[Reference(layer=unit.name, call=number, output=output)] = mask
        for entry, tensor, mask, cast in zip(
            entries(unit.network), inputs, entering, casts, strict=False
        ):
            if mask is not None and not cast and inner.mask(entry) is None:
                self._lose(tensor)

    def _casts(self, network: Network, inputs: Sequence[Reference]) -> list[bool]:
        """Return for each input of a nested model whether the model casts it."""
        expected_dtypes = [*entry_dtypes(network), *[None] * len(inputs)]
        actual_dtypes = (network_dtypes(self._network).of(tensor) for tensor in inputs)
        return [
            None not in (before, after) and before != after
            for before, after in zip(actual_dtypes, expected_dtypes, strict=False)
        ]

    def mask(self, tensor: Reference) -> Mask | None:
        """Return the mask of a tensor after the model has run."""
        return self._run.get(tensor)

    def _clear(
        self, unit: Unit, number: int, inputs: Sequence[Reference], rule: MaskRule | None
    ) -> None:
        """Remove the masks of the inputs that a call clears, under all of their names."""
        if inputs and self._returns_its_input(unit, inputs[0]):
            self._add_name(Reference(layer=unit.name, call=number), inputs[0])
        for place in rule.attached_clears if rule is not None else ():
            if place < len(inputs):
                self._lose(inputs[place])

    def _returns_its_input(self, unit: Unit, tensor: Reference) -> bool:
        """Return whether the output of a layer is the same tensor object as its input."""
        is_linear = (
            unit.class_name == "Activation"
            and function_name(unit.config.get("activation")) == "linear"
        )
        if unit.custom or not (
            is_linear or layer_facts(unit.class_name).values is Values.UNCHANGED
        ):
            return False
        return not self._is_cast(unit, tensor)

    def _loses_mask(self, unit: Unit, tensor: Reference) -> bool:
        """Return whether a layer casts a tensor, and its cast has no mask."""
        return (
            self._release in CASTS_LOSE_MASKS
            and unit.network is None
            and self._is_cast(unit, tensor)
        )

    def _is_cast(self, unit: Unit, tensor: Reference) -> bool:
        """Return whether a layer is known to cast an input tensor."""
        return is_cast(unit, network_dtypes(self._network).of(tensor))

    def _add_name(self, output: Reference, tensor: Reference) -> None:
        """Record that an output is the same tensor object as the input of a layer."""
        first = self._first.get(tensor, tensor)
        self._first[output] = first
        self._same[first].append(output)

    def _lose(self, tensor: Reference) -> None:
        """Record that a tensor has no mask any more, under all of its names."""
        first = self._first.get(tensor, tensor)
        self._run.update(dict.fromkeys([first, *self._same[first]]))


def has_masks(root: Unit) -> bool:
    """Return whether a layer of a model creates a mask, or a call has a mask argument."""
    return any(
        makes_mask(unit)
        or any(not GIVEN_MASKS.isdisjoint(named_arguments(unit, call)) for call in unit.calls)
        for unit in walk(root)
    )


def is_softmax(unit: Unit) -> bool:
    """Return whether a unit is the Softmax layer of Keras."""
    return layer_facts(unit.class_name).activation == "softmax" and not unit.custom


def makes_mask(unit: Unit) -> bool:
    """Return whether a layer creates masks from values."""
    return not unit.custom and layer_facts(unit.class_name).masks_values(unit.config)


def _has_states(arguments: Mapping[str, Argument]) -> bool:
    """Return whether a recurrent layer is called with states or constants."""
    values = [value for name, value in arguments.items() if name != "mask"]
    return sum(1 for _ in tensors(values)) > 1
