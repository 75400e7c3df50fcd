"""
TensorFlow gets a file only if all in it is on the lists of what only computes: what is on no list
is refused, whatever it is called.

``tests/test_attacks.py`` has what is known to do harm; here are names that nobody thought of, and
the paths that ops may have.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policytool.formats import format_detection
from policytool.formats.document import Document
from policytool.formats.saved_model import KERAS
from policytool.model import reading, untrusted_code
from policytool.model.hazards import _judging
from policytool.model.hazards._judging import Harm
from policytool.releases import data, known_arguments, symbols
from policytool.releases import symbols as _functions
from policytool.releases import symbols as _table
from policytool.releases.layer_classes import builtin_classes, operation_classes
from policytool.releases.symbols import exclusion_reason, is_pure_class, is_pure_name
from policytool.support.text import protobuf_messages
from tests.conftest import run
from tests.helpers import changed_fixtures
from tests.helpers.cases import for_each
from tests.helpers.marks import examples
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import instance, instance3

if TYPE_CHECKING:
    from pathlib import Path

KERAS2: Final = "tf2.15/default_float32.h5"
SAVED: Final = "tf2.12/default_float32"
TABLE: Final = "tf2.15/string_lookup"
DATA: Final = FIXTURES.parent / "policytool" / "releases" / "data"

NAMES: Final = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.0123456789>", min_size=1, max_size=30
)
UNTESTED: Final = settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def harms(value: dict[str, Any]) -> set[Harm]:
    """Return the kinds of harm of one object in a config."""
    return {harm for harm, _, _ in _judging.find(value)}


def reasons(path: Path) -> list[str]:
    """Return the reasons why a file needs trust."""
    document = format_detection.document(path, "model")
    result = (
        untrusted_code.reasons_of_file(document)
        if document.config_part is None
        else untrusted_code.reasons_not_to_run(reading.load_model(document))
    )
    return [reason.what for reason in result]


@UNTESTED
@given(NAMES)
def test_class_outside_the_allow_list_is_rejected(name: str) -> None:
    if not is_pure_class(name.rpartition(">")[2]):
        assert harms({"class_name": name, "config": {}})
        assert harms(
            {"class_name": name, "module": "keras.layers", "registered_name": None, "config": {}}
        )


@pytest.mark.parametrize("name", ["TFSMLayer", "TorchModuleWrapper", "KerasLayer"])
def test_layer_that_opens_a_file_is_rejected_for_any_argument_name(name: str) -> None:
    """Another release may use that name."""
    assert harms({"class_name": name, "config": {"model_path": "x"}})


@pytest.mark.parametrize(
    "entry",
    [
        *({"class_name": name, "module": "keras.layers"} for name in ("JaxLayer", "FlaxLayer")),
        {"class_name": "relu", "module": "jax.nn"},
        {"class_name": "Linear", "module": "torch.nn"},
        {"class_name": "function", "module": "jax.numpy", "config": "exp"},
        {"class_name": "function", "module": "torch", "config": "load"},
    ],
    ids=lambda entry: f"{entry['module']}.{entry['class_name']}",
)
def test_files_cannot_name_functions_of_a_backend(entry: dict[str, Any]) -> None:
    """The allow-list is the same for each backend, which a release would import."""
    assert harms({"registered_name": None, "config": {}, **entry})


@UNTESTED
@given(NAMES)
def test_allowed_class_from_a_foreign_module_is_rejected(module: str) -> None:
    """Releases import the module that a file names."""
    if module.partition(".")[0] not in {"keras", "tf_keras", "tensorflow"}:
        assert harms(
            {"class_name": "Dense", "module": module, "registered_name": None, "config": {}}
        )


@pytest.mark.parametrize("name", ["Dense", "__slice__", "__tensor__", "__ellipsis__"])
def test_foreign_module_is_rejected_for_any_class_name(name: str) -> None:
    """A release that does not know the name of a value imports the module."""
    assert harms(instance3(name, "somepackage.somewhere")) == {Harm.UNKNOWN}


def test_initializers_of_tensorflow_need_no_trust() -> None:
    """Other classes in their modules do."""
    entry = instance3("Constant", "tensorflow.python.ops.init_ops_v2", value=0)
    assert not harms(entry)
    assert harms({**entry, "class_name": "Initializer"}) == {Harm.UNKNOWN}


@UNTESTED
@given(NAMES)
def test_function_outside_the_allow_list_is_rejected(name: str) -> None:
    """
    A function that is not on the allow list is rejected as an op layer, as an activation, and as a
    function with a module.
    """
    if not _functions.is_pure_function(name):
        assert harms(
            {**instance("TFOpLambda", function=name), "inbound_nodes": [["x", 0, 0, {}]]}
        ) & {Harm.NAMED, Harm.UNKNOWN}
    if not is_pure_name(name):
        assert harms({"class_name": "Dense", "config": {"activation": name}})
        assert harms(
            {
                "class_name": "function",
                "module": "builtins",
                "config": name,
                "registered_name": name,
            }
        )


@UNTESTED
@given(NAMES, NAMES)
def test_method_that_no_release_writes_is_rejected(owner: str, method: str) -> None:
    """Class methods are looked up in all names of TensorFlow."""
    entry = {
        **instance("ClassMethod", cls_symbol=owner, method_name=method),
        "inbound_nodes": [["x", 0, 0, {}]],
    }
    assert Harm.NAMED in harms(entry)
    assert harms(
        {**instance("InstanceMethod", attr_name=f"__{method}"), "inbound_nodes": [["x", 0, 0, {}]]}
    )


@pytest.mark.parametrize("value", [5, "text", ["x", 0], {"class_name": "__tuple__", "items": [1]}])
def test_call_with_only_constants_is_rejected(value: object) -> None:
    """It would run while the model is built and no release writes it."""
    entry: dict[str, Any] = {
        **instance("TFOpLambda", function="math.add"),
        "inbound_nodes": [["_CONSTANT_VALUE", -1, value, {"y": 2}]],
    }
    assert Harm.UNKNOWN in harms(entry)
    assert not harms({**entry, "inbound_nodes": [["x", 0, 0, {"y": 2}]]})


@pytest.mark.parametrize(
    "node",
    [
        "CgNhZGQSA0FkZA==",
        None,
        {"name": "x"},
        {"op": "PartitionedCall", "attr": {"f": {"func": {"name": "g"}}}},
        {"op": "NoSuchOp"},
    ],
)
def test_an_op_layer_holds_one_op_as_json(node: object) -> None:
    """Releases parse text as protobuf."""
    assert Harm.UNKNOWN in harms(
        {
            **instance("TensorFlowOpLayer", node_def=node, name="x"),
            "inbound_nodes": [["x", 0, 0, {}]],
        }
    )


def test_feature_columns_and_wrapped_cells_without_code_need_no_trust() -> None:
    """
    Feature columns and wrapped cells need no trust unless they contain a function or a checkpoint
    of their author.
    """
    column: dict[str, Any] = instance(
        "NumericColumn", key="a", shape=[1], default_value=None, dtype="float32", normalizer_fn=None
    )
    assert not harms(column)
    assert harms({**column, "config": {**column["config"], "normalizer_fn": "my_scale"}}) == {
        Harm.CUSTOM
    }
    assert harms(
        {**column, "config": {**column["config"], "normalizer_fn": ["4wEA...", None, None]}}
    ) == {Harm.CODE}
    embedding: dict[str, Any] = instance(
        "EmbeddingColumn",
        dimension=2,
        combiner="mean",
        ckpt_to_load_from=None,
        tensor_name_in_ckpt=None,
    )
    assert not harms(embedding)
    assert harms(
        {**embedding, "config": {**embedding["config"], "ckpt_to_load_from": "/etc/model"}}
    ) == {Harm.FILE}
    assert harms(
        instance("VocabularyFileCategoricalColumn", key="c", vocabulary_file="/etc/passwd")
    ) == {Harm.UNKNOWN}
    assert not harms(
        instance("ResidualWrapper", cell={"class_name": "LSTMCell", "config": {"units": 2}})
    )
    assert harms(
        instance("ResidualWrapper", residual_fn="my_sum", residual_fn_type="function")
    ) == {Harm.CUSTOM}
    assert not harms(
        {"class_name": "AddLoss", "config": {"name": "add_loss", "unconditional": False}}
    )


def test_text_in_an_unknown_argument_is_rejected() -> None:
    """Numbers are accepted because they are harmless in any argument."""
    assert Harm.UNKNOWN in harms(
        {"class_name": "Dense", "config": {"units": 1, "hook": "os.system"}}
    )
    assert not harms({"class_name": "Dense", "config": {"units": 1, "hook": [1, 2.5, None, True]}})


@pytest.mark.parametrize("registered", ["get_file", "mypackage>Dense", ""])
def test_a_registered_name_counts_before_the_class(registered: str) -> None:
    """Releases look it up first and tf_keras uses it as an attribute of the module."""
    assert harms(
        {
            "class_name": "Dense",
            "module": "keras.layers",
            "registered_name": registered,
            "config": {},
        }
    ) == {Harm.CUSTOM}


@pytest.mark.parametrize(
    "spec",
    [
        {"class_name": "TypeSpec", "type_spec": "my.Spec"},
        {"class_name": "__typespec__", "spec_name": "system", "module": "os"},
    ],
)
def test_tensor_type_outside_the_allow_list_is_rejected(spec: dict[str, Any]) -> None:
    """The ``.keras`` format imports the type's module."""
    assert Harm.UNKNOWN in harms(spec)


def test_every_class_of_every_release_was_reviewed() -> None:
    """
    Each class of each release is on the allow list or in the list of rejected classes with a
    reason, so that new classes must be reviewed.
    """
    arguments = json.loads((DATA / "layer_arguments.json").read_text(encoding="utf-8"))
    named = json.loads((DATA / "training_names.json").read_text(encoding="utf-8"))
    classes = {
        *builtin_classes(),
        *operation_classes(),
        *(
            name
            for kind in ("layers", "initializers", "regularizers", "constraints")
            for name in arguments[kind]
        ),
    }
    classes |= {name for name in arguments["optimizers"] if ">" not in name} | {*named["schedules"]}
    functions = {*arguments["activations"]} | {
        known_arguments.class_with_alias(kind, name) or name
        for kind in ("losses", "metrics")
        for names in named[kind].values()
        for name in names
    }
    wrappers = {
        "TFOpLambda",
        "SlicingOpLambda",
        "ClassMethod",
        "InstanceMethod",
        "InstanceProperty",
        "TensorFlowOpLayer",
    }
    assert {
        name for name in classes - wrappers if not (is_pure_class(name) or exclusion_reason(name))
    } == set()
    assert {name for name in functions if not is_pure_name(name)} == set()


def test_nothing_left_out_is_on_the_list() -> None:
    """No rejected class is on the allow list, and each has a reason."""
    data = json.loads((DATA / "pure_classes.json").read_text(encoding="utf-8"))
    assert not [name for name in data["left_out"] if is_pure_class(name)]
    assert all(data["left_out"].values())


@UNTESTED
@given(NAMES)
def test_op_outside_the_allow_list_is_rejected(name: str) -> None:
    """TensorFlow looks it up by name."""
    if not symbols.is_pure_op(name) and not symbols.is_placed_op(name):
        assert list(
            untrusted_code.reasons_of_file(
                Document(path="x", format="savedmodel", ops=frozenset({name}))
            )
        )


def test_known_harm_is_on_no_list() -> None:
    """
    Ops with known harm are not on the allow list: ops that read or write files, and ops that
    contain programs.
    """
    known = data.read("hazards")
    harmful = {*known["ops"], *known["readers"], *known["programs"]}
    assert not [name for name in harmful if symbols.is_pure_op(name)]
    assert all(
        _table.op(name) or symbols.is_placed_op(name) or name.startswith("CacheDataset")
        for name in harmful
    )


# Paths in graphs


def attribute(key: str, **value: object) -> Any:
    """Return an attribute of a node."""
    entry = protobuf_messages.parse("AttributeEntry", b"")
    entry.key = key.encode()
    for name, item in value.items():
        if name == "function":
            entry.value.function.name = item
        else:
            getattr(entry.value, name).extend(item) if isinstance(item, list) else setattr(
                entry.value, name, item
            )
    return entry


def constant(message: Any, name: str, text: bytes) -> None:
    """Add a constant with a text."""
    tensor = protobuf_messages.parse("TextTensor", b"")
    tensor.texts.append(text)
    message.nodes.add(
        name=name.encode(),
        op=b"Const",
        attributes=[attribute("value", tensor=[tensor.SerializeToString()])],
    )


def changed(folder: Path, name: str, change: Any) -> Path:
    """
    Write a SavedModel with a changed graph; ``change`` receives the MetaGraph and its GraphDef.
    """

    def put(message: Any) -> None:
        graph = message.meta_graphs[0]
        definition = protobuf_messages.parse("GraphDef", b"".join(graph.graph_def))
        change(graph, definition)
        graph.graph_def[:] = [definition.SerializeToString()]

    return changed_fixtures.saved_model(folder, name, put)


@for_each(
    "name",
    sorted(str(path.parent.relative_to(FIXTURES)) for path in FIXTURES.glob("*/*/saved_model.pb")),
)
def test_savers_and_tables_of_real_models_are_accepted(name: str) -> None:
    document = format_detection.document(FIXTURES / name, name)
    assert not [
        observation
        for observation in document.observations
        if observation.code in {"op-path", "escaping-asset", "ambiguous-format"}
    ]
    assert any(symbols.is_placed_op(op) for op in document.ops), "nothing was tried"


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("SaveV2", ["path", "x", "x"]),
        ("RestoreV2", ["path", "x", "x"]),
        ("Save", ["path", "x"]),
        ("MergeV2Checkpoints", ["path", "path"]),
    ],
)
@pytest.mark.parametrize("where", ["graph", "function"])
@pytest.mark.parametrize("text", [b"/etc/victim", b"../victim", b"file://victim", b"victim"])
def test_saver_with_a_constant_path_is_rejected(
    tmp_path: Path, op: str, inputs: list[str], where: str, text: bytes
) -> None:
    """In the graph and in a function without callers."""

    def put(_graph: Any, definition: Any) -> None:
        body = definition if where == "graph" else definition.library.functions[0]
        constant(body, "path", text)
        body.nodes.add(name=b"evil", op=op.encode(), inputs=[name.encode() for name in inputs])

    assert reasons(changed(tmp_path, SAVED, put)) == [
        (
            f"the graph contains the op {op} with a file path that comes from neither the saver "
            "nor an asset"
        )
    ]


def test_a_table_filled_from_a_constant_is_found(tmp_path: Path) -> None:
    """A table is rejected if its initializer reads a constant path instead of an asset."""

    def put(_graph: Any, definition: Any) -> None:
        (body,) = [
            function
            for function in definition.library.functions
            if any(b"FromTextFile" in node.op for node in function.nodes)
        ] or [definition]
        constant(body, "evil", b"/etc/passwd")
        node = next((node for node in body.nodes if b"FromTextFile" in node.op), None)
        if node is None:
            body.nodes.add(
                name=b"fill", op=b"InitializeTableFromTextFileV2", inputs=[b"table", b"evil"]
            )
        else:
            node.inputs[1] = b"evil"

    assert reasons(changed(tmp_path, TABLE, put)) == [
        (
            "the graph contains the op InitializeTableFromTextFileV2 with a file path that "
            "comes from neither the saver nor an asset"
        )
    ]


@pytest.mark.parametrize(
    "name", ["../../secret.txt", "/etc/passwd", "a/../../../x", "s3://bucket/x"]
)
def test_an_asset_outside_the_model_is_found(tmp_path: Path, name: str) -> None:
    """Releases append the name to the directory."""

    def put(graph: Any, _definition: Any) -> None:
        graph.assets.add(filename=name.encode(), tensor={"name": b"asset:0"})

    assert any("is outside assets" in reason for reason in reasons(changed(tmp_path, SAVED, put)))


def test_an_asset_in_a_collection_is_found(tmp_path: Path) -> None:
    """TensorFlow 1 stores assets in a collection."""

    def put(graph: Any, _definition: Any) -> None:
        asset = protobuf_messages.parse("AssetFile", b"")
        asset.filename = b"../../secret.txt"
        value = graph.collections.add(key=b"saved_model_assets").value
        value.any.values.add(
            type_url=b"type.googleapis.com/tensorflow.AssetFileDef", value=asset.SerializeToString()
        )

    assert any("is outside assets" in reason for reason in reasons(changed(tmp_path, SAVED, put)))


def test_an_asset_that_is_a_link_out_of_the_model_is_found(tmp_path: Path) -> None:
    def put(graph: Any, _definition: Any) -> None:
        graph.assets.add(filename=b"words.txt", tensor={"name": b"asset:0"})

    path = changed(tmp_path, SAVED, put)
    (path / "assets").mkdir(exist_ok=True)
    (path / "assets" / "words.txt").symlink_to("/etc/passwd")
    assert any("link to a path outside the model" in reason for reason in reasons(path))


def test_printing_to_a_file_is_found(tmp_path: Path) -> None:
    """An op that prints to the terminal is accepted."""

    def put(stream: bytes) -> Any:
        return lambda _graph, definition: definition.nodes.add(
            name=b"say", op=b"PrintV2", attributes=[attribute("output_stream", text=stream)]
        )

    (tmp_path / "a").mkdir()
    assert not reasons(changed(tmp_path / "a", SAVED, put(b"stderr")))
    assert reasons(changed(tmp_path, SAVED, put(b"file:///etc/victim")))


def test_repeated_graphs_are_merged_before_the_check(tmp_path: Path) -> None:
    """
    Two graphs in one MetaGraph are merged before the check, as TensorFlow's protobuf does, so that
    ops in the first are found.
    """

    def put(message: Any) -> None:
        evil = protobuf_messages.parse("GraphDef", b"")
        evil.nodes.add(name=b"write", op=b"WriteFile")
        graph = message.meta_graphs[0]
        graph.graph_def[:] = [evil.SerializeToString(), *graph.graph_def]

    assert reasons(changed_fixtures.saved_model(tmp_path, SAVED, put)) == [
        "the graph contains the op WriteFile, which opens the path given by its filename"
    ]


@pytest.mark.parametrize(
    "entry",
    [
        {"class_name": "TFOpLambda", "config": {"function": "math.add"}},
        {"class_name": "Dense", "config": {"units": 1}},
    ],
)
def test_keras_module_without_layers_is_rejected(entry: dict[str, Any]) -> None:
    """Also for layers that wrap functions of TensorFlow."""
    assert harms({**entry, "module": "keras.src.utils.python_utils", "registered_name": None}) == {
        Harm.UNKNOWN
    }
    assert not harms({**entry, "module": "keras.src.layers.core", "registered_name": None})


@pytest.mark.parametrize("name", ["gaussian", "laplacian"])
def test_kernels_of_random_fourier_features_are_names(name: str) -> None:
    """
    The kernel names of RandomFourierFeatures need no trust, although no initializer has these
    names, because the layer itself reads them.
    """
    assert not harms(instance("RandomFourierFeatures", output_dim=4, kernel_initializer=name))


@pytest.mark.parametrize("value", [{"text": b"/etc/passwd"}, {"type": 1}])
def test_a_sampler_with_a_vocabulary_is_found(tmp_path: Path, value: dict[str, Any]) -> None:
    """
    A candidate sampler with a vocabulary file is rejected unless the text is empty; a placeholder
    is rejected because a call fills it in.
    """

    def put(_graph: Any, definition: Any) -> None:
        definition.nodes.add(
            name=b"evil",
            op=b"FixedUnigramCandidateSampler",
            attributes=[attribute("vocab_file", **value)],
        )

    assert any(
        "FixedUnigramCandidateSampler" in reason
        for reason in reasons(changed(tmp_path, SAVED, put))
    )


@pytest.mark.parametrize(("inputs", "evil"), [((0,), False), ((0, 0, 0), True), ((), True)])
def test_table_in_a_function_uses_the_asset_bound_to_the_function(
    tmp_path: Path, inputs: tuple[int, ...], *, evil: bool
) -> None:
    """
    A table in a function uses the asset that is bound to the function; it is rejected if several
    objects are bound, because the choice is unknown.
    """

    def put(graph: Any, definition: Any) -> None:
        body = definition.library.functions.add()
        body.signature.name = b"initialize"
        body.signature.arguments.add(name=b"path")
        body.nodes.add(
            name=b"fill", op=b"InitializeTableFromTextFileV2", inputs=[b"table", b"path"]
        )
        graph.object_graph.nodes.add().asset.SetInParent()
        number = len(graph.object_graph.nodes) - 1
        graph.object_graph.concrete_functions.add(key=b"initialize").value.bound_inputs.extend(
            number for _ in inputs
        )

    assert bool(reasons(changed(tmp_path, SAVED, put))) is evil


# Classes of someone's own


def test_custom_loss_needs_no_trust_without_compiling(tmp_path: Path) -> None:
    """
    A custom loss needs no trust for ``check`` and ``--verify``, because they do not compile the
    model.
    """
    path = changed_fixtures.h5(
        tmp_path,
        "tf2.15/adam_autowrap_mf16.h5",
        lambda config: config.update(loss={"class_name": "MyLoss", "config": {}}),
        attribute="training_config",
    )
    loaded = reading.load_model(format_detection.document(path, "model"))
    assert not list(untrusted_code.reasons_not_to_run(loaded))
    assert [
        reason.is_custom for reason in untrusted_code.reasons_not_to_run(loaded, compiles=True)
    ] == [True]


def test_a_saved_model_s_own_classes_need_no_trust() -> None:
    """Keras revives them from traces whose ops are on the allow list; classes with a module do."""
    loaded = reading.load_model(format_detection.document(FIXTURES / "tf2.15/subclassed", "model"))
    assert any(hazard.harm is Harm.CUSTOM for hazard in loaded.hazards)
    assert not list(untrusted_code.reasons_not_to_run(loaded))


@pytest.mark.parametrize("name", ["deserialize_keras_object", "get", "_private"])
def test_a_saved_model_s_class_that_is_no_class_needs_trust(tmp_path: Path, name: str) -> None:
    """Keras 2 calls any of its functions with the config."""

    def put(message: Any) -> None:
        for node in message.nodes:
            metadata = json.loads(node.metadata)
            if metadata.get("class_name") == "Dense":
                metadata["config"]["kernel_regularizer"] = instance(name, identifier="x")
                node.metadata = json.dumps(metadata).encode()

    path = tmp_path / "saved"
    shutil.copytree(FIXTURES / SAVED, path)
    message = protobuf_messages.parse("KerasMetadata", (path / KERAS).read_bytes())
    put(message)
    (path / KERAS).write_bytes(message.SerializeToString())
    assert any(f"needs {name}" in reason for reason in reasons(path))


def test_a_file_on_no_list_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    ``check`` on a file with an unknown function exits with code 3 and one error line, without
    starting a process.
    """
    path = changed_fixtures.h5(
        tmp_path,
        KERAS2,
        lambda config: config["config"]["layers"][1]["config"].update(
            activation="no_such_function"
        ),
    )
    monkeypatch.setattr(subprocess, "Popen", None)
    ended = run("check", path, "--to", "mixed_bfloat16")
    assert ended.code == 3
    assert " needs no_such_function" in ended.err
    assert len(ended.err.splitlines()) == 1
