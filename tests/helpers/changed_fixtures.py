"""Real files with one thing changed."""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import h5py

from policytool.support.text import protobuf_messages
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Config = dict[str, Any]


def keras_zip(folder: Path, name: str, change: Callable[[Config], object]) -> Path:
    """Write a ``.keras`` fixture with its config changed."""
    target = folder / "model.keras"
    with zipfile.ZipFile(FIXTURES / name) as source, zipfile.ZipFile(target, "w") as archive:
        for info in source.infolist():
            data = source.read(info)
            if info.filename == "config.json":
                config = json.loads(data)
                change(config)
                data = json.dumps(config).encode()
            archive.writestr(info, data)
    return target


def h5(
    folder: Path, name: str, change: Callable[[Config], object], *, attribute: str = "model_config"
) -> Path:
    """Write an HDF5 fixture with one of its JSON attributes changed."""
    target = folder / "model.h5"
    shutil.copy(FIXTURES / name, target)
    with h5py.File(target, "a") as file:
        config = json.loads(file.attrs[attribute])
        change(config)
        file.attrs[attribute] = json.dumps(config)
    return target


def h5_layers(folder: Path, name: str, change: Callable[[dict[str, Config]], object]) -> Path:
    """Write an HDF5 fixture after a change to the configs of its layers, by their names."""
    return h5(folder, name, lambda config: change(layers(config)))


def h5_policies(folder: Path, name: str, **policies: object) -> Path:
    """Write an HDF5 fixture in which some layers have other policies."""

    def change(found: dict[str, Config]) -> None:
        for layer_name, policy in policies.items():
            found[layer_name]["dtype"] = policy

    return h5_layers(folder, name, change)


def h5_values(path: Path, values: Mapping[str, float | tuple[float]]) -> Path:
    """Fill variables of an HDF5 model with a number; a tuple replaces the first value only."""
    with h5py.File(path, "r+") as file:
        for name, value in values.items():
            stored = file[f"model_weights/{name}"]
            if isinstance(value, tuple):
                stored[(0,) * stored.ndim] = value[0]
            else:
                stored[...] = value
    return path


def h5_training(folder: Path, name: str, **changes: object) -> Path:
    """Write an HDF5 fixture with another training configuration."""
    return h5(folder, name, lambda config: config.update(changes), attribute="training_config")


def h5_chain(folder: Path, name: str, *entries: tuple[str, Config]) -> Path:
    """Write a Sequential HDF5 fixture of which only the input is left, before these layers."""

    def change(config: Config) -> None:
        created = [
            {
                "class_name": class_name,
                "config": {
                    "name": class_name.lower(),
                    "trainable": True,
                    "dtype": "mixed_float16",
                    **more,
                },
            }
            for class_name, more in entries
        ]
        config["config"]["layers"][1:] = created

    return h5(folder, name, change)


def saved_model(folder: Path, name: str, change: Callable[[Any], object]) -> Path:
    """Write a SavedModel fixture with its message changed."""
    target = folder / "saved"
    shutil.copytree(FIXTURES / name, target)
    file = target / "saved_model.pb"
    message = protobuf_messages.parse("SavedModel", file.read_bytes())
    change(message)
    file.write_bytes(message.SerializeToString())
    return target


def with_op(folder: Path, name: str, op: str) -> Path:
    """Write a SavedModel fixture with one more op, in a function that nobody calls."""

    def change(message: Any) -> None:
        graph = protobuf_messages.parse("GraphDef", b"".join(message.meta_graphs[0].graph_def))
        function = graph.library.functions.add()
        function.signature.name = b"__inference_nobody_calls_this_1"
        function.nodes.add(name=b"x", op=op.encode())
        message.meta_graphs[0].graph_def[:] = [graph.SerializeToString()]

    return saved_model(folder, name, change)


def layers(config: Config) -> dict[str, Config]:
    """Return the configs of a model's layers by their names."""
    return {entry["config"]["name"]: entry["config"] for entry in config["config"]["layers"]}


def layer(config: Config, name: str) -> Config:
    """Return a layer's own config in a functional model's."""
    result: Config = next(
        entry["config"] for entry in config["config"]["layers"] if entry["config"]["name"] == name
    )
    return result
