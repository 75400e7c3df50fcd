"""
Checkpoints, archives, TensorFlow.js models and YAML of any size, in many shapes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from policytool.formats.checkpoint.bundle import OBJECT_GRAPH_KEY
from policytool.support.text import protobuf_messages
from tests.growth.file_shapes import FileShape
from tests.helpers import bundles
from tests.helpers.small_models import dense, keras_members, keras_zip, sequential

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_VALUE: Final = bytes(4)
_SUFFIX: Final = "/.ATTRIBUTES/VARIABLE_VALUE"


def _checkpoint(
    directory: Path, objects: Iterable[list[tuple[str, int]]], keys: dict[int, str]
) -> Path:
    """Write a checkpoint whose objects have these edges, and some of them values."""
    graph: Any = protobuf_messages.parse("TrackableGraph", b"")
    for number, edges in enumerate(objects):
        node = graph.nodes.add()
        for name, child in edges:
            node.children.add(local_name=name.encode(), node_id=child)
        if number in keys:
            node.attributes.add(name=b"VARIABLE_VALUE", checkpoint_key=keys[number].encode())
    tensors = dict.fromkeys(keys.values(), ("float32", (1,), _VALUE))
    data = bundles.text(graph.SerializeToString())
    bundles.write(directory / "a", {**tensors, OBJECT_GRAPH_KEY: ("string", (), data)})
    return directory / "a.index"


def _scopes(directory: Path, count: int) -> Path:
    tensors = {f"dense_{n}/kernel/Adam_{n % 2}": ("float32", (1,), _VALUE) for n in range(count)}
    bundles.write(directory / "a", tensors)
    return directory / "a.index"


def _held_optimizer(directory: Path, count: int) -> Path:
    """Write objects that all hold one optimizer, which has as many variables."""
    root = [(f"o{n}", n + 1) for n in range(count)]
    holders: list[list[tuple[str, int]]] = [[("own", count + 1)] for _ in range(count)]
    names = ["iter", "learning_rate", *(f"v{n}" for n in range(count))]
    optimizer = [(name, count + 2) for name in names]
    return _checkpoint(
        directory, [root, *holders, optimizer, []], {count + 2: f"o0/own/iter{_SUFFIX}"}
    )


def _chain(directory: Path, count: int) -> Path:
    """Write objects in objects, each with a value beside the next one."""
    edges = [[("next", n + 1), ("value", count + 1)] for n in range(count)]
    return _checkpoint(directory, [*edges, [], []], {count + 1: f"value{_SUFFIX}"})


def _members(directory: Path, count: int) -> Path:
    members = {f"assets/{'n' * 50}{n}/vocabulary.txt": b"a\nb" for n in range(count)}
    return keras_zip(directory / "model.keras", {**keras_members(), **members})


def _layers(directory: Path, count: int) -> Path:
    config = sequential(*(dense(f"dense_{n}") for n in range(count)))
    return keras_zip(directory / "model.keras", keras_members(config))


def _manifest(directory: Path, count: int) -> Path:
    """Write tensors of layers in a nested model, in as many groups with a shard each."""
    layers = [dense(f"dense_{n}") for n in range(count)]
    groups = [
        {
            "paths": [f"group{n}.bin"],
            "weights": [{"name": f"inner/dense_{n}/kernel", "shape": [2, 2], "dtype": "float32"}],
        }
        for n in range(count)
    ]
    model = {
        "modelTopology": sequential(sequential(*layers, name="inner")),
        "weightsManifest": groups,
    }
    path = directory / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    return path


def _yaml(text: str, directory: Path) -> Path:
    head = "class_name: Sequential\nconfig:\n  name: net\n  layers:\n"
    layer = "  - class_name: Dense\n    config: {name: d, units: 2, dtype: float32}\n"
    path = directory / "model.yaml"
    path.write_text(f"{head}{layer}{text}", encoding="utf-8")
    return path


def _aliases(directory: Path, count: int) -> Path:
    """Write as many aliases of a list with as many values."""
    values = ", ".join(map(str, range(count)))
    aliases = "".join(f"a{n}: *l\n" for n in range(count))
    return _yaml(f"held: &l [{values}]\n{aliases}", directory)


def _anchors(directory: Path, count: int) -> Path:
    return _yaml("".join(f"k{n}: &a{n} [1]\nr{n}: *a{n}\n" for n in range(count)), directory)


def _flow(directory: Path, count: int) -> Path:
    return _yaml(f"nest: {'[' * count}{']' * count}\n", directory)


def _long_keys(directory: Path, count: int) -> Path:
    return _yaml("".join(f"? {'k' * 10 * count}{n}\n: 1\n" for n in range(20)), directory)


SHAPES: Final = {
    "checkpoint of scopes": FileShape(_scopes),
    "checkpoint with a held optimizer": FileShape(_held_optimizer),
    "checkpoint with a chain": FileShape(_chain, 40),
    "archive with members": FileShape(_members),
    "archive with layers": FileShape(_layers),
    "manifest": FileShape(_manifest),
    "aliases": FileShape(_aliases, limits=("yaml-values=1000",)),
    "anchors": FileShape(_anchors),
    "flow": FileShape(_flow, 40),
    "long keys": FileShape(_long_keys),
}
