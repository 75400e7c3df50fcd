"""Small saved models, built from their parts, whole or wrong in one way each."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np

from policytool.support.text import protobuf_messages
from tests.helpers import bundles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Config = dict[str, Any]

LOSS_SCALED: Final[Config] = {
    "class_name": "Policy",
    "config": {
        "name": "mixed_float16",
        "loss_scale": {"class_name": "FixedLossScale", "config": {"loss_scale_value": 128.0}},
    },
}


def instance(class_name: str, /, **config: object) -> Config:
    """Return a layer or another object with its arguments, as Keras 2 writes it."""
    return {"class_name": class_name, "config": config}


def instance3(class_name: str, module: str = "keras.layers", /, **config: object) -> Config:
    """Return an object of Keras itself with its arguments, as Keras 3 writes it."""
    return {"module": module, **instance(class_name, **config), "registered_name": None}


def dense(name: str = "dense_a", dtype: object = "float32", **more: object) -> Config:
    """Return the entry of a Dense layer."""
    config = {"name": name, "trainable": True, "dtype": dtype, "units": 2, **more}
    return instance("Dense", **config)


def sequential(*layers: Config, name: str = "mlp") -> Config:
    """
    Return the config of a Sequential model with these layers, of one Dense where none are given.
    """
    return instance("Sequential", name=name, layers=list(layers) or [dense()])


def nested(levels: int) -> str:
    """
    Return the JSON of models in models, ``levels`` of them around one Dense; as text, because
    ``json.dumps`` recurses.
    """
    heads = (
        (
            f'{{"class_name": "Sequential", "config": {{"name": "level{level}", "trainable": true, '
            '"layers": ['
        )
        for level in range(levels)
    )
    return "".join(heads) + json.dumps(dense()) + "]}}" * levels


def h5_model(
    path: Path, config: object, *, weights: bool = True, keras_version: str = "2.4.0"
) -> Path:
    """
    Write a whole model in HDF5; ``config`` is text (bytes for text of fixed length, as old releases
    write it), anything else becomes JSON.
    """
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = (
            np.bytes_(config)
            if isinstance(config, bytes)
            else config
            if isinstance(config, str)
            else json.dumps(config).encode()
        )
        file.attrs["keras_version"] = keras_version
        file.attrs["backend"] = "tensorflow"
        group = file.create_group("model_weights")
        if weights:
            group["dense_a/dense_a/kernel:0"] = np.zeros((6, 2), dtype="float32")
            group["dense_a/dense_a/bias:0"] = np.zeros(2, dtype="float32")
    return path


def weights_bytes() -> bytes:
    """Return a weights file in Keras 3's layout, of one Dense with a kernel of 6 x 2 and a bias."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["layers/dense/vars/0"] = np.zeros((6, 2), dtype="float32")
        file["layers/dense/vars/1"] = np.zeros(2, dtype="float32")
    return buffer.getvalue()


def keras_members(config: object = None) -> dict[str, bytes]:
    """Return the members of a ``.keras`` archive."""
    held = config or {"module": "keras", **sequential()}
    text = held if isinstance(held, bytes) else json.dumps(held).encode()
    return {
        "config.json": text,
        "metadata.json": b'{"keras_version": "3.6.0", "date_saved": "2024-01-01@00:00:00"}',
        "model.weights.h5": weights_bytes(),
    }


def keras_zip(
    path: Path,
    members: Mapping[str, bytes] | Sequence[tuple[str, bytes]] | None = None,
    *,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """Write a ``.keras`` archive of these members; pairs may repeat a name."""
    held = keras_members() if members is None else members
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in held.items() if hasattr(held, "items") else held:
            archive.writestr(name, data)
    return path


@dataclass
class Object:
    """One node of a SavedModel's object graph."""

    identifier: str = ""
    metadata: object = None
    """JSON values, or bytes as they are."""

    children: list[tuple[str, int]] = field(default_factory=list)
    variable: tuple[str, int, tuple[int, ...]] | None = None
    """Name, TensorFlow's dtype number, shape."""


def keras_object(
    name: str,
    class_name: str,
    *,
    children: list[tuple[str, int]] | None = None,
    identifier: str = "_tf_keras_layer",
    **more: object,
) -> Object:
    """Return the node of a layer."""
    metadata = {
        "name": name,
        "class_name": class_name,
        "trainable": True,
        "config": {"name": name, "trainable": True, "dtype": "float32"},
        **more,
    }
    return Object(identifier=identifier, metadata=metadata, children=children or [])


def saved_model(directory: Path, objects: Sequence[Object], *, separate: bool = False) -> Path:
    """
    Write a SavedModel whose Keras metadata is in ``saved_model.pb``, or ``separate`` in
    ``keras_metadata.pb``. It has a checkpoint, which TensorFlow reads,
    if it has no variables.
    """
    saved = protobuf_messages.parse("SavedModel", b"")
    graph = saved.meta_graphs.add()
    graph.meta_info.tensorflow_version = b"2.6.0" if separate else b"2.3.0"
    metadata = protobuf_messages.parse("KerasMetadata", b"")
    for number, item in enumerate(objects):
        node = graph.object_graph.nodes.add()
        for name, child in item.children:
            node.children.add(local_name=name.encode(), node_id=child)
        if item.variable:
            name, dtype, shape = item.variable
            node.variable.name, node.variable.dtype = name.encode(), dtype
            for size in shape:
                node.variable.shape.dims.add(size=size)
        if item.identifier:
            node.user_object.identifier = item.identifier.encode()
        if item.metadata is not None:
            text = (
                item.metadata
                if isinstance(item.metadata, bytes)
                else json.dumps(item.metadata).encode()
            )
            if separate:
                metadata.nodes.add(
                    node_id=number, identifier=item.identifier.encode(), metadata=text
                )
            else:
                node.user_object.metadata = text
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "saved_model.pb").write_bytes(saved.SerializeToString())
    if separate:
        (directory / "keras_metadata.pb").write_bytes(metadata.SerializeToString())
    if not any(item.variable for item in objects):
        (directory / "variables").mkdir(exist_ok=True)
        bundles.write(directory / "variables" / "variables", {})
    return directory


def small_saved_model(directory: Path, *, separate: bool = False) -> Path:
    """Write a SavedModel of one Dense with its kernel."""
    return saved_model(
        directory,
        [
            keras_object(
                "mlp",
                "Sequential",
                identifier="_tf_keras_sequential",
                children=[("layer-0", 1)],
                keras_version="2.4.0",
            ),
            keras_object("dense_a", "Dense", children=[("kernel", 2)]),
            Object(variable=("dense_a/kernel", 1, (6, 2))),
        ],
        separate=separate,
    )
