"""
Models of both libraries as JSON files, read and converted, for tests of what conversion writes
otherwise.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policytool.formats import format_detection
from policytool.migration.convert import decoding, encoding
from policytool.migration.convert.conversion_plan import rewrite_model
from policytool.migration.convert.rewrites import ConversionContext
from policytool.migration.convert.target import Log, Target
from policytool.model import reading
from tests.helpers.small_models import instance, instance3

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.model.loaded_model import LoadedModel

Config = dict[str, Any]


def layer2(class_name: str, name: str, *nodes: object, **config: object) -> Config:
    """Return a layer of a functional model of Keras 2, called with each of ``nodes``."""
    return {
        "class_name": class_name,
        "name": name,
        "config": {"name": name, "trainable": True, "dtype": "float32", **config},
        "inbound_nodes": list(nodes),
    }


def input2(name: str, *shape: int | None) -> Config:
    """Return an input layer of Keras 2."""
    return {
        **instance("InputLayer", name=name, batch_input_shape=[None, *shape], dtype="float32"),
        "name": name,
        "inbound_nodes": [],
    }


def keras2(*layers: Config, outputs: tuple[str, ...] = ()) -> Config:
    """Return a functional model of Keras 2; its output is the last layer's."""
    inputs = [[layer["name"], 0, 0] for layer in layers if layer["class_name"] == "InputLayer"]
    ends = [[name, 0, 0] for name in outputs or (layers[-1]["name"],)]
    config = {
        "name": "model",
        "trainable": True,
        "layers": list(layers),
        "input_layers": inputs,
        "output_layers": ends,
    }
    return {**instance("Functional", **config), "keras_version": "2.15.0", "backend": "tensorflow"}


def tensor(name: str, output: int = 0) -> Config:
    """Return a tensor as Keras 3 writes it in a call."""
    return {
        "class_name": "__keras_tensor__",
        "config": {"shape": [None], "dtype": "float32", "keras_history": [name, 0, output]},
    }


def layer3(
    class_name: str,
    name: str,
    *args: object,
    module: str = "keras.layers",
    kwargs: Config | None = None,
    **config: object,
) -> Config:
    """Return a layer of a functional model of Keras 3, called once."""
    own = {} if "ops" in module else {"trainable": True, "dtype": policy("float32")}
    nodes = [{"args": list(args), "kwargs": kwargs or {}}]
    registered = class_name if "ops" in module else None
    return {
        "module": module,
        "class_name": class_name,
        "config": {"name": name, **own, **config},
        "registered_name": registered,
        "name": name,
        "inbound_nodes": nodes,
    }


def policy(name: str) -> Config:
    """Return a policy as Keras 3 writes it."""
    return instance3("DTypePolicy", "keras", name=name)


def input3(name: str, *shape: int | None) -> Config:
    """Return an input layer of Keras 3."""
    config = {"name": name, "batch_shape": [None, *shape], "dtype": "float32", "sparse": False}
    return {**instance3("InputLayer", **config), "name": name, "inbound_nodes": []}


def keras3(*layers: Config) -> Config:
    """Return a functional model of Keras 3; its output is the last layer's."""
    inputs = [[layer["name"], 0, 0] for layer in layers if layer["class_name"] == "InputLayer"]
    config = {
        "name": "model",
        "trainable": True,
        "layers": list(layers),
        "input_layers": inputs,
        "output_layers": [[layers[-1]["name"], 0, 0]],
    }
    return {
        **instance("Functional", **config),
        "module": "keras.src.models.functional",
        "registered_name": "Functional",
        "build_config": {},
    }


def load(path: Path) -> LoadedModel:
    """Return the model of a file."""
    return reading.load_model(format_detection.document(path, path.name))


def written(path: Path, model: Config) -> LoadedModel:
    """Return a model once its config is written as JSON."""
    path.write_text(json.dumps(model), encoding="utf-8")
    return load(path)


def converted(
    model: Config, loader: str, *, weights: bool = False, stored: bool = True
) -> tuple[Config, Unit, Log]:
    """
    Return a model's config as a loader has it, the model, and what was said; ``stored`` is whether
    it is taken for a file that holds variables.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.json")
        file.write_text(json.dumps(model), encoding="utf-8")
        document = format_detection.document(file, str(file))
    loaded = reading.load_model(replace(document, tensors=()) if stored else document)
    log, target = Log(), Target(loader=loader, container="keras")
    root = rewrite_model(
        decoding.decode(loaded),
        ConversionContext(loaded=loaded, target=target, log=log, allow_weight_rewrite=weights),
    )
    config = encoding.encode(root, target, log)
    assert isinstance(config, dict)
    return config, root, log


def converted_config(model: Config, loader: str, *, weights: bool = False) -> Config:
    """Return a model's config as a loader has it; fail if anything of the model is refused."""
    config, _, log = converted(model, loader, weights=weights)
    assert not log.refusals
    return config


def refusals(model: Config, loader: str, *, weights: bool = False, stored: bool = True) -> str:
    """Return all refusals of a conversion as one text."""
    return told(converted(model, loader, weights=weights, stored=stored)[2])


def history(argument: Config) -> list[object]:
    """Return which output of which layer an argument of a call of Keras 3 is."""
    result: list[object] = argument["config"]["keras_history"]
    return result


def source_layer(argument: object) -> str:
    """Return the layer that an argument of a call of Keras 3 comes from."""
    assert isinstance(argument, dict)
    return str(history(argument)[0])


def named(config: Config, name: str) -> Config:
    """Return a layer of an encoded model."""
    result: Config = next(
        layer for layer in config["config"]["layers"] if layer["config"]["name"] == name
    )
    return result


def told(log: Log) -> str:
    """Return all refusals as one text."""
    return "\n".join(refusal.message for refusal in log.refusals)


def warnings(log: Log) -> str:
    """Return all notes as one text."""
    return "\n".join(note.message for note in log.notes)
