"""
The input shapes for which layers are built, as far as the config determines them. The shapes of
kernels depend on them.

A release builds a layer for the ``build_config`` next to its config, if the file has it, and
otherwise for the inputs of its first call. Keras 3 configs contain the shapes of these inputs. In
other configs, they are computed from the shapes of the model's inputs with the output shapes of
each class (:func:`~policytool.releases.output_shapes.output_shape`). A size is unknown if it
differs between two calls of a layer, or if a layer with custom code may change it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.model import custom_classes
from policytool.model.calls import (
    TENSOR,
    UNKNOWN_SHAPE,
    Reference,
    call_tensors,
    layer_entries,
    model_calls,
    tensors,
)
from policytool.model.flow import BEFORE_CHAIN, CallGraph, chain_graph, follow
from policytool.model.tree import LAYERS, layer_objects
from policytool.model.tree.layer_objects import entries_of
from policytool.releases import keras_objects
from policytool.releases.layer_classes import Category, layer_facts
from policytool.releases.layer_variables import INPUT
from policytool.releases.output_shapes import UnknownShapeError, joined, output_shape
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.document import Address, Document
    from policytool.model.calls import Call, ModelCalls
    from policytool.model.flow import Node, TensorValues
    from policytool.model.tree import Site
    from policytool.model.tree.storage import Placed
    from policytool.releases.output_shapes import Shape
    from policytool.support.text.jsontext import Json

Inputs = dict[str, "Shape"]
"""The known shapes of a layer's inputs, by argument name."""

_DEPTH: Final = 40
"""The maximum depth of nested models whose shapes are computed from the outermost call."""

_DECLARED: Final = ("batch_shape", "batch_input_shape")
_SHAPES: Final = "_shape"
_INNER: Final = frozenset({"layer", "cell", "cells"})
"""The attributes with inner layers that receive the inputs of the outer layer."""

_LAST: Final = -1


@dataclass(kw_only=True)
class LayerShapes:
    """The input and output shapes of the layers of a model, by site index."""

    document: Document
    placed: Placed
    _taken: dict[int, Inputs] = field(default_factory=dict)
    _outputs: dict[int, Sequence[Shape | None]] = field(default_factory=dict)
    """The output shapes of the networks, by the site index of the model."""

    _given_shapes: dict[int, Shape | None] = field(default_factory=dict)
    """The output shapes of layers, by site index; sizes that differ between calls are None."""

    _called: set[int] = field(default_factory=set)
    """The site indices of models whose shapes were computed from the inputs of a call."""

    @property
    def sites(self) -> Sequence[Site]:
        """The sites of the layers."""
        return self.placed.sites

    def inputs(self, index: int) -> Inputs:
        """Return the known shapes of a layer's inputs."""
        entry = self.entry(index)
        known = _build_shapes(entry) or _first_call(self.sites[index], entry)
        if known:
            return known
        input_shapes, _ = self._call_shapes
        return input_shapes.get(index, {})

    def output(self, index: int) -> Shape | None:
        """
        Return the output shape of a layer, or that of the first of several outputs; None if the
        rank is unknown.
        """
        _, returned = self._call_shapes
        site = self.sites[index]
        if site.is_model:
            outputs = self._outputs.get(index) or (None,)
            return outputs[0]
        return returned.get(index) or _input_shape(site)

    def is_built(self, index: int) -> bool:
        """Return whether the file stores the shapes for which a layer was built."""
        return bool(_build_shapes(self.entry(index)))

    def has_declared_input(self, index: int) -> bool:
        """Return whether the config of a layer or a chain declares the shape of its input."""
        site = self.sites[index]
        shape = _shape((site.config or {}).get("build_input_shape"))
        return shape is not None or _declared(site) is not None or self.is_built(index)

    def declared(self, index: int) -> Shape | None:
        """Return the shape that the config of an input, or of a first layer, declares."""
        return _declared(self.sites[index])

    def entry(self, index: int) -> Mapping[str, Json]:
        """Return the object that serializes a layer; empty for a layer that its parent creates."""
        entry = self.sites[index].entry
        if entry is None:
            return {}
        serialized = jsontext.value(self.document.parts[entry.part], entry.pointer)
        return serialized if isinstance(serialized, dict) else {}

    @cached_property
    def _entries(self) -> Mapping[Address, int]:
        """The site index of each address of an object that serializes a layer."""
        return entries_of(layer_objects(self.document, self.sites))

    @cached_property
    def _call_shapes(self) -> tuple[Mapping[int, Inputs], Mapping[int, Shape | None]]:
        """
        The input shapes and the output shapes of the calls of all layers, computed through all
        networks, inner networks first.
        """
        for index in reversed(range(len(self.sites))):
            if self.sites[index].is_model and not custom_classes.is_opaque(self.sites[index]):
                self._run(index, [], 0)
        return self._taken, self._given_shapes

    def _run(self, index: int, input_shapes: Sequence[Shape | None], depth: int) -> None:
        """Compute the shapes in the network of a model."""
        config = self.sites[index].config
        if config is None or depth > _DEPTH:
            return
        if layer_facts(self.sites[index].class_name).network == "chain":
            self._run_chain(index, config, input_shapes, depth)
        elif "output_layers" in config:
            self._run_graph(index, config, depth)

    def _run_chain(
        self, index: int, config: dict[str, Json], input_shapes: Sequence[Shape | None], depth: int
    ) -> None:
        """Compute the shapes in a Sequential, each layer from the one before."""
        below = self.placed.children[index]
        layers = [child for child in below if self.sites[child].attribute == LAYERS]
        if len(layers) != len(list(layer_entries(config))):
            return  # a layer is also in another model
        start = _build_shapes(self.entry(index)).get(INPUT) or _shape(
            config.get("build_input_shape")
        )
        start = start or (input_shapes[0] if input_shapes else None)
        names = [str(number) for number in range(len(layers))]

        def transfer(
            node: Node, _call: Call | None, known: TensorValues[Shape | None]
        ) -> Sequence[Shape | None]:
            if node[0] == BEFORE_CHAIN.layer:
                return (start,)
            number = int(node[0])
            declared = _declared(self.sites[layers[number]]) if number == 0 else None
            before = Reference(layer=names[number - 1] if number else BEFORE_CHAIN.layer)
            return self._call(layers[number], [(INPUT, declared or known.of(before))], depth)

        values = follow(chain_graph(names), transfer, walk="shapes")
        self._outputs[index] = [values.of(Reference(layer=names[-1])) if names else start]

    def _run_graph(self, index: int, config: dict[str, Json], depth: int) -> None:
        """Compute the shapes in a functional model, along its graph."""
        site = self.sites[index]
        calls = model_calls(config, keras3=False)
        if site.entry is None:
            return
        base = site.entry
        below = {self.sites[child].name: child for child in self.placed.children[index]}
        layers = {
            layer.name: self._entries.get(
                type(base)(
                    part=base.part, pointer=f"{base.pointer}/config/{LAYERS}/{layer.position}"
                ),
                below.get(layer.name),  # in a SavedModel, each layer has separate metadata
            )
            for layer in calls.layers
        }
        shifted = _shifted_layers(calls)
        stored = {layer.name: _stored_shapes(layer.entry) for layer in calls.layers if calls.keras3}

        def transfer(
            node: Node, call: Call | None, known: TensorValues[Shape | None]
        ) -> Sequence[Shape | None]:
            layer = layers.get(node[0])
            if layer is None:
                return (None,)
            if call is None:
                return (_declared(self.sites[layer]),)
            named = _named_inputs(self.sites[layer], call)
            shapes = stored.get(node[0], {})
            input_shapes = [
                (name, shapes.get((node[1], tensor)) or known.of(_unshifted(tensor, shifted)))
                for name, tensor in named
            ]
            return self._call(layer, input_shapes, depth)

        graph = CallGraph({layer.name: layer.calls for layer in calls.layers})
        values = follow(graph, transfer, walk="shapes")
        self._outputs[index] = [
            values.of(_unshifted(tensor, shifted)) for tensor in tensors(calls.outputs)
        ]

    def _call(
        self, index: int, named_shapes: Sequence[tuple[str, Shape | None]], depth: int
    ) -> Sequence[Shape | None]:
        """Record the input shapes of a layer at a call, and return its output shapes."""
        first: dict[str, Shape | None] = {}
        for name, shape in named_shapes:
            first.setdefault(name, shape)
        self._take(index, _with_keys({name: shape for name, shape in first.items() if shape}))
        output_shapes = self._output_shapes(index, [shape for _, shape in named_shapes], depth)
        shape = output_shapes[0]
        before = self._given_shapes.setdefault(index, shape)
        if shape != before:
            self._given_shapes[index] = _agreed(before or (), shape or ())
        return output_shapes

    def _take(self, index: int, inputs: Inputs) -> None:
        """
        Record the input shapes of a call. Sizes that differ from those of an earlier call become
        unknown.
        """
        known = self._taken.get(index)
        if not known:
            self._taken[index] = inputs
            return
        self._taken[index] = {
            name: _agreed(known[name], inputs[name]) for name in known.keys() & inputs.keys()
        }

    def _output_shapes(
        self, index: int, input_shapes: Sequence[Shape | None], depth: int
    ) -> Sequence[Shape | None]:
        """Return the output shapes of a layer; the last shape applies to all further outputs."""
        site = self.sites[index]
        if custom_classes.is_opaque(site):
            return (None,)
        if site.is_model:
            is_unknown = index not in self._outputs or self._outputs[index] == [None]
            if is_unknown and index not in self._called and any(input_shapes):
                # at most once for each model, because a model in models may have 2 ** 30 calls
                self._called.add(index)
                self._run(index, input_shapes, depth + 1)
            return (*self._outputs.get(index, ()), None)
        facts = layer_facts(site.class_name)
        first = input_shapes[0] if input_shapes else None
        if facts.category is Category.INPUT:
            return (first,)
        if facts.wraps == "steps":
            return (self._time_distributed_outputs(index, first, depth), None)
        if facts.wraps == "directions":
            return self._bidirectional_outputs(index, first, depth)
        self._call_inner(index, first, depth)
        if facts.wraps == "kernel":
            layer = next(iter(self.placed.children[index]), None)
            return (None,) if layer is None else self._output_shapes(layer, input_shapes, depth)
        return (output_shape(site.class_name, site.config or {}, input_shapes), None)

    def _call_inner(self, index: int, shape: Shape | None, depth: int) -> None:
        """Record the input shape of a wrapper's layer, or of the cells of a recurrent layer."""
        site = self.sites[index]
        if layer_facts(site.class_name).category is Category.RECURRENT and shape is not None:
            shape = (shape[0], *shape[2:])
        for inner in self.placed.children[index]:
            if self.sites[inner].attribute in _INNER:
                self._call(inner, [(INPUT, shape)], depth)
                if layer_facts(site.class_name).wraps == "cells" and shape is not None:
                    shape = (shape[0], _size((self.sites[inner].config or {}).get("units")))

    def _time_distributed_outputs(
        self, index: int, shape: Shape | None, depth: int
    ) -> Shape | None:
        """Return the output shape of a TimeDistributed, whose layer receives a step at a time."""
        if shape is None or len(shape) < 2 or len(self.placed.children[index]) != 1:  # noqa: PLR2004
            return None
        step = (shape[0], *shape[2:])
        step_shape = self._call(self.placed.children[index][0], [(INPUT, step)], depth)[0]
        return None if step_shape is None else (step_shape[0], shape[1], *step_shape[1:])

    def _bidirectional_outputs(
        self, index: int, shape: Shape | None, depth: int
    ) -> Sequence[Shape | None]:
        """Return the output shapes of a Bidirectional, which merges both directions."""
        directions = self.placed.children[index]
        direction_shapes = [self._call(child, [(INPUT, shape)], depth)[0] for child in directions]
        mode = (self.sites[index].config or {}).get("merge_mode")
        if len(direction_shapes) != 2 or mode is None:  # noqa: PLR2004  # there are two directions
            return (None,)
        if mode == "concat":
            # the output shape of convolutional layers, which have filters, stays unknown
            if "filters" not in (self.sites[directions[0]].config or {}):
                with suppress(UnknownShapeError):
                    return (joined(direction_shapes, _LAST), None)
            return (None,)
        return (direction_shapes[0] if direction_shapes[0] == direction_shapes[1] else None, None)


def _shifted_layers(calls: ModelCalls) -> frozenset[str]:
    """
    Return the layers whose calls Keras 2 counts from 1: nested models, because call 0 is the one
    that created them.
    """
    counts = {layer.name: len(layer.calls) for layer in calls.layers}
    references = [
        *tensors(calls.outputs),
        *(
            tensor
            for layer in calls.layers
            for call in layer.calls
            for tensor in call_tensors(call)
        ),
    ]
    return frozenset(
        tensor.layer for tensor in references if 0 < counts.get(tensor.layer, 0) <= tensor.call
    )


def _unshifted(tensor: Reference, shifted: frozenset[str]) -> Reference:
    return replace(tensor, call=tensor.call - 1) if tensor.layer in shifted else tensor


def _build_shapes(entry: Mapping[str, Json]) -> Inputs:
    """Return the shapes in the ``build_config`` of a layer."""
    build = entry.get("build_config")
    if not isinstance(build, dict):
        return {}
    listed = build.get("shapes_dict")
    items = listed if isinstance(listed, dict) else build
    return _with_keys(
        {
            key.removesuffix(_SHAPES): shape
            for key, value in items.items()
            if key.endswith(_SHAPES) and (shape := _shape(value)) is not None
        }
    )


def _first_call(site: Site, entry: Mapping[str, Json]) -> Inputs:
    """Return the stored shapes of the input tensors of a layer's first call; empty without them."""
    node = next(iter(keras_objects.stored_calls(entry)), None)
    if not isinstance(node, dict):
        return {}
    args, kwargs = node.get("args"), node.get("kwargs")
    facts = layer_facts(site.class_name)
    names = facts.call if _is_called_by_names(site) else (INPUT,)
    inputs: Inputs = {}
    named = [
        *zip(names, args if isinstance(args, list) else (), strict=False),
        *(kwargs.items() if isinstance(kwargs, dict) else ()),
    ]
    for name, argument in named:
        shape = next((shape for _, shape in _tensor_shapes(argument)), None)
        if shape is not None:
            inputs.setdefault(name, shape)
    return _with_keys(inputs)


def _with_keys(inputs: Inputs) -> Inputs:
    """Return the inputs of an attention layer with keys: the default of keys are the values."""
    if "value" in inputs:
        inputs.setdefault("key", inputs["value"])
    return inputs


def _shape(value: Json) -> Shape | None:
    """Return a shape with the batch; None for other values, such as a list of shapes."""
    if isinstance(value, dict) and keras_objects.class_of(value) == keras_objects.TUPLE:
        value = value.get("items")  # in the metadata of a SavedModel
    if not isinstance(value, list) or value == UNKNOWN_SHAPE:
        return None
    sizes = [size for size in value if size is None or type(size) is int]
    return tuple(sizes) if len(sizes) == len(value) and sizes else None


def _size(value: Json) -> int | None:
    return value if isinstance(value, int) else None


def _declared(site: Site) -> Shape | None:
    """Return the shape that the config of an input, or of a chain's first layer, declares."""
    config = site.config or {}
    return next((shape for key in _DECLARED if (shape := _shape(config.get(key)))), None)


def _input_shape(site: Site) -> Shape | None:
    """Return the shape that an input layer declares; None for any other layer."""
    is_input = layer_facts(site.class_name).category is Category.INPUT
    return _declared(site) if is_input else None


def _agreed(first: Shape, second: Shape) -> Shape:
    """Return the shape with None for sizes that differ; empty if the ranks differ."""
    if len(first) != len(second):
        return ()
    return tuple(a if a == b else None for a, b in zip(first, second, strict=True))


def _named_inputs(site: Site, call: Call) -> Iterator[tuple[str, Reference]]:
    """Yield the input tensors of a layer, with the names of their arguments."""
    facts = layer_facts(site.class_name)
    is_attention = _is_called_by_names(site)
    for number, argument in enumerate(call.args):
        name = facts.call[number] if is_attention and number < len(facts.call) else INPUT
        for tensor in tensors(argument):
            yield name, tensor
    for key in call.kwargs:
        for tensor in tensors(call.kwargs[key]):
            yield key if is_attention else f"{INPUT} {key}", tensor


def _is_called_by_names(site: Site) -> bool:
    """Return whether a layer has separate query, key and value arguments instead of a list."""
    facts = layer_facts(site.class_name)
    return facts.category is Category.ATTENTION and facts.call[:1] == ("query",)


def _stored_shapes(entry: Mapping[str, Json]) -> dict[tuple[int, Reference], Shape | None]:
    """Return the shapes of the input tensors of each call of a layer, as Keras 3 stores them."""
    return {
        (number, tensor): shape
        for number, node in enumerate(keras_objects.stored_calls(entry))
        for tensor, shape in _tensor_shapes(node)
    }


def _tensor_shapes(value: Json) -> Iterator[tuple[Reference, Shape | None]]:
    """Yield the tensors in an argument of Keras 3 and their shapes, in order."""
    if isinstance(value, list):
        for item in value:
            yield from _tensor_shapes(item)
    elif isinstance(value, dict):
        config = value.get("config")
        if keras_objects.class_of(value) != TENSOR or not isinstance(config, dict):
            for item in value.values():
                yield from _tensor_shapes(item)
            return
        match config.get("keras_history"):
            case [str(layer), int(call), int(output)]:
                tensor = Reference(layer=layer, call=call, output=output)
                yield tensor, _shape(config.get("shape"))
