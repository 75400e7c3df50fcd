"""
SavedModels: all copies of a policy are changed together, and changes that the graph or the
checkpoint prevent are errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from msgspec import structs

from policytool.formats import format_detection, rewriting
from policytool.formats.document import Address
from policytool.formats.edits import EditKind
from policytool.migration import planning
from policytool.migration.plan import apply_edits
from policytool.migration.planning.options import Options, assignment
from policytool.model import reading
from policytool.model.loaded_model import dtype_places
from policytool.model.tree import INPUT_CLASS
from policytool.support.text.jsontext import pointer
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled
from tests.helpers.small_models import Object, keras_object, saved_model

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.document import Document
    from policytool.migration.plan import Plan
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json

SAMPLES: Final = tuple(
    sorted(
        file.parent
        for file in FIXTURES.glob("*/*/saved_model.pb")
        if not file.parent.name.endswith(".export")
    )
)


def document(path: Path) -> Document:
    """Return the document of a fixture."""
    return format_detection.document(path, path.name)


def plan(path: Path, to: str | None = None, *assignments: str, target: str | None = None) -> Plan:
    """Return the plan for a fixture."""
    return planned(document(path), to, *assignments, target=target)


def planned(
    found: Document, to: str | None = None, *assignments: str, target: str | None = None
) -> Plan:
    """Return the plan for a document."""
    return planning.plan(
        reading.load_model(found),
        Options(to=to, assignments=tuple(assignment(text) for text in assignments), target=target),
    )


def name(value: object) -> object:
    """Return the name of a policy in either policy format."""
    return value["config"]["name"] if isinstance(value, dict) else value


def contradictions(loaded: LoadedModel) -> list[str]:
    """
    Return the places whose policy differs from that of their layer, except metrics and the input
    layer of a Sequential.
    """
    found = loaded.document
    return [
        f"{part}{place}"
        for part, metadata in found.parts.items()
        for steps, value in dtype_places(metadata)
        for place in [pointer(*steps)]
        for index in loaded.places.get(Address(part=part, pointer=place), ())
        if loaded.layers[index].policy != name(value)
    ]


@THOROUGH
@for_each("path", SAMPLES)
def test_every_place_of_a_policy_is_known(path: Path) -> None:
    """
    Every dtype in the metadata of both files belongs to a known layer, except those of metrics and
    of input layers of Sequentials.
    """
    found = document(path)
    loaded = reading.load_model(found)
    known = loaded.places
    layers = {node.part for node in found.nodes.values()} | {
        node.other_part for node in found.nodes.values()
    }
    for part, metadata in found.parts.items():
        held = {
            place: value
            for steps, value in dtype_places(metadata)
            for place in [pointer(*steps)]
            if Address(part=part, pointer=place) not in known
        }
        for place, value in held.items():
            is_metric = "/metrics/" in place or not any(address.part == part for address in known)
            assert is_metric or _class_at(metadata, place) == INPUT_CLASS, (part, place, value)
        assert part in layers
    assert not contradictions(loaded)


def _class_at(metadata: object, place: str) -> object:
    for step in place.split("/")[1:-2]:
        metadata = metadata[int(step)] if isinstance(metadata, list) else metadata[step]  # type: ignore[index]  # pointers of dtype_places
    return metadata.get("class_name") if isinstance(metadata, dict) else None


@THOROUGH
@for_each("to", ["mixed_float16", "mixed_bfloat16", "float32"])
@for_each("path", sampled("planned saved models", SAMPLES, share=4))
def test_edits_of_a_plan_leave_no_contradictions(path: Path, to: str) -> None:
    """
    After the edits of a plan all places agree, no variable has another dtype, and a second plan is
    empty.
    """
    found = document(path)
    made = planned(found, to)
    assert not made.casts
    if made.refusals:
        return
    changed = apply_edits(found, made.edits, ())
    loaded = reading.load_model(changed)
    assert not contradictions(loaded)
    before = reading.load_model(found).model.layers
    for old, new in zip(before, loaded.layers, strict=True):
        assert old.variable_dtype == new.variable_dtype or not old.variables, new.path
    assert not planned(changed, to).edits


@pytest.mark.parametrize("to", ["float16", "bfloat16", "float64"])
def test_plan_that_changes_dtypes_of_a_checkpoint_is_rejected(to: str) -> None:
    """RestoreV2 fails (measured with the releases)."""
    made = plan(FIXTURES / "tf2.15/sequential", to)
    refusals = {refusal.path: refusal for refusal in made.refusals}
    layers = reading.load_model(document(FIXTURES / "tf2.15/sequential")).model.layers
    assert {layer.path for layer in layers if layer.variables} & refusals.keys()
    assert {refusal.code for refusal in made.refusals} == {"checkpoint-stays"}
    assert all("--retrace" in refusal.message for refusal in made.refusals)
    assert all((f"mixed_{to}" in refusal.message) == (to != "float64") for refusal in made.refusals)


def test_new_policy_for_layers_revived_from_traces_is_rejected() -> None:
    """Keras revives these from traces; layers that keep their policy are not listed."""
    custom = plan(FIXTURES / "tf2.15/custom_layer", "mixed_bfloat16")
    assert {refusal.code for refusal in custom.refusals} == {"revived-from-traces"}
    layers = reading.load_model(document(FIXTURES / "tf2.15/custom_layer")).model.layers
    assert {refusal.path for refusal in custom.refusals} <= {
        layer.path for layer in layers if layer.opaque
    }
    subclassed = plan(FIXTURES / "tf2.15/subclassed", "float32")
    assert [refusal.path for refusal in subclassed.refusals] == ["net"]
    assert "--retrace" in subclassed.refusals[0].message
    one = plan(FIXTURES / "tf2.15/subclassed", None, "net/hidden=float32")
    assert [refusal.path for refusal in one.refusals] == ["net"]
    assert "net (with net/hidden)" in one.refusals[0].message


def test_policy_format_of_revived_layers_is_updated() -> None:
    """Its dtype does not change."""
    made = plan(FIXTURES / "tf2.15/subclassed")
    assert made.edits
    assert not made.refusals
    assert {edit.kind for edit in made.edits} == {EditKind.FORMAT}


def small(
    tmp_path: Path,
    *layers: Object,
    is_functional: bool = True,
    class_name: str = "Functional",
    **metadata: object,
) -> Document:
    """Return the document of a SavedModel whose model calls its layers in sequence."""
    children = [(f"layer-{position}", position + 1) for position in range(len(layers))]
    identifier = "_tf_keras_network" if is_functional else "_tf_keras_model"
    root = keras_object(
        "net",
        class_name,
        identifier=identifier,
        children=children,
        keras_version="2.9.0",
        is_graph_network=is_functional,
        **metadata,
    )
    return document(saved_model(tmp_path / "model", [root, *layers], separate=True))


def test_a_functional_model_of_another_class_is_rebuilt(tmp_path: Path) -> None:
    """Keras rebuilds the layers from the config without the class."""
    layers = [keras_object("dense_a", "Dense")]
    assert not planned(
        small(tmp_path / "one", *layers, class_name="Mine"),
        "mixed_float16",
        "net/dense_a=mixed_float16",
    ).refusals
    other = planned(
        small(tmp_path / "two", *layers, class_name="Mine", is_functional=False), "mixed_float16"
    )
    assert [refusal.code for refusal in other.refusals] == ["revived-from-traces"]


def test_a_lambda_is_byte_code(tmp_path: Path) -> None:
    """
    A new policy of a Lambda is an error, because its byte code loads only in the Python version
    that saved it and is revived from traces in others.
    """
    found = small(
        tmp_path,
        keras_object("dense_a", "Dense"),
        keras_object("twice", "Lambda"),
        keras_object("dense_b", "Dense"),
    )
    made = planned(found, "mixed_bfloat16", "net/twice=mixed_bfloat16")
    assert [(refusal.path, refusal.code) for refusal in made.refusals] == [
        ("net/twice", "revived-from-traces")
    ]
    assert not planned(found, "mixed_bfloat16", "net/twice=float32").refusals


def test_sub_layers_of_attention_follow_the_policy_of_the_layer() -> None:
    """Releases ignore their metadata; ``--set`` on one sub-layer is an error."""
    path = FIXTURES / "tf2.15/mha_mixed"
    made = plan(path, None, "net/mha=mixed_bfloat16")
    assert not made.refusals
    after = {
        layer.path: layer.policy
        for layer in reading.load_model(apply_edits(document(path), made.edits, ())).model.layers
    }
    assert {policy for layer, policy in after.items() if layer.startswith("net/mha")} == {
        "mixed_bfloat16"
    }
    one = plan(path, None, "net/mha/query=mixed_bfloat16")
    assert [(refusal.code, refusal.path) for refusal in one.refusals] == [
        ("no-dtype", "net/mha/query")
    ]
    assert any(
        note.code == "sub-layers"
        for note in plan(path, "mixed_bfloat16", "net/mha=mixed_bfloat16").notes
    )


def test_both_files_of_tf25_are_edited() -> None:
    """
    A plan changes both metadata files of TF 2.5 alike, and a note names the file that each release
    reads.
    """
    path = FIXTURES / "tf2.5/global_mixed_float16"
    made = plan(path, "float32")
    edits = {
        (
            edit.address.part.partition("#")[0],
            edit.address.part.partition("#")[2],
            edit.address.pointer,
        )
        for edit in made.edits
    }
    assert {edit[1:] for edit in edits if edit[0] == "saved_model.pb"} == {
        edit[1:] for edit in edits if edit[0] == "keras_metadata.pb"
    }
    assert [note.code for note in made.notes if note.code == "two-files"] == ["two-files"]
    loaded = reading.load_model(document(path))
    assert sorted(loaded.document.parts) == sorted(
        {
            part
            for node in loaded.document.nodes.values()
            for part in (node.part, node.other_part)
            if part
        }
    )


def test_both_files_of_tf25_get_the_same_optimizer(tmp_path: Path) -> None:
    """
    A plan writes the same optimizer into both metadata files of TF 2.5, without regard to object
    ids. If the files differed before, only the file that TF 2.5 reads is edited.
    """
    path = FIXTURES / "tf2.5/exp_mf16_fixed128"
    made = plan(path)
    assert {edit.address.part for edit in made.edits if edit.path is None} == {
        "keras_metadata.pb#0",
        "saved_model.pb#0",
    }
    rewriting.write(
        path, tmp_path / "new", rewriting.Changes(edits=made.edits), document_format="savedmodel"
    )
    codes = [observation.code for observation in reading.read(tmp_path / "new", "new").observations]
    assert codes == ["optimizer-slots"]
    found = document(path)
    assert "shared_object_id" in str(found.parts["keras_metadata.pb#0"])
    root = found.parts["saved_model.pb#0"]
    assert isinstance(root, dict)
    other: Json = {**root, "training_config": {"optimizer_config": "sgd"}}
    made = planned(replace(found, parts={**found.parts, "saved_model.pb#0": other}))
    assert {edit.address.part for edit in made.edits if edit.path is None} == {
        "keras_metadata.pb#0"
    }


def test_signatures_compute_as_before() -> None:
    """
    A plan that changes dtypes of layers warns that signatures stay unchanged, with their dtypes if
    the graph could be read.
    """
    found = document(FIXTURES / "tf2.3/nested_models")
    signatures = found.signatures
    assert signatures
    warning = next(
        note for note in planned(found, "float32").notes if note.code == "signatures-as-before"
    )
    assert (
        f"{signatures[0].name} computes as before" in warning.message
        or "still computes in" in warning.message
    )
    told = replace(
        found, signatures=(structs.replace(signatures[0], compute_dtypes=("float16", "float32")),)
    )
    warning = next(
        note for note in planned(told, "float32").notes if note.code == "signatures-as-before"
    )
    assert f"{signatures[0].name} still computes in float16 and float32" in warning.message
    assert not [note for note in planned(found).notes if note.code == "signatures-as-before"]


def test_tf21_revives_every_layer() -> None:
    """
    A SavedModel of TF 2.1 with a changed policy fails to load in TF 2.1, which revives every layer
    from traces, and loads in newer releases.
    """
    made = plan(FIXTURES / "tf2.1/global_mixed_float16", "float32")
    assert not made.refusals
    before, after = (
        {verdict.loader: verdict.reason for verdict in verdicts}
        for verdicts in (made.loaders_before, made.loaders_after)
    )
    assert before["tf2.1"] is None
    assert "from their traces" in str(after["tf2.1"])
    assert after["tf2.9"] is None
    refused = plan(FIXTURES / "tf2.1/global_mixed_float16", "float32", target="tf2.1")
    assert [refusal.code for refusal in refused.refusals] == ["incompatible-with-target"]


def test_optimizers_state_is_never_restored() -> None:
    """
    A wrapper can be added to the optimizer of a SavedModel without loss, because Keras never
    restores its state; the edit is in the root's training config.
    """
    made = plan(FIXTURES / "tf2.15/adam_autowrap_mf16", "mixed_bfloat16")
    edit = next(edit for edit in made.edits if edit.kind is EditKind.TRAINING)
    assert edit.address == Address(
        part="keras_metadata.pb#0", pointer=pointer("training_config", "optimizer_config")
    )
    assert "empty slots" in next(
        note.message for note in made.notes if note.code == "optimizer-state"
    )
    assert made.state is None


def test_single_metadata_file_has_no_verdicts(tmp_path: Path) -> None:
    """It is only a part of a model; its plan is that of the SavedModel."""
    source = FIXTURES / "tf2.15/global_mixed_float16"
    alone = tmp_path / "keras_metadata.pb"
    alone.write_bytes((source / "keras_metadata.pb").read_bytes())
    made, whole = plan(alone, "float32"), plan(source, "float32")
    assert made.edits == whole.edits
    assert made.loaders_after == ()
    assert any(note.code == "part-of-a-model" for note in made.notes)
    assert [refusal.code for refusal in plan(alone, "float64").refusals]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"activation": "my_act"}, "my_act"),
        ({"activation": "fixtures>act"}, "fixtures>act"),
        (
            {
                "activation": {
                    "class_name": "function",
                    "config": "my_act",
                    "registered_name": "my_act",
                }
            },
            "my_act",
        ),
        ({"recurrent_activation": "mine"}, "mine"),
        ({"kernel_initializer": {"class_name": "Init", "config": {}}}, "Init"),
        ({"bias_regularizer": {"class_name": "Custom>Reg", "config": {}}}, "Custom>Reg"),
        ({"kernel_constraint": "mine"}, "mine"),
        (
            {
                "layer": {
                    "class_name": "Mine",
                    "config": {"name": "inner", "trainable": True, "dtype": "float32"},
                }
            },
            None,
        ),
        (
            {
                "activation": "relu",
                "kernel_initializer": {"class_name": "GlorotUniform", "config": {}},
                "kernel_regularizer": None,
                "bias_constraint": "nonneg",
            },
            None,
        ),
        (
            {
                "activation": {
                    "class_name": "LeakyReLU",
                    "config": {"name": "act", "trainable": True, "dtype": "float32"},
                }
            },
            None,
        ),
        ({"activation": None, "kernel_initializer": "he_normal"}, None),
    ],
)
def test_layer_with_a_custom_object_is_revived_from_traces(
    config: dict[str, object], name: str | None, tmp_path: Path
) -> None:
    """A custom activation, initializer or similar object in its config."""
    layers = [
        keras_object("dense_a", "Dense"),
        keras_object("mid", "Dense"),
        keras_object("last", "Dense"),
    ]
    layers[1].metadata["config"].update(config)  # type: ignore[index]  # made a line above
    made = planned(small(tmp_path, *layers), "mixed_bfloat16")
    assert [(refusal.path, refusal.code) for refusal in made.refusals] == (
        [("net/mid", "revived-from-traces")] if name else []
    )
    assert all(str(name) in refusal.message for refusal in made.refusals)
    assert not planned(small(tmp_path, *layers), "mixed_bfloat16", "net/mid=float32").refusals


def test_a_wrapper_with_a_custom_layer_is_revived_whole(tmp_path: Path) -> None:
    """The release that loads the file may not read its config."""
    wrapper = keras_object("td", "TimeDistributed", children=[("layer", 3)])
    wrapper.metadata["config"]["layer"] = {  # type: ignore[index]
        "class_name": "Mine",
        "config": {"name": "inner", "trainable": True, "dtype": "float32"},
    }
    root = keras_object(
        "net",
        "Functional",
        identifier="_tf_keras_network",
        children=[("layer-0", 1), ("layer-1", 2)],
        keras_version="2.9.0",
        is_graph_network=True,
    )
    objects = [root, wrapper, keras_object("last", "Dense"), keras_object("inner", "Mine")]
    made = planned(
        document(saved_model(tmp_path / "model", objects, separate=True)),
        "mixed_bfloat16",
        "net/last=mixed_bfloat16",
    )
    assert [refusal.path for refusal in made.refusals] == ["net/td"]
    assert "contains net/td/inner, which uses the custom class Mine" in made.refusals[0].message


def test_layer_without_autocast_keeps_the_input_dtype(tmp_path: Path) -> None:
    """A layer with ``autocast=False`` was traced with one dtype."""
    for autocast in (True, False):
        layers = [
            keras_object("dense_a", "Dense"),
            keras_object("mid", "Mine", autocast=autocast),
            keras_object("last", "Dense"),
        ]
        config = {
            "name": "net",
            "layers": [
                {
                    "class_name": one.metadata["class_name"],  # type: ignore[index]
                    "config": one.metadata["config"],  # type: ignore[index]
                    "name": one.metadata["name"],  # type: ignore[index]
                    "inbound_nodes": inbound,
                }
                for one, inbound in zip(
                    layers, ([], [[["dense_a", 0, 0, {}]]], [[["mid", 0, 0, {}]]]), strict=True
                )
            ],
            "input_layers": [["dense_a", 0, 0]],
            "output_layers": [["last", 0, 0]],
        }
        found = small(tmp_path / str(autocast), *layers, config=config)
        made = planned(found, "mixed_bfloat16", "net/mid=float32")
        assert [refusal.path for refusal in made.refusals] == ([] if autocast else ["net/mid"])
        assert all("its traces for float32" in refusal.message for refusal in made.refusals)


def test_revived_layer_fails_in_a_release_without_its_activation(tmp_path: Path) -> None:
    """That release revives it from traces."""
    layer = keras_object("dense_a", "Dense")
    last = keras_object("last", "Dense")
    for each in (layer, last):
        each.metadata["config"]["units"] = 1  # type: ignore[index]
    layer.metadata["config"]["activation"] = "mish"  # type: ignore[index]
    made = planned(small(tmp_path, layer, last), "mixed_bfloat16")
    after = {verdict.loader: verdict.reason for verdict in made.loaders_after}
    assert "does not have the activation mish" in str(after["tf2.9"])
    assert after["tf2.15"] is None
