"""Savers and tables in a graph whose paths come from the file, in any encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from policytool.formats.saved_model import graph_paths
from policytool.support.text import protobuf_messages
from tests.helpers.cases import for_each

if TYPE_CHECKING:
    from collections.abc import Callable

OTHER = b"/tmp/other"


def node(nodes: Any, name: str, op: str, *inputs: str, **attributes: bytes) -> Any:
    """Add a node, with texts as attributes, and return it."""
    made = nodes.add(name=name.encode(), op=op.encode(), inputs=[one.encode() for one in inputs])
    for key, text in attributes.items():
        made.attributes.add(key=key.encode()).value.text = text
    return made


def constant(nodes: Any, name: str, text: bytes, content: bytes = b"") -> None:
    """
    Add a constant with a text, and with the bytes of another text, which TensorFlow prefers if they
    are not empty.
    """
    tensor = protobuf_messages.parse("TextTensor", b"")
    tensor.texts.append(text)
    tensor.content = content
    node(nodes, name, "Const").attributes.add(key=b"value").value.tensor.append(
        tensor.SerializeToString()
    )


def function(definition: Any, name: str) -> Any:
    """Add a function that saves to the path in its argument, and return the function."""
    made = definition.library.functions.add()
    made.signature.name = name.encode()
    made.signature.arguments.add(name=b"given")
    node(made.nodes, "saves", "SaveV2", "given")
    return made


def call(definition: Any, name: str, called: str, *inputs: str) -> None:
    """Add a node that calls a function."""
    node(definition.nodes, name, "StatefulPartitionedCall", *inputs).attributes.add(
        key=b"f"
    ).value.function.name = called.encode()


def observed(change: Callable[[Any, Any], object]) -> list[str]:
    """Return the observations on a graph in the format of TF 1 with one change."""
    graph, definition = (protobuf_messages.parse(name, b"") for name in ("MetaGraph", "GraphDef"))
    nodes = definition.nodes
    node(nodes, "path", "Placeholder")
    constant(nodes, "part", b"_temp/part")
    node(nodes, "joined", "StringJoin", "path", "part", separator=b"")
    node(nodes, "save", "SaveV2", "joined")
    node(nodes, "values", "RestoreV2", "path")
    node(nodes, "restore", "NoOp", "^values")
    node(nodes, "asset", "Const")
    node(nodes, "table", "InitializeTableFromTextFileV2", "handle", "asset")
    node(nodes, "x", "Placeholder")
    node(nodes, "y", "Identity", "x")
    graph.saver.filename_tensor, graph.saver.restore_op = b"path:0", b"restore"
    graph.assets.add(filename=b"words.txt").tensor.name = b"asset:0"
    graph.signatures.add(key=b"serving_default").value.outputs.add(key=b"y").value.name = b"y:0"
    change(graph, definition)
    return [
        observation.message.split()[5] for observation in graph_paths.observe_ops(graph, definition)
    ]


def outputs(graph: Any) -> Any:
    """Return the first output of the signature."""
    return graph.signatures[0].value.outputs[0].value


def named(definition: Any, name: str) -> Any:
    """Return a node of the graph."""
    return next(one for one in definition.nodes if one.name == name.encode())


def separated(_: Any, definition: Any) -> None:
    """Write the path as the separator between two texts."""
    named(definition, "joined").attributes[0].value.text = OTHER


def filled_separator(_: Any, definition: Any) -> None:
    """Let a call fill in the separator between two texts."""
    named(definition, "joined").attributes[0].value.placeholder = b"between"


def content(_: Any, definition: Any) -> None:
    """Give a constant a second value."""
    constant(definition.nodes, "two", b"model", bytes([len(OTHER)]) + OTHER)
    node(definition.nodes, "again", "SaveV2", "two")


def variable(_: Any, definition: Any) -> None:
    """Read the path from a variable, which other nodes may assign by another handle of it."""
    node(definition.nodes, "handle", "VarHandleOp", shared_name=b"shared")
    node(definition.nodes, "assigned", "AssignVariableOp", "handle", "path")
    node(definition.nodes, "read", "ReadVariableOp", "handle")
    node(definition.nodes, "again", "SaveV2", "read")


def fed(graph: Any, definition: Any) -> None:
    """Let a signature feed the placeholder of the saver."""
    graph.signatures[0].value.inputs.add(key=b"path").value.name = b"path:0"
    named(definition, "y").inputs.append(b"^save")


def sparse(graph: Any, definition: Any) -> None:
    """Let the saver depend on a part of a sparse output."""
    node(definition.nodes, "indices", "Identity", "x", "^save")
    outputs(graph).name = b""
    outputs(graph).sparse.indices = b"indices:0"


def restoring(_: Any, definition: Any) -> None:
    """Save while variables are restored, to the files from which they are restored."""
    named(definition, "restore").inputs.append(b"^save")


def restoring_by_call(_: Any, definition: Any) -> None:
    """Save in a function while variables are restored."""
    function(definition, "saving")
    call(definition, "calls", "saving", "path")
    named(definition, "restore").inputs.append(b"^calls")


def asset_while_restoring(_: Any, definition: Any) -> None:
    """Read the placeholder of an asset's path before it is filled in."""
    named(definition, "restore").inputs.append(b"^table")


def internal_name(graph: Any, _: Any) -> None:
    """Read the path in a signature whose name begins like TensorFlow's internal names."""
    graph.signatures.add(key=b"__mine").value.outputs.add(key=b"y").value.name = b"table"


def saver_is_asset(graph: Any, _: Any) -> None:
    """Fill the path of the saver with that of an asset when the model is initialized."""
    graph.assets.add(filename=b"words.txt").tensor.name = b"path:0"


def text_is_asset(graph: Any, _: Any) -> None:
    """Fill in a text that is joined to the saver's path with the path of an asset."""
    graph.assets.add(filename=b"words.txt").tensor.name = b"part:0"


def named_by_an_object(graph: Any, definition: Any) -> None:
    """
    Add a saving function that an object of the model names, so that any path can be passed to it.
    """
    function(definition, "saving")
    call(definition, "calls", "saving", "path")
    graph.object_graph.nodes.add().function.concrete_functions.append(b"saving")


def named_by_a_bare_object(graph: Any, definition: Any) -> None:
    """Add a saving function that a bare concrete function object names."""
    function(definition, "saving")
    graph.object_graph.nodes.add().bare_function.concrete_function = b"saving"


def called_with_another_path(_: Any, definition: Any) -> None:
    """Call a function of TensorFlow with a path from the file."""
    function(definition, "saving")
    constant(definition.nodes, "other", OTHER)
    call(definition, "calls", "saving", "other")


def uncalled(_: Any, definition: Any) -> None:
    """Add a saving function without a visible caller."""
    function(definition, "saving")


def replacing(_: Any, definition: Any) -> None:
    """Add a saving function that TensorFlow can call instead of another function."""
    function(definition, "saving").attributes.add(key=b"api_implements").value.text = b"same"
    call(definition, "calls", "saving", "path")


def saved_by_default(definition: Any) -> None:
    """Save to the default value of the saver's path, before a release fills it in."""
    constant(definition.nodes, "default", b"model")
    made = named(definition, "path")
    made.op = b"PlaceholderWithDefault"
    made.inputs.append(b"default")


def initializing(graph: Any, definition: Any) -> None:
    """Save to the default path in the working directory when a release initializes the model."""
    saved_by_default(definition)
    graph.signatures.add(key=b"__saved_model_init_op").value.outputs.add(
        key=b"__saved_model_init_op"
    ).value.name = b"save"


def initializing_by_collection(graph: Any, definition: Any) -> None:
    """Save during initialization with an op that only a collection names, as in TensorFlow 1."""
    saved_by_default(definition)
    graph.collections.add(key=b"saved_model_main_op").value.nodes.names.append(b"save")


def initializing_as_of_old(graph: Any, definition: Any) -> None:
    """Save during initialization with the op name of the first releases."""
    saved_by_default(definition)
    graph.collections.add(key=b"legacy_init_op").value.nodes.names.append(b"save")


def training(graph: Any, definition: Any) -> None:
    """Save in the training op."""
    saved_by_default(definition)
    graph.signatures.add(key=b"__saved_model_train_op").value.outputs.add(
        key=b"__saved_model_train_op"
    ).value.name = b"save"


def in_a_function_of_an_object(graph: Any, definition: Any) -> None:
    """Save to a constant path in a function that releases call for an object of the model."""
    saving = function(definition, "saving")
    constant(saving.nodes, "model", b"model")
    saving.nodes[0].inputs[:] = [b"model:output:0"]
    graph.object_graph.nodes.add().function.concrete_functions.append(b"saving")


def passed_in_an_attribute(_: Any, definition: Any) -> None:
    """Call the function through an attribute of another function, which its call fills in."""
    called_with_its_path(definition)
    outer = definition.library.functions.add()
    outer.signature.name = b"outer"
    outer.signature.arguments.add(name=b"given")
    node(outer.nodes, "inner", "StatefulPartitionedCall", "given").attributes.add(
        key=b"f"
    ).value.placeholder = b"g"
    call(definition, "hidden", "outer", "x")
    named(definition, "hidden").attributes[0].value.function.attributes.add(
        key=b"g"
    ).value.function.name = b"saving"


def passed_by_default(_: Any, definition: Any) -> None:
    """Call the function through the default of an attribute of another function."""
    called_with_its_path(definition)
    outer = definition.library.functions.add()
    outer.signature.name = b"outer"
    outer.signature.attributes.add().default.function.name = b"saving"


def passed_in_a_list(_: Any, definition: Any) -> None:
    """Call the function through two levels of lists of functions."""
    called_with_its_path(definition)
    function(definition, "middle")
    call(definition, "hidden", "middle", "path")
    inner = named(definition, "hidden").attributes[0].value.function.attributes.add(key=b"h").value
    inner.function.name = b"middle"
    inner.function.attributes.add(key=b"g").value.list.functions.add(name=b"saving")


def gradient(_: Any, definition: Any) -> None:
    """Use the function as the gradient of another function, which is called with any path."""
    called_with_its_path(definition)
    definition.library.gradients.add(gradient=b"saving")


def registered_gradient(_: Any, definition: Any) -> None:
    """Use the function as the gradient of an op."""
    called_with_its_path(definition)
    definition.library.registered_gradients.add(gradient=b"saving")


def shifted(_: Any, definition: Any) -> None:
    """Put an argument with several inputs before the path."""
    saving = function(definition, "saving")
    saving.signature.arguments[0].name = b"many"
    saving.signature.arguments[0].number_attribute = b"N"
    saving.signature.arguments.add(name=b"given")
    constant(definition.nodes, "other", OTHER)
    call(definition, "calls", "saving", "path", "path", "other")


def shifted_by_types(_: Any, definition: Any) -> None:
    """Put an argument with inputs of several types before the path."""
    saving = function(definition, "saving")
    saving.signature.arguments[0].name = b"many"
    saving.signature.arguments[0].type_list_attribute = b"T"
    saving.signature.arguments.add(name=b"given")
    call(definition, "calls", "saving", "path", "path", "x")


def filled_constant(_: Any, definition: Any) -> None:
    """Let a call fill in a constant that also contains a text."""
    constant(definition.nodes, "two", b"model")
    named(definition, "two").attributes[0].value.placeholder = b"v"
    node(definition.nodes, "again", "SaveV2", "two")


def called_with_its_path(definition: Any) -> None:
    """Add a function that the graph calls with the path of the saver."""
    function(definition, "saving")
    call(definition, "calls", "saving", "path")


def test_paths_from_placeholders_and_assets_are_not_reported() -> None:
    """
    No observation is reported if the path of a saver comes from its placeholder and that of a table
    from an asset, in the graph and in called functions.
    """

    def called(_: Any, definition: Any) -> None:
        called_with_its_path(definition)

    def by_default(_: Any, definition: Any) -> None:
        saved_by_default(definition)

    assert observed(lambda *_: None) == observed(called) == observed(by_default) == []


@for_each(
    ("change", "op"),
    [
        *(
            (change, "SaveV2")
            for change in (
                separated,
                filled_separator,
                content,
                variable,
                fed,
                sparse,
                restoring,
                restoring_by_call,
                initializing,
                initializing_by_collection,
                initializing_as_of_old,
                training,
                in_a_function_of_an_object,
                passed_in_an_attribute,
                passed_by_default,
                passed_in_a_list,
                gradient,
                registered_gradient,
                shifted,
                shifted_by_types,
                filled_constant,
            )
        ),
        *(
            (change, "SaveV2")
            for change in (
                uncalled,
                replacing,
                text_is_asset,
                named_by_an_object,
                named_by_a_bare_object,
                called_with_another_path,
            )
        ),
        *(
            (change, "InitializeTableFromTextFileV2")
            for change in (asset_while_restoring, internal_name)
        ),
    ],
)
def test_savers_and_tables_with_a_path_from_the_file_are_reported(
    change: Callable[[Any, Any], object], op: str
) -> None:
    """Each of these graphs made TensorFlow write or read a file that the model named."""
    assert observed(change)[0] == op


def test_two_functions_of_one_name_are_reported() -> None:
    """Two functions of the same name are reported, because TensorFlow calls the first."""

    def change(_: Any, definition: Any) -> None:
        for _ in range(2):
            function(definition, "saving")
        call(definition, "calls", "saving", "path")

    graph, definition = (protobuf_messages.parse(name, b"") for name in ("MetaGraph", "GraphDef"))
    change(graph, definition)
    assert "duplicate-function" in [
        observation.code for observation in graph_paths.observe_ops(graph, definition)
    ]


def test_a_saver_has_no_path_of_an_assets() -> None:
    assert observed(saver_is_asset) == ["SaveV2", "RestoreV2"]


def test_output_stream_from_a_call_is_reported() -> None:
    """The call can specify a file."""

    def printing(_: Any, definition: Any) -> None:
        node(definition.nodes, "prints", "PrintV2", "x", output_stream=b"stderr").attributes[
            0
        ].value.placeholder = b"where"

    assert observed(printing) == ["PrintV2"]


def stored(_: Any, definition: Any) -> None:
    """Store the asset's path in a variable that the table reads, as TensorFlow 2 does."""
    node(definition.nodes, "kept", "VarHandleOp", shared_name=b"words")
    node(definition.nodes, "assigned", "AssignVariableOp", "kept", "asset")
    node(definition.nodes, "read", "ReadVariableOp", "kept")
    named(definition, "table").inputs[1] = b"read"


def second_handle(_: Any, definition: Any) -> None:
    """Assign another value with a second handle of the same name."""
    constant(definition.nodes, "other", OTHER)
    node(definition.nodes, "alias", "VarHandleOp", shared_name=b"words")
    node(definition.nodes, "again", "AssignVariableOp", "alias", "other")


def nameless_handle(_: Any, definition: Any) -> None:
    """Assign another value with a handle whose node has the variable's name."""
    constant(definition.nodes, "other", OTHER)
    node(definition.nodes, "words", "VarHandleOp")
    node(definition.nodes, "again", "AssignVariableOp", "words", "other")


def two_nameless_handles(_: Any, definition: Any) -> None:
    """Assign another value with a second handle without a name, which shares the variable."""
    del named(definition, "kept").attributes[:]
    constant(definition.nodes, "other", OTHER)
    node(definition.nodes, "alias", "VarHandleOp")
    node(definition.nodes, "again", "AssignVariableOp", "alias", "other")


def handle_in_a_function(_: Any, definition: Any) -> None:
    """Assign another value in a function with a handle whose name a call fills in."""
    alias = node(function(definition, "saving").nodes, "alias", "VarHandleOp")
    alias.attributes.add(key=b"shared_name").value.placeholder = b"which"


def second_value(_: Any, definition: Any) -> None:
    """Assign another value with the same handle."""
    constant(definition.nodes, "other", OTHER)
    node(definition.nodes, "again", "AssignVariableOp", "kept", "other")


def given_away(_: Any, definition: Any) -> None:
    """Pass the handle to a function, which can assign any value."""
    function(definition, "saving")
    call(definition, "calls", "saving", "kept")


def decoded(_: Any, definition: Any) -> None:
    """Create a handle from bytes, which can name the same variable."""
    node(definition.nodes, "made", "ParseTensor", "x").attributes.add(
        key=b"out_type"
    ).value.type = 20


def test_table_with_an_asset_in_a_variable_is_accepted() -> None:
    """
    A table can read its asset from a variable, as in every SavedModel of TensorFlow 2 with a table.
    """
    assert observed(stored) == []


@pytest.mark.parametrize(
    "change",
    [
        second_handle,
        nameless_handle,
        two_nameless_handles,
        handle_in_a_function,
        second_value,
        given_away,
        decoded,
    ],
)
def test_the_variable_may_have_no_other_value(change: Callable[[Any, Any], object]) -> None:
    """A table is reported if the graph could assign another value to the variable that it reads."""

    def both(graph: Any, definition: Any) -> None:
        stored(graph, definition)
        change(graph, definition)

    assert "InitializeTableFromTextFileV2" in observed(both)


def of_tensorflow1(graph: Any, name: bytes = b"words.txt") -> None:
    """List the assets in a collection, as TensorFlow 1 does."""
    asset = protobuf_messages.parse("AssetFile", b"")
    asset.tensor.name, asset.filename = b"asset:0", name
    del graph.assets[:]
    value = graph.collections.add(key=b"saved_model_assets").value
    value.any.values.add(
        type_url=b"type.googleapis.com/tensorflow.AssetFileDef", value=asset.SerializeToString()
    )


def test_asset_in_a_collection_of_tensorflow1_is_accepted() -> None:
    """Releases read it if the graph lists no other assets."""
    assert observed(lambda graph, _: of_tensorflow1(graph)) == []


@pytest.mark.parametrize("kind", ["nodes", "bytes", "ints", "floats"])
def test_a_collection_of_two_kinds_holds_no_assets(kind: str) -> None:
    """Releases read only the last kind of values, and would fill in no paths."""

    def change(graph: Any, _: Any) -> None:
        of_tensorflow1(graph)
        getattr(graph.collections[0].value, kind).SetInParent()

    assert observed(change) == ["InitializeTableFromTextFileV2"]


def test_bytes_that_are_no_message_are_no_asset_and_no_text() -> None:
    """TensorFlow cannot read such a file."""

    def change(graph: Any, definition: Any) -> None:
        of_tensorflow1(graph)
        graph.collections[0].value.any.values[0].value = b"\xff"
        named(definition, "part").attributes[0].value.tensor[:] = [b"\xff"]

    assert set(observed(change)) == {"SaveV2", "InitializeTableFromTextFileV2"}
