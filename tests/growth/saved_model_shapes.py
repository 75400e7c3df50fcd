"""
SavedModels of any size, with graphs, functions and objects of many shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.support.text import protobuf_messages
from tests.growth.file_shapes import FileShape
from tests.helpers.small_models import Object, keras_object, saved_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FLOAT: Final = 1
"""``DT_FLOAT`` (types.proto)."""

LIST: Final = "trackable_list_wrapper"


class Graph:
    """A SavedModel that is being written."""

    def __init__(self, objects: Sequence[Object] = ()) -> None:
        self.definition: Any = protobuf_messages.parse("GraphDef", b"")
        self.saved: Any = protobuf_messages.parse("SavedModel", b"")
        self.meta: Any = self.saved.meta_graphs.add()
        self.objects = objects

    def node(self, nodes: Any, name: str, op: str, *inputs: str, calls: Sequence[str] = ()) -> Any:
        """Add a node that computes in float32 to nodes."""
        made = nodes.add(
            name=name.encode(),
            op=op.encode(),
            inputs=[input_value.encode() for input_value in inputs],
        )
        for number, called in enumerate(calls):
            made.attributes.add(key=b"f%d" % number).value.function.name = called.encode()
        if op == "MatMul":
            made.attributes.add(key=b"T").value.type = FLOAT
        return made

    def main(self, name: str, op: str, *inputs: str, calls: Sequence[str] = ()) -> Any:
        """Add a node to the graph itself."""
        return self.node(self.definition.nodes, name, op, *inputs, calls=calls)

    def function(self, name: str, *arguments: str) -> Any:
        """Add a function and return its nodes."""
        made = self.definition.library.functions.add()
        made.signature.name = name.encode()
        for argument in arguments:
            made.signature.arguments.add(name=argument.encode())
        return made.nodes

    def asset(self, tensor: str) -> None:
        """Let a loader fill in an asset's path for a tensor."""
        self.meta.assets.add(filename=b"words.txt").tensor.name = f"{tensor}:0".encode()

    def signature(self, name: str, *outputs: str) -> None:
        """Add a signature."""
        entry = self.meta.signatures.add(key=name.encode())
        for number, output in enumerate(outputs):
            entry.value.outputs.add(key=b"y%d" % number).value.name = f"{output}:0".encode()

    def write(self, directory: Path) -> Path:
        """Write the model into a directory of its own and return its path."""
        path = saved_model(directory / "model", self.objects)
        saved: Any = protobuf_messages.parse("SavedModel", (path / "saved_model.pb").read_bytes())
        self.meta.graph_def.append(self.definition.SerializeToString())
        saved.meta_graphs[0].MergeFrom(self.meta)
        (path / "saved_model.pb").write_bytes(saved.SerializeToString())
        return path


def _tables(directory: Path, count: int) -> Path:
    """Write tables whose paths are in variables, one for each."""
    graph = Graph()
    graph.main("asset", "Const")
    graph.asset("asset")
    for number in range(count):
        handle = graph.main(f"handle_{number}", "VarHandleOp")
        handle.attributes.add(key=b"shared_name").value.text = b"path_%d" % number
        graph.main(f"assign_{number}", "AssignVariableOp", f"handle_{number}", "asset")
        graph.main(f"read_{number}", "ReadVariableOp", f"handle_{number}")
        graph.main(f"table_{number}", "InitializeTableFromTextFileV2", "t", f"read_{number}")
    return graph.write(directory)


def _tables_of_one_variable(directory: Path, count: int) -> Path:
    """Write tables that read one variable, to which as many nodes assign."""
    graph = Graph()
    graph.main("asset", "Const")
    graph.asset("asset")
    graph.main("handle", "VarHandleOp")
    for number in range(count):
        graph.main(f"assign_{number}", "AssignVariableOp", "handle", "asset")
        graph.main(f"read_{number}", "ReadVariableOp", "handle")
        graph.main(f"table_{number}", "InitializeTableFromTextFileV2", "t", f"read_{number}")
    return graph.write(directory)


def _tables_behind_chains(directory: Path, count: int) -> Path:
    """Write a chain of nodes behind an asset, and tables that read its end."""
    graph = Graph()
    graph.main("copy_0", "Const")
    graph.asset("copy_0")
    for number in range(1, count):
        graph.main(f"copy_{number}", "Identity", f"copy_{number - 1}")
    for number in range(count):
        graph.main(f"table_{number}", "InitializeTableFromTextFileV2", "t", f"copy_{count - 1}")
    return graph.write(directory)


def _tables_of_other_paths(directory: Path, count: int) -> Path:
    """Write a chain behind a path of the model's own, and tables that read its end."""
    graph = Graph()
    for number in range(count):
        graph.main(f"copy_{number}", "Identity", f"copy_{number - 1}")
        graph.main(f"table_{number}", "InitializeTableFromTextFileV2", "t", f"copy_{count - 1}")
    return graph.write(directory)


def _tables_of_signatures(directory: Path, count: int) -> Path:
    """Write tables whose paths are assets, in a graph with as many nodes of a signature."""
    graph = Graph()
    for number in range(count):
        graph.main(f"asset_{number}", "Const")
        graph.asset(f"asset_{number}")
        graph.main(f"table_{number}", "InitializeTableFromTextFileV2", "t", f"asset_{number}")
        graph.main(f"op_{number}", "MatMul", f"op_{number - 1}")
    graph.signature("serving_default", f"op_{count - 1}")
    return graph.write(directory)


def _savers_in_functions(directory: Path, count: int) -> Path:
    """Write a chain of functions that call each other with a saver's path."""
    graph = Graph()
    graph.main("path", "Placeholder")
    graph.meta.saver.filename_tensor = b"path:0"
    graph.main("call", "StatefulPartitionedCall", "path", calls=["f0"])
    for number in range(count):
        nodes = graph.function(f"f{number}", "given")
        graph.node(nodes, "save", "SaveV2", "given")
        graph.node(nodes, "call", "StatefulPartitionedCall", "given", calls=[f"f{number + 1}"])
    return graph.write(directory)


def _savers_of_arguments(directory: Path, count: int) -> Path:
    """Write a function with many arguments, each a saver's path, and a call of it."""
    graph = Graph()
    graph.main("path", "Placeholder")
    graph.meta.saver.filename_tensor = b"path:0"
    graph.main("call", "StatefulPartitionedCall", *["path"] * count, calls=["f"])
    nodes = graph.function("f", *(f"given_{number}" for number in range(count)))
    for number in range(count):
        graph.node(nodes, f"save_{number}", "SaveV2", f"given_{number}")
    return graph.write(directory)


def _signatures(directory: Path, count: int) -> Path:
    """Write signatures with the same output, behind a chain of as many nodes."""
    graph = Graph()
    for number in range(count):
        graph.main(f"op_{number}", "MatMul", f"op_{number - 1}")
        graph.signature(f"signature_{number}", f"op_{count - 1}")
    return graph.write(directory)


def _signatures_of_prefixes(directory: Path, count: int) -> Path:
    """Write signatures whose outputs are all the nodes of a chain."""
    graph = Graph()
    for number in range(count):
        graph.main(f"op_{number}", "MatMul", f"op_{number - 1}")
        graph.signature(f"signature_{number}", f"op_{number}")
    return graph.write(directory)


def _calls_in_turn(directory: Path, count: int) -> Path:
    """Write functions each of which the graph calls once."""
    graph = Graph()
    for number in range(count):
        graph.main(f"call_{number}", "PartitionedCall", f"call_{number - 1}", calls=[f"f{number}"])
        graph.node(graph.function(f"f{number}", "x"), f"layer_{number}/op", "MatMul", "x")
    graph.signature("serving_default", f"call_{count - 1}")
    return graph.write(directory)


def _calls_of_one(directory: Path, count: int) -> Path:
    """Write a function of many nodes that the graph calls as many times."""
    graph = Graph()
    nodes = graph.function("f", "x")
    for number in range(count):
        graph.main(f"call_{number}", "PartitionedCall", f"call_{number - 1}", calls=["f"])
        graph.node(nodes, f"layer_{number}/op", "MatMul", "x")
    graph.signature("serving_default", f"call_{count - 1}")
    return graph.write(directory)


def _nested_calls(directory: Path, count: int) -> Path:
    """Write functions each of which calls the next one twice."""
    graph = Graph()
    graph.main("call", "PartitionedCall", calls=["f0"])
    for number in range(count):
        nodes = graph.function(f"f{number}", "x")
        for call in range(2):
            graph.node(nodes, f"call_{call}", "PartitionedCall", "x", calls=[f"f{number + 1}"])
        graph.node(nodes, "op", "MatMul", "x")
    graph.signature("serving_default", "call")
    return graph.write(directory)


def _captured(directory: Path, count: int) -> Path:
    """Write a function that reads many variables, and signatures that call it."""
    variables = [Object(variable=(f"v{number}", FLOAT, (2,))) for number in range(count)]
    graph = Graph([Object(children=[(f"v{n}", n + 1) for n in range(count)]), *variables])
    nodes = graph.function("f", *(f"v{number}" for number in range(count)))
    for number in range(count):
        graph.node(nodes, f"layer_{number}/op", "MatMul", f"v{number}")
    bound = graph.meta.object_graph.concrete_functions.add(key=b"f").value.bound_inputs
    bound.extend(range(1, count + 1))
    for number in range(10):
        graph.main(f"call_{number}", "StatefulPartitionedCall", calls=["f"])
        graph.signature(f"signature_{number}", f"call_{number}")
    return graph.write(directory)


def _model(children: list[tuple[str, int]]) -> Object:
    return keras_object(
        "net",
        "Sequential",
        identifier="_tf_keras_sequential",
        children=children,
        keras_version="2.4.0",
    )


def _layers(directory: Path, count: int) -> Path:
    """Write a model with many layers, each with a variable."""
    layers = [
        keras_object(f"dense_{n}", "Dense", children=[("kernel", count + n + 1)])
        for n in range(count)
    ]
    variables = [Object(variable=(f"dense_{n}/kernel", FLOAT, (2, 2))) for n in range(count)]
    model = _model([(f"layer-{n}", n + 1) for n in range(count)])
    return saved_model(directory / "model", [model, *layers, *variables])


def _shared_lists(directory: Path, count: int) -> Path:
    """Write layers that all hold one list of as many variables."""
    layers = [
        keras_object(f"dense_{n}", "Dense", children=[("held", count + 1)]) for n in range(count)
    ]
    held = Object(identifier=LIST, children=[(str(n), count + 2 + n) for n in range(count)])
    variables = [Object(variable=(f"v{n}", FLOAT, (2,))) for n in range(count)]
    model = _model([(f"layer-{n}", n + 1) for n in range(count)])
    return saved_model(directory / "model", [model, *layers, held, *variables])


def _nested_lists(directory: Path, count: int) -> Path:
    """Write a chain of lists in lists, with a variable in each."""
    lists = [
        Object(identifier=LIST, children=[("next", n + 3), ("value", count + 2)])
        for n in range(count)
    ]
    layer = keras_object("dense", "Dense", children=[("held", 2)])
    end = Object(variable=("v", FLOAT, (2,)))
    return saved_model(directory / "model", [_model([("layer-0", 1)]), layer, *lists, end])


def _shared_layers(directory: Path, count: int) -> Path:
    """Write layers that all hold the same layers, through a list."""
    half = max(count // 2, 1)
    outer = [
        keras_object(f"outer_{n}", "Block", children=[("held", half + 1)]) for n in range(half)
    ]
    held = Object(identifier=LIST, children=[(str(n), half + 2 + n) for n in range(half)])
    inner = [keras_object(f"inner_{n}", "Dense") for n in range(half)]
    model = _model([(f"layer-{n}", n + 1) for n in range(half)])
    return saved_model(directory / "model", [model, *outer, held, *inner])


def _edges(directory: Path, count: int) -> Path:
    """Write objects each of which holds the next one under many names."""
    width = max(count // 10, 1)
    layers = [
        keras_object(f"m{level}", "Block", children=[(f"e{n}", level + 2) for n in range(width)])
        for level in range(10)
    ]
    model = _model([("layer-0", 1)])
    return saved_model(directory / "model", [model, *layers, keras_object("d", "Dense")])


def _lookups(directory: Path, count: int) -> Path:
    """Write lookups that all have one table, with as many words."""
    layers = [
        keras_object(f"lookup_{n}", "StringLookup", children=[("lookup_table", count + 1)])
        for n in range(count)
    ]
    objects = [
        _model([(f"layer-{n}", n + 1) for n in range(count)]),
        *layers,
        Object(children=[("_initialize", count + 2)]),
        Object(),
        Object(),
        Object(),
    ]
    graph = Graph(objects)
    path = graph.write(directory)
    saved: Any = protobuf_messages.parse("SavedModel", (path / "saved_model.pb").read_bytes())
    meta = saved.meta_graphs[0]
    nodes = meta.object_graph.nodes
    nodes[count + 2].function.concrete_functions.append(b"initialize")
    nodes[count + 3].constant.operation, nodes[count + 4].constant.operation = b"words", b"numbers"
    meta.object_graph.concrete_functions.add(key=b"initialize").value.bound_inputs.extend(
        (count + 3, count + 4)
    )
    definition: Any = protobuf_messages.parse("GraphDef", b"")
    for name, fields in (
        ("words", {"texts": [b"w%d" % number for number in range(count)]}),
        ("numbers", {"dtype": 9, "numbers": range(count)}),
    ):
        tensor: Any = protobuf_messages.parse("TableTensor", b"")
        for key, value in fields.items():
            if key == "dtype":
                tensor.dtype = value
            else:
                getattr(tensor, key).extend(value)
        node = definition.nodes.add(name=name.encode(), op=b"Const")
        node.attributes.add(key=b"value").value.tensor.append(tensor.SerializeToString())
    meta.ClearField("graph_def")
    meta.graph_def.append(definition.SerializeToString())
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    return path


SHAPES: Final = {
    "tables": FileShape(_tables),
    "tables of one variable": FileShape(_tables_of_one_variable),
    "tables behind a chain": FileShape(_tables_behind_chains),
    "tables of other paths": FileShape(_tables_of_other_paths),
    "tables of signatures": FileShape(_tables_of_signatures),
    "savers in functions": FileShape(_savers_in_functions),
    "savers of arguments": FileShape(_savers_of_arguments),
    "signatures of one output": FileShape(_signatures, limits=("trace-steps=5000",)),
    "signatures of a chain": FileShape(_signatures_of_prefixes, limits=("trace-steps=2000",)),
    "calls in turn": FileShape(_calls_in_turn),
    "calls of one function": FileShape(_calls_of_one, limits=("trace-steps=5000",)),
    "nested calls": FileShape(_nested_calls, 12, limits=("trace-steps=5000",)),
    "captured variables": FileShape(_captured),
    "layers": FileShape(_layers),
    "shared lists": FileShape(_shared_lists),
    "nested lists": FileShape(_nested_lists, 25),
    "shared layers": FileShape(_shared_layers, limits=("layers=500",)),
    "edges": FileShape(_edges),
    "lookups": FileShape(_lookups),
}
