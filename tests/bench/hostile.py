"""
Measure what files made to be expensive cost: ``python tests/bench/hostile.py [--write FILE]
[NAME...]``, by ``make bench``.

Each is below 50 MB and as bad as its kind can be made; each command that reads it runs in a process
of its own, whose time and memory the system tells. What takes more than a minute of processor time
is ended.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
from h5py import h5a, h5s, h5t

sys.path.insert(0, str(Path(__file__).parents[2]))
from policytool.formats.checkpoint.bundle import OBJECT_GRAPH_KEY
from policytool.support.text import protobuf_messages
from tests.helpers import bundles, small_models
from tests.helpers.convertible_models import input2, keras2, layer2
from tests.helpers.small_models import (
    Config,
    Object,
    dense,
    h5_model,
    instance,
    instance3,
    keras_members,
    keras_object,
    keras_zip,
    saved_model,
    sequential,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_GIVEN_UP: Final = 60
_MIB: Final = 2**20

AUDIT: Final = ("audit", "--fail-on", "never")
VALUES: Final = ("audit", "--weights", "--fail-on", "never")
MIGRATE: Final = ("migrate", "--to", "mixed_float16", "-o", "out", "--existing=replace")
CONVERT: Final = ("migrate", "--target", "keras3", "-o", "converted", "--existing=replace")
LIGHT: Final = (AUDIT,)
ALL: Final = (VALUES, MIGRATE, CONVERT)


def _text(directory: Path, config: str, name: str = "a.json") -> Path:
    path = directory / name
    path.write_text(config, encoding="utf-8")
    return path


def _layers(count: int, **more: object) -> list[Any]:
    return [dense(f"d{number}", **more) for number in range(count)]


def _units(directory: Path, units: str) -> Path:
    """Write a layer with this JSON as its units."""
    text = json.dumps(sequential(dense(units="N"))).replace('"N"', units)
    return _text(directory, text)


def _same_names(directory: Path) -> Path:
    return _text(directory, json.dumps(sequential(*(dense("same") for _ in range(90_000)))))


def _long_name(directory: Path) -> Path:
    return _text(directory, json.dumps(sequential(*_layers(20_000), name="n" * 10 * _MIB)))


def _shared(directory: Path) -> Path:
    layers = [{**dense("same"), "shared_object_id": 7} for _ in range(90_000)]
    return _text(directory, json.dumps(sequential(*layers)))


def _shared_model(directory: Path) -> Path:
    inner = {**sequential(*_layers(2_000), name="inner"), "shared_object_id": 7}
    again = {**sequential(name="inner"), "shared_object_id": 7}
    return _text(directory, json.dumps(sequential(inner, *[again] * 40_000)))


def _policy_map(directory: Path) -> Path:
    policies = {f"l.*{number}x": "mixed_float16" for number in range(10_000)}
    policy = instance3(
        "DTypePolicyMap", "keras.dtype_policies", default_policy=None, policy_map=policies
    )
    config = json.dumps(sequential(dense(dtype=policy), *_layers(20_000, dtype=policy)[:60]))
    return _text(directory, config)


def _wrappers(directory: Path) -> Path:
    inner: Any = dense("inner")
    for number in range(60):
        inner = instance("Bidirectional", name=f"b{number}", trainable=True, layer=inner)
    return _text(directory, json.dumps(sequential(inner)))


def _functional(directory: Path, layers: Iterable[Config], outputs: Iterable[list[Any]]) -> Path:
    config = keras2(input2("in", 4), *layers)
    config["config"]["output_layers"] = list(outputs)
    return _text(directory, json.dumps(config))


def _inputs(*names: str) -> list[Any]:
    return [[name, 0, 0, {}] for name in names]


def _chain(directory: Path) -> Path:
    names = ["in", *(f"d{number}" for number in range(40_000))]
    pairs = itertools.pairwise(names)
    layers = [layer2("Dense", name, _inputs(before), units=2) for before, name in pairs]
    return _functional(directory, layers, [[names[-1], 0, 0]])


def _references(directory: Path) -> Path:
    add = layer2("Add", "add", _inputs(*["in"] * 500_000))
    return _functional(directory, [add], [["add", 0, 0]])


def _calls(directory: Path) -> Path:
    dense_layer = layer2("Dense", "d", *[_inputs("in")] * 500_000, units=2)
    return _functional(directory, [dense_layer], (["d", number, 0] for number in range(100_000)))


def _cycle(directory: Path) -> Path:
    layers = [
        layer2("Dense", f"d{number}", _inputs(f"d{(number + 1) % 20_000}"), units=2)
        for number in range(20_000)
    ]
    return _functional(directory, layers, [["d0", 0, 0]])


def _aliases(directory: Path) -> Path:
    lists = "".join(
        f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]\n" for number in range(1, 20)
    )
    return _text(directory, f"class_name: Sequential\na0: &a0 [1]\n{lists}config: *a19\n", "a.yaml")


def _yaml(directory: Path) -> Path:
    return _text(
        directory, "class_name: Sequential\nconfig:\n" + "- a\n" * (2 * _MIB - 100), "a.yaml"
    )


# HDF5


def _groups(directory: Path) -> Path:
    path = h5_model(directory / "a.h5", sequential())
    with h5py.File(path, "a", libver="latest") as file:
        for number in range(60_000):
            file.create_group(f"model_weights/g{number}")
    return path


def _links(directory: Path) -> Path:
    path = directory / "a.h5"
    h5_model(path, sequential())
    with h5py.File(path, "a", libver="latest") as file:
        place = file.create_group("model_weights/" + "n" * 60_000)
        for number in range(200_000):
            place[f"{number}"] = h5py.SoftLink("/")
    return path


def _hard_links(directory: Path) -> Path:
    path = h5_model(directory / "a.h5", sequential(*_layers(20_000)))
    with h5py.File(path, "a", libver="latest") as file:
        file["model_weights/one"] = np.zeros(2**20, "float32")
        for number in range(20_000):
            file[f"model_weights/d{number}/d{number}/kernel:0"] = file["model_weights/one"]
    return path


def _empty_datasets(directory: Path) -> Path:
    path = h5_model(directory / "a.h5", sequential(*_layers(20_000)))
    with h5py.File(path, "a", libver="latest") as file:
        for number in range(20_000):
            file.create_dataset(
                f"model_weights/d{number}/d{number}/kernel:0",
                (2**20,),
                "float32",
                chunks=(2**18,),
                compression="gzip",
            )
    return path


def _shape_bomb(directory: Path) -> Path:
    path = h5_model(directory / "a.h5", sequential(dense("d0")))
    with h5py.File(path, "a") as file:
        file.create_dataset(
            "model_weights/d0/d0/kernel:0", (2**30, 2**30), "float32", chunks=(2**10, 2**10)
        )
    return path


def _contiguous_bomb(directory: Path) -> Path:
    path = h5_model(directory / "a.h5", sequential(dense("d0")))
    with h5py.File(path, "a") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)
        group = file.create_group("model_weights/d0/d0")
        h5py.h5d.create(
            group.id, b"kernel:0", h5t.IEEE_F32LE, h5s.create_simple((2**30, 2**28)), properties
        )
    return path


def _packed_values(directory: Path) -> Path:
    path = h5_model(directory / "a.h5", sequential(dense("d0")))
    with h5py.File(path, "a") as file:
        result = file.create_dataset(
            "model_weights/d0/d0/kernel:0",
            (2**31,),
            "float32",
            chunks=(2**20,),
            compression="gzip",
            compression_opts=9,
        )
        block = zlib.compress(bytes(4 * 2**20), 9) + bytes(
            18_000
        )  # as much in the file as the bound on the ratio asks for
        for start in range(0, 2**31, 2**20):
            result.id.write_direct_chunk((start,), block)
    return path


def _attributes(directory: Path) -> Path:
    path = h5_model(directory / "a.h5", sequential())
    with h5py.File(path, "a", libver="latest") as file:
        for number in range(100_000):
            file.attrs[f"a{number}"] = 0
    return path


def _references_to_text(directory: Path) -> Path:
    """Write an attribute of text of variable length, all of whose elements are one large text."""
    path = directory / "a.weights.h5"
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"d0"]
        group = file.create_group("d0")
        group["d0/kernel:0"] = np.zeros((2, 2), "float32")
        kind = h5t.C_S1.copy()
        kind.set_size(h5t.VARIABLE)
        attribute = h5a.create(group.id, b"weight_names", kind, h5s.create_simple((1000,)))
        values = np.array(
            [b"x" * 4 * _MIB, *(b"MARK%04d" % number for number in range(999))], dtype=object
        )
        attribute.write(values)
    raw = bytearray(path.read_bytes())
    place = raw.find(struct.pack("<II", 4 * _MIB, 0)[:4])
    while raw[place + 16 : place + 20] != struct.pack(
        "<I", 8
    ):  # the second element's length, behind the first's address
        place = raw.find(struct.pack("<I", 4 * _MIB), place + 1)
    for number in range(1, 1000):
        raw[place + 16 * number : place + 16 * number + 16] = raw[place : place + 16]
    path.write_bytes(raw)
    return path


# Archives


def _members(directory: Path) -> Path:
    path = directory / "a.keras"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in keras_members().items():
            archive.writestr(name, data)
        for number in range(90_000):
            archive.writestr(f"assets/{number}", b"")
    return path


def _entries(directory: Path) -> Path:
    """Write an archive whose list of members is as long as 45 MB are."""
    path = directory / "a.keras"
    entry = (
        struct.pack(
            "<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0
        )
        + b"a"
    )
    count = 45 * _MIB // len(entry)
    end64 = struct.pack(
        "<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, count * len(entry), 4
    )
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, 4 + count * len(entry), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path.write_bytes(b"PK\x03\x04" + entry * count + end64 + locator + end)
    return path


def _lying(directory: Path, method: int) -> Path:
    """Write an archive that says of a member that it is as small inflated as it is packed."""
    packed = {zipfile.ZIP_BZIP2: 10**10, zipfile.ZIP_LZMA: 10**10, zipfile.ZIP_DEFLATED: 4 * 10**9}[
        method
    ]
    path = directory / "a.keras"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in keras_members().items():
            if name != "model.weights.h5":
                archive.writestr(name, data)
        info = zipfile.ZipInfo("model.weights.h5")
        info.compress_type = method
        with archive.open(info, "w", force_zip64=True) as member:
            for _ in range(packed // 10**8):
                member.write(bytes(10**8))
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        true = archive.getinfo("model.weights.h5").file_size
    for place in (raw.rfind(struct.pack("<Q", true)), raw.find(struct.pack("<Q", true))):
        if place >= 0:
            raw[place : place + 8] = struct.pack("<Q", 10_000)
    path.write_bytes(raw)
    return path


def _lying_bzip2(directory: Path) -> Path:
    return _lying(directory, zipfile.ZIP_BZIP2)


def _lying_deflate(directory: Path) -> Path:
    return _lying(directory, zipfile.ZIP_DEFLATED)


def _overlapping(directory: Path) -> Path:
    """Write an archive of which 60,000 members are the same bytes."""
    path = keras_zip(directory / "a.keras")
    with zipfile.ZipFile(path, "a") as archive:
        weights = archive.getinfo("model.weights.h5")
        for number in range(60_000):
            twin = zipfile.ZipInfo(f"{number}.weights.h5")
            twin.header_offset, twin.file_size, twin.compress_size, twin.CRC = (
                weights.header_offset,
                weights.file_size,
                weights.compress_size,
                weights.CRC,
            )
            archive.filelist.append(twin)
            archive.NameToInfo[twin.filename] = twin
        vars(archive)["_didModify"] = True  # there is no other way to have it write what is not so
    return path


# SavedModels and checkpoints


def _field(number: int, data: bytes) -> bytes:
    return bundles.varint(number << 3 | 2) + bundles.varint(len(data)) + data


def _pb(directory: Path, data: bytes) -> Path:
    path = directory / "a"
    path.mkdir()
    (path / "saved_model.pb").write_bytes(data)
    return path


def _empty_objects(directory: Path) -> Path:
    return _pb(directory, _field(2, _field(7, b"\x0a\x00" * (20 * _MIB))))


def _empty_graphs(directory: Path) -> Path:
    return _pb(directory, b"\x12\x00" * (20 * _MIB))


def _empty_ops(directory: Path) -> Path:
    return _pb(directory, _field(2, _field(2, b"\x0a\x00" * (20 * _MIB))))


def _edges(directory: Path) -> Path:
    model = keras_object(
        "mlp",
        "Sequential",
        identifier="_tf_keras_sequential",
        children=[(f"e{number}", 1) for number in range(300_000)],
        keras_version="2.4.0",
    )
    return saved_model(directory / "a", [model, keras_object("d", "Dense")])


def _ways(directory: Path) -> Path:
    """Write objects each of which holds the same next one under many names."""
    models = [
        keras_object(
            f"m{level}",
            "Sequential",
            children=[(f"e{number}", level + 1) for number in range(5000)],
        )
        for level in range(50)
    ]
    return saved_model(directory / "a", [*models, keras_object("d", "Dense")])


def _metadata(directory: Path) -> Path:
    objects = [
        keras_object(
            "mlp",
            "Sequential",
            identifier="_tf_keras_sequential",
            children=[(f"layer-{n}", n + 1) for n in range(60_000)],
            keras_version="2.4.0",
        )
    ]
    return saved_model(
        directory / "a",
        [*objects, *(keras_object(f"d{number}", "Dense") for number in range(60_000))],
    )


def _ops(directory: Path) -> Path:
    definition: Any = protobuf_messages.parse("GraphDef", b"")
    for number in range(100_000):
        node = definition.nodes.add(name=b"a/b%d" % number, op=b"MatMul")
        node.attributes.add(key=b"T").value.type = 1
        if number:
            node.inputs.extend([b"a/b%d" % (number - 1)] * 2)
    saved: Any = protobuf_messages.parse("SavedModel", b"")
    graph = saved.meta_graphs.add(graph_def=[definition.SerializeToString()])
    graph.object_graph.nodes.add()
    graph.signatures.add(key=b"serve").value.outputs.add(key=b"y").value.name = b"a/b99999:0"
    return _pb(directory, saved.SerializeToString())


def _checkpoint_objects(directory: Path) -> Path:
    data = bundles.text(b"\x0a\x00" * (15 * _MIB))
    bundles.write(
        directory / "a", {OBJECT_GRAPH_KEY: ("string", (), data), "x": ("float32", (1,), bytes(4))}
    )
    return directory / "a.index"


def _checkpoint_keys(directory: Path) -> Path:
    entry = bundles.entry("float32", (0,), b"").SerializeToString()
    bundles.write_index(
        directory / "a",
        [[bundles.header(), *((b"%07d" % number, entry) for number in range(900_000))]],
    )
    (directory / "a.data-00000-of-00001").write_bytes(b"")
    return directory / "a.index"


def _manifest(directory: Path) -> Path:
    weights = [
        {"name": f"d{number}/kernel", "shape": [2**30, 2**30], "dtype": "float32"}
        for number in range(300_000)
    ]
    return _text(
        directory,
        json.dumps(
            {
                "modelTopology": sequential(*_layers(20_000)),
                "weightsManifest": [{"paths": [], "weights": weights}],
            }
        ),
        "model.json",
    )


def _nested(directory: Path) -> Path:
    return _text(directory, small_models.nested(60))


def _objects_of_weights(directory: Path) -> Path:
    return saved_model(
        directory / "a",
        [
            Object(children=[(f"v{n}", n + 1) for n in range(99_000)]),
            *(Object(variable=(f"s{n}/v", 1, (2,))) for n in range(99_000)),
        ],
    )


FILES: Final[dict[str, tuple[str, Callable[[Path], Path], tuple[tuple[str, ...], ...]]]] = {
    "digits": (
        "JSON with an integer that has 40 million digits",
        lambda directory: _units(directory, "9" * 40 * _MIB),
        LIGHT,
    ),
    "floats": (
        "JSON with a float that has 20 million digits and the exponent 999999",
        lambda directory: _units(directory, "1" * 20 * _MIB + ".5e999999"),
        LIGHT,
    ),
    "brackets": (
        "JSON with 12 million empty lists and objects",
        lambda directory: _units(directory, "[" + "[],{}," * (6 * _MIB) + "0]"),
        LIGHT,
    ),
    "keys": (
        "a JSON object that contains the same key 6 million times",
        lambda directory: _units(directory, "{" + '"a":0,' * (6 * _MIB) + '"a":0}'),
        LIGHT,
    ),
    "same-names": ("90,000 layers with the same name", _same_names, ALL),
    "long-name": ("20,000 layers in a model with a name of 10 MiB", _long_name, ALL),
    "shared": ("a layer that is used in 90,000 places", _shared, ALL),
    "shared-model": ("a model with 2,000 layers that is used in 40,000 places", _shared_model, ALL),
    "policy-map": ("policy maps with 10,000 regular expressions", _policy_map, LIGHT),
    "wrappers": ("60 nested Bidirectionals, which contain 2^60 layers", _wrappers, ALL),
    "nested": ("60 nested models", _nested, ALL),
    "chain": ("a functional model with a chain of 40,000 layers", _chain, ALL),
    "references": ("a layer with 500,000 inputs", _references, ALL),
    "calls": ("a layer that is called 500,000 times", _calls, ALL),
    "cycle": ("a cyclic graph with 20,000 layers", _cycle, ALL),
    "aliases": ("YAML with aliases that expand to 9^19 values", _aliases, LIGHT),
    "yaml": ("8 MiB of YAML", _yaml, LIGHT),
    "groups": ("HDF5 with 60,000 groups", _groups, LIGHT),
    "links": ("200,000 soft links in a group with a name of 60,000 characters", _links, LIGHT),
    "hard-links": ("a 4 MiB dataset that 20,000 layers use as their kernel", _hard_links, ALL),
    "empty-datasets": (
        "20,000 datasets that declare 4 MiB each and store no values",
        _empty_datasets,
        ALL,
    ),
    "shape-bomb": ("a chunked dataset that declares 2^60 values and stores none", _shape_bomb, ALL),
    "contiguous-bomb": (
        "a contiguous dataset that declares 2^60 values and stores none",
        _contiguous_bomb,
        ALL,
    ),
    "packed-values": ("8 GiB of zeros compressed to 44 MB", _packed_values, ALL),
    "attributes": ("HDF5 with 100,000 attributes", _attributes, LIGHT),
    "references-to-text": ("1,000 references to a 4 MiB text", _references_to_text, LIGHT),
    "members": ("a zip archive with 90,000 members", _members, ALL),
    "entries": ("a zip archive that lists a million members", _entries, LIGHT),
    "lying-bzip2": ("bzip2 data that declares 10 kB and expands to 10 GB", _lying_bzip2, ALL),
    "lying-deflate": ("deflate data that declares 10 kB and expands to 4 GB", _lying_deflate, ALL),
    "overlapping": (
        "a zip archive with 60,000 members that share the same bytes",
        _overlapping,
        ALL,
    ),
    "empty-objects": ("a SavedModel with 20 million empty objects", _empty_objects, LIGHT),
    "empty-graphs": ("a SavedModel with 20 million empty graphs", _empty_graphs, LIGHT),
    "empty-ops": ("a graph with 20 million empty ops", _empty_ops, LIGHT),
    "edges": ("an object that refers to another object under 300,000 names", _edges, ALL),
    "ways": ("50 objects that each refer to the next one under 5,000 names", _ways, ALL),
    "metadata": ("a SavedModel with 60,000 layers", _metadata, ALL),
    "ops": ("a graph with 100,000 ops", _ops, LIGHT),
    "objects-of-weights": ("a SavedModel with 99,000 scopes", _objects_of_weights, LIGHT),
    "checkpoint-objects": (
        "a checkpoint whose object graph has 15 million empty objects",
        _checkpoint_objects,
        LIGHT,
    ),
    "checkpoint-keys": ("a checkpoint with 900,000 tensors", _checkpoint_keys, LIGHT),
    "manifest": ("a TensorFlow.js model with 300,000 tensors of 2^60 values", _manifest, ALL),
}
"""What each is, how it is made, and the commands that are given it."""


def measured(command: tuple[str, ...], path: Path, scratch: Path) -> dict[str, Any]:
    """
    Return what a command made of a file: exit code, seconds of processor time, MiB, and its last
    words.
    """
    out = scratch / "said"
    arguments = [
        sys.executable,
        "-m",
        "policytool",
        *(str(path) if word == "{}" else word for word in command),
        str(path),
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            str(Path(__file__).with_name("measuring.py")),
            str(_GIVEN_UP),
            str(out),
            *arguments,
        ],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        check=True,
    )
    result = json.loads(done.stdout)
    code = result["code"]
    lines = out.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    outcome = (
        lines[0].removeprefix("policytool: ").replace(str(path), "")[:160].strip()
        if code not in {0, 1} and lines
        else ""
    )
    option = " ".join(word for word in command[1:3] if word not in {"--fail-on", "never"})
    return {
        "command": command[0],
        "option": option,
        **result,
        "said": outcome,
    }


def _size(path: Path) -> int:
    return (
        sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        if path.is_dir()
        else path.stat().st_size
    )


def measurements(names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each file and command."""
    for name in names or FILES:
        what, build, commands = FILES[name]
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch)
            (directory / "in").mkdir()
            path = build(directory / "in")
            os.chdir(scratch)
            for command in commands:
                row = {
                    "name": name,
                    "what": what,
                    "bytes": _size(path),
                    **measured(command, path, directory),
                }
                print(json.dumps(row), flush=True)  # noqa: T201  # a script
                yield row
            os.chdir("/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=Path)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    target = asked.write.absolute() if asked.write else None
    rows = list(measurements(asked.names))
    if target:
        target.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
