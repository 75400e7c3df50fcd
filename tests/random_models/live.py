"""Descriptions as live models of the library that runs this process."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.random_models import ops
from tests.random_models.custom import custom_classes
from tests.random_models.description import graph_from_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.description import Graph, InputSpec, Node, Recipe, Training

Keras = Any
"""The module ``keras`` or ``tf_keras``."""


class GraphBuilder:
    """The layers of one graph."""

    def __init__(self, keras: Keras, graph: Graph) -> None:
        self.keras = keras
        self.graph = graph
        self.layers: dict[str, Any] = {}

    def model(self) -> Any:
        """Return the model of the graph."""
        named = {"name": self.graph.name} if self.graph.name else {}
        if self.graph.kind == "sequential":
            layers = [self.layer(node) for node in self.graph.nodes]
            return self.keras.Sequential([self.input(self.graph.inputs[0]), *layers], **named)
        if self.graph.kind == "subclassed":
            config = json.loads(json.dumps(asdict(replace(self.graph, kind="functional"))))
            return custom_classes(self.keras)["RandomModel"](config, **named)
        inputs = {spec.id: self.input(spec) for spec in self.graph.inputs}
        outputs = self.run(inputs)
        if self.graph.structure == "dict":
            return self.keras.Model(
                {spec.name: inputs[spec.id] for spec in self.graph.inputs}, outputs, **named
            )
        given = list(inputs.values())
        return self.keras.Model(given[0] if len(given) == 1 else given, outputs, **named)

    def input(self, spec: InputSpec) -> Any:
        """Return an input of the model."""
        return self.keras.Input(
            shape=spec.shape, dtype=spec.dtype, name=spec.name, batch_size=spec.batch
        )

    def run(self, inputs: dict[str, Any]) -> Any:
        """Return the outputs of the graph for values of its inputs."""
        values = dict(inputs)
        for node in self.graph.nodes:
            result = self._call(node, values)
            several = list(result) if isinstance(result, list | tuple) else [result]
            values[node.id] = several[0]
            values.update({f"{node.id}:{number}": one for number, one in enumerate(several)})
        outputs = [values[ref] for ref in self.graph.outputs]
        if self.graph.structure == "dict" and len(outputs) > 1:
            return {f"out_{number}": one for number, one in enumerate(outputs)}
        return outputs[0] if len(outputs) == 1 else outputs

    def _call(self, node: Node, values: dict[str, Any]) -> Any:
        given = [values[ref] for ref in node.inputs]
        if node.kind == "op":
            return ops.call(self.keras, node.what, given, dict(node.config))
        layer = self.layer(node)
        call = {name: self._argument(one, values) for name, one in node.call.items()}
        if node.spread:
            return layer(*given, **call)
        return layer(given[0] if len(given) == 1 else given, **call)

    def _argument(self, found: Any, values: dict[str, Any]) -> Any:
        if isinstance(found, list):
            return [self._argument(item, values) for item in found]
        return values[found["ref"]] if isinstance(found, dict) else found

    def layer(self, node: Node) -> Any:
        """Return the layer of a node, which another node may share."""
        wanted = node.reuse or node.id
        if wanted not in self.layers:
            self.layers[wanted] = (
                GraphBuilder(self.keras, node.graph).model()
                if node.graph is not None
                else part(self.keras, _described(node))
            )
        return self.layers[wanted]


def _described(node: Node) -> dict[str, Any]:
    home, _, name = node.what.rpartition(":")
    return {"class": name, "of": home or "layers", "config": dict(node.config)}


def part(keras: Keras, found: Any) -> Any:
    """Return an argument in which the descriptions of layers and the like are live objects."""
    if isinstance(found, list):
        return [part(keras, item) for item in found]
    if not isinstance(found, dict):
        return found
    if "graph" in found:
        return GraphBuilder(keras, graph_from_json(found["graph"])).model()
    if "class" not in found:
        return {name: part(keras, one) for name, one in found.items()}
    config = part(keras, found.get("config", {}))
    adapted = config.pop("adapt", None)
    result = _class(keras, found)(**config)
    if adapted is not None:
        random = np.random.default_rng(0)
        result.adapt(random.normal(0.5, 2.0, (16, *adapted)).astype("float32"))
    return result


def _class(keras: Keras, found: Mapping[str, Any]) -> Any:
    home = keras
    if found.get("of") == "custom":
        return custom_classes(keras)[found["class"]]
    for name in found.get("of", "layers").split("."):
        home = getattr(home, name)
    return getattr(home, found["class"])


def set_policy(keras: Keras, recipe: Recipe | None) -> None:
    """Make a recipe's policy the global one; the usual one without a recipe."""
    policy = recipe.policy if recipe is not None else "float32"
    keras.backend.set_floatx(policy if recipe is not None and recipe.floatx else "float32")
    if hasattr(keras, "config"):
        keras.config.set_dtype_policy(policy)
    else:
        keras.mixed_precision.set_global_policy(policy)


def train(keras: Keras, model: Any, training: Training, inputs: Any) -> None:
    """Compile a model, and give its optimizer a state."""
    arguments = {
        name: part(keras, value)
        for name, value in (
            ("loss", training.loss),
            ("metrics", training.metrics),
            ("loss_weights", training.loss_weights),
            ("weighted_metrics", training.weighted_metrics),
            ("jit_compile", training.jit_compile),
        )
        if value is not None
    }
    model.compile(optimizer=part(keras, training.optimizer), **arguments)
    if training.step == "train":
        model.run_eagerly = True
        model.train_on_batch(inputs, _targets(model(inputs)))
        model.run_eagerly = False
    elif training.step == "apply" and model.trainable_variables:
        _apply_gradients(model)


def _targets(outputs: Any) -> Any:
    if isinstance(outputs, dict):
        return {name: _targets(one) for name, one in outputs.items()}
    if isinstance(outputs, list | tuple):
        return [_targets(output) for output in outputs]
    return np.full(tuple(outputs.shape), 0.5, "float32")


def _apply_gradients(model: Any) -> None:
    import tensorflow as tf

    random = np.random.default_rng(2)
    pairs = [
        (tf.cast(tf.constant(random.normal(0, 0.1, tuple(item.shape))), item.dtype), item)
        for item in model.trainable_variables
    ]
    model.optimizer.apply_gradients(pairs)
