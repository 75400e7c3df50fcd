"""Files whose harmful content is visible to releases but not at a quick look."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import policytool
from policytool.formats import format_detection
from policytool.formats.discovery import Input
from policytool.migration.planning.options import Options
from policytool.model import hazards, reading, untrusted_code
from policytool.model.hazards import Harm
from policytool.numerics import check_sides
from policytool.numerics.hand_over import HandOver
from policytool.support.text import jsontext, protobuf_messages
from tests.helpers import changed_fixtures
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import instance, instance3

if TYPE_CHECKING:
    from pathlib import Path

KERAS3 = "keras3.15/global_mixed_float16.keras"
COMPILED = "keras3.15/adam_autowrap_mf16.keras"
SAVED = "tf2.15/global_mixed_float16"
METADATA = "keras_metadata.pb"
LAMBDA = instance(
    "Lambda", name="hidden", function=["4wEAAAA=", None, None], function_type="lambda"
)
OWN = {"module": "someone.layers", "class_name": "Own", "config": {}, "registered_name": "Own"}


def reasons(path: Path, *, compiles: bool = False) -> list[untrusted_code.Reason]:
    """Return the reasons why a file is not passed to TensorFlow."""
    return list(
        untrusted_code.reasons_not_to_run(
            reading.load_model(format_detection.document(path, "model")), compiles=compiles
        )
    )


def found(value: dict[str, Any], tmp_path: Path) -> list[untrusted_code.Reason]:
    """Return the reasons against a model with an object in a layer's config."""

    def put(config: dict[str, Any]) -> None:
        holder, key = jsontext.place(config, "/config/layers/2/config/activation")
        holder[key] = value

    return reasons(changed_fixtures.keras_zip(tmp_path, KERAS3, put))


def test_metadata_of_a_missing_object_is_checked(tmp_path: Path) -> None:
    """Releases build the described layer before they look for the object (bytecode ran)."""
    target = tmp_path / "saved"
    shutil.copytree(FIXTURES / SAVED, target)
    message = protobuf_messages.parse("KerasMetadata", (target / METADATA).read_bytes())
    message.nodes.add(
        node_id=99_999,
        node_path=b"root.more",
        identifier=b"_tf_keras_layer",
        metadata=json.dumps(LAMBDA).encode(),
    )
    (target / METADATA).write_bytes(message.SerializeToString())
    assert any("bytecode" in reason.what for reason in reasons(target))


def test_savedmodel_with_two_graphs_is_not_run(tmp_path: Path) -> None:
    """Keras reads the metadata of the first graph regardless of its tag (bytecode ran)."""

    def doubled(message: Any) -> None:
        first = message.meta_graphs.add()
        first.CopyFrom(message.meta_graphs[0])
        message.meta_graphs[0].meta_info.tags[:] = [b"other"]

    path = changed_fixtures.saved_model(tmp_path, SAVED, doubled)
    assert any("contains 2 graphs" in reason.what for reason in reasons(path))


@pytest.mark.parametrize("word", ["__slice__", "__ellipsis__", "__keras_tensor__", "__tuple__"])
def test_words_for_values_have_no_module(word: str, tmp_path: Path) -> None:
    """A release that does not know the name imports the module."""
    (reason,) = found(
        {"module": "someone.layers", "class_name": word, "config": {}, "registered_name": word},
        tmp_path,
    )
    assert "someone.layers" in reason.what
    assert not reason.is_custom


def test_both_names_of_a_type_are_checked(tmp_path: Path) -> None:
    """Both names of a type are checked, because releases differ in the name that they look up."""
    module = "tensorflow.python.ops.structured.structured_tensor"
    names = {"type_spec": "TensorSpec", "spec_name": "StructuredTensor"}
    (reason,) = found(
        {
            "module": module,
            "class_name": "__typespec__",
            "config": [],
            "registered_name": None,
            **names,
        },
        tmp_path,
    )
    assert "StructuredTensor" in reason.what


def test_custom_class_in_the_model_is_reported_despite_the_training_configuration(
    tmp_path: Path,
) -> None:
    def put(config: dict[str, Any]) -> None:
        config.pop("build_config", None)
        config.update(compile_config={"loss": OWN}, build_config=OWN)

    path = changed_fixtures.keras_zip(tmp_path, COMPILED, put)
    assert [reason.is_custom for reason in reasons(path)] == [True]
    loaded = reading.load_model(format_detection.document(path, "model"))
    custom = [item for item in hazards.of(loaded.document, {}) if item.harm is Harm.CUSTOM]
    assert [item.address.pointer for item in custom] == ["/compile_config/loss", "/build_config"]


def test_class_without_a_registered_name_is_not_defined_by_custom_objects(
    tmp_path: Path,
) -> None:
    """Otherwise releases import the module that the file names."""
    (reason,) = found({**OWN, "registered_name": None}, tmp_path)
    assert not reason.is_custom


def test_function_is_needed_under_its_registered_name(tmp_path: Path) -> None:
    """Releases look up this name, which ``--custom-objects`` can define for another function."""

    def put(config: dict[str, Any]) -> None:
        holder, key = jsontext.place(config, "/config/layers/2/config/activation")
        holder[key] = {
            "module": "someone.layers",
            "class_name": "function",
            "config": "other",
            "registered_name": "mine",
        }

    loaded = reading.load_model(
        format_detection.document(changed_fixtures.keras_zip(tmp_path, KERAS3, put), "model")
    )
    assert untrusted_code.needed_names(loaded) == ["other"]


@pytest.mark.parametrize(
    ("name", "is_custom"), [("pool", True), ("sorted", False), ("eval", False)]
)
def test_function_without_a_module_is_needed_by_name(
    name: str, *, is_custom: bool, tmp_path: Path
) -> None:
    """Keras 3 writes ``builtins`` for custom functions; it would find those of Python there."""
    function = {
        "module": "builtins",
        "class_name": "function",
        "config": name,
        "registered_name": "function",
    }
    layer = {**instance3("Lambda", "keras.layers", name="own"), "name": "own"}
    layer["config"] |= {"function": function, "arguments": {}}
    layer["inbound_nodes"] = []

    def put(config: dict[str, Any]) -> None:
        config["config"]["layers"].append(layer)

    expected = [f"needs {name}, which is not a Keras function"]
    in_layer = reasons(changed_fixtures.keras_zip(tmp_path, KERAS3, put))
    assert [reason.is_custom for reason in in_layer] == [is_custom]
    in_activation = found(function, tmp_path)
    assert [reason.is_custom for reason in in_activation] == [is_custom]
    assert ([reason.what.split(" ", 1)[1] for reason in in_activation] == expected) == is_custom


def test_an_architecture_is_not_compiled(tmp_path: Path) -> None:
    """Keras 3 would compile it with classes that were not checked."""
    path = tmp_path / "model.json"
    layers = [instance3("Dense", name="d", units=1)]
    config = instance3("Sequential", "keras", name="s", layers=layers)
    path.write_text(json.dumps({**config, "compile_config": {"loss": OWN}}), encoding="utf-8")
    with HandOver() as hand_over:
        source = check_sides.read_source(Input(path=path, exact=True), hand_over)
        options = Options(to="mixed_bfloat16")
        job = check_sides.prepare_side(source, options, (hand_over, tmp_path)).job
    assert sorted(job["config"]) == sorted(config)


def test_assets_that_link_out_of_the_model_are_not_read(tmp_path: Path) -> None:
    """Keras reads vocabularies in it; links within the model and circular links are accepted."""
    target = tmp_path / "model"
    shutil.unpack_archive(FIXTURES / KERAS3, target, "zip")
    words = target / "assets" / "words"
    words.mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (words / "own.txt").symlink_to(target / "config.json")
    (words / "circle.txt").symlink_to("circle.txt")
    assert not reasons(target)
    (words / "vocabulary.txt").symlink_to(tmp_path / "secret.txt")
    assert ["vocabulary.txt" in reason.what for reason in reasons(target)] == [True]


def test_circular_link_as_an_asset_causes_no_error(tmp_path: Path) -> None:
    path = changed_fixtures.saved_model(
        tmp_path, SAVED, lambda message: message.meta_graphs[0].assets.add(filename=b"circle")
    )
    (path / "assets").mkdir(exist_ok=True)
    (path / "assets" / "circle").symlink_to("circle")
    assert not reasons(path)


@pytest.mark.parametrize("class_name", [None, {"class_name": "__bytes__", "value": "Functional"}])
def test_metadata_next_to_an_architecture_is_checked(class_name: object, tmp_path: Path) -> None:
    """
    Metadata next to an architecture is checked, because releases accept the class name as bytes and
    then use the metadata (bytecode ran in a check of two files).
    """
    target = tmp_path / "saved"
    shutil.copytree(FIXTURES / "tf1.15/global_mixed_float16.export", target)
    message = protobuf_messages.parse("KerasMetadata", b"")
    config = {"layers": [LAMBDA]}
    message.nodes.add(
        node_id=0,
        node_path=b"root",
        identifier=b"_tf_keras_network",
        metadata=json.dumps({"class_name": class_name, "config": config}).encode(),
    )
    (target / METADATA).write_bytes(message.SerializeToString())
    whats = [reason.what for reason in reasons(target)]
    assert any("bytecode" in what for what in whats)
    assert any("stores its class name as an object" in what for what in whats) == (
        class_name is not None
    )


def test_code_of_a_shared_layer_is_reported_once(tmp_path: Path) -> None:
    """Its copies in the config are the same layer."""
    shared = {**LAMBDA, "shared_object_id": 5}
    inner = {"class_name": "Sequential", "config": {"name": "inner", "layers": [shared]}}
    file = tmp_path / "model.json"
    file.write_text(
        json.dumps(
            {"class_name": "Sequential", "config": {"name": "outer", "layers": [shared, inner]}}
        ),
        encoding="utf-8",
    )
    loaded = reading.load_model(format_detection.document(file, "model"))
    assert [loaded.sites[hazard.site or 0].name for hazard in loaded.hazards] == ["hidden"]


def test_code_in_a_layer_is_opaque(tmp_path: Path) -> None:
    """A Lambda runs the code of others, although its class is part of Keras."""
    config = {"name": "net", "layers": [LAMBDA, {"class_name": "ReLU", "config": {"name": "r"}}]}
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"class_name": "Sequential", "config": config}), encoding="utf-8")
    model = reading.load_model(format_detection.document(file, "model")).model
    opaque = {layer.path: layer.opaque for layer in model.layers}
    assert (opaque["net/hidden"], opaque["net/r"]) == (True, False)


def test_inspect_names_code_of_every_attack_first() -> None:
    """Code, harmful references and harmful ops are named before verdicts and signatures."""
    codes = {"PT601", "PT602", "PT605"}
    for path in sorted((FIXTURES / "attacks" / "models").iterdir()):
        inner = path / "model.json"  # of TensorFlow.js
        model = reading.read(inner if inner.exists() else path, path.name)
        audit = policytool.audit(inner if inner.exists() else path)
        is_code = not codes.isdisjoint(finding.rule for finding in audit.findings)
        runs = path.name in {"torch_module.keras", "tfsm_layer.keras"}
        assert bool(model.executed_code) is (is_code or runs), path.name
