"""Rules about releases that load a file: what the golden files of the rules do not show."""

from __future__ import annotations

import json
import shutil
from random import Random
from typing import TYPE_CHECKING

import pytest

import policytool
from policytool.commands import audit as auditing
from policytool.commands.arguments.reading import AuditArguments
from policytool.formats.discovery import Input
from policytool.migration.convert import decoding
from policytool.model.compatibility.incompatibilities import EXPORTED
from policytool.rules import AuditOptions, stored_values
from policytool.support.text import protobuf_messages
from tests.conftest import run
from tests.helpers.damaged_variables import damaged_copy
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import h5_model, instance, sequential

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.migration.convert.architecture import Unit
    from policytool.model.loaded_model import LoadedModel


def test_export_of_tf1_has_no_reasons_from_the_keras_version(tmp_path: Path) -> None:
    """Without a config and the Keras version, the rows that test them do not apply."""
    model = protobuf_messages.parse("SavedModel", b"")
    model.meta_graphs.add().meta_info.tensorflow_version = b"1.5.0"
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    found = policytool.inspect(str(tmp_path)).releases.values()
    assert {one.reason for one in found} == {EXPORTED, "Keras 3 does not support SavedModels"}


def test_a_model_is_planned_once_for_each_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    However many findings there are, in however many rules: two containers, and one more where
    the first plan asks for an option.
    """
    made: list[LoadedModel] = []
    decode = decoding.decode

    def counted(loaded: LoadedModel) -> Unit:
        made.append(loaded)
        return decode(loaded)

    monkeypatch.setattr(decoding, "decode", counted)
    path = FIXTURES / "tf2.15/rnn.h5"
    findings = auditing.audit_input(
        Input(path=path, exact=True), AuditOptions(targets=("keras3.6", "keras3.15"))
    ).findings
    assert len([finding for finding in findings if finding.rule in {"PT501", "PT504"}]) > 10
    assert len(made) == 2 * 3


def test_any_model_has_a_finding_for_tensorflow_js() -> None:
    """
    The model is not a layers model, and a command converts it if TensorFlow.js has its classes.
    """
    options = auditing.audit_options(AuditArguments(target="tfjs"))
    for name, is_convertible in (("default_float32", True), ("mha", False)):
        path = FIXTURES / f"tf2.15/{name}.h5"
        audited = auditing.audit_input(Input(path=path, exact=True), options)
        (finding,) = (finding for finding in audited.findings if finding.rule == "PT507")
        (planned,) = audited.commands
        assert (finding.advice is None) is is_convertible
        assert planned.arguments == (("--target", "tfjs") if is_convertible else None)
        assert (planned.reason is None) is is_convertible


def test_policy_is_no_advice_if_the_release_lacks_a_class(tmp_path: Path) -> None:
    """TF 2.9 has no GroupNormalization, whatever the policy of the convolution is."""
    convolution = instance(
        "Conv1D",
        name="conv",
        trainable=True,
        dtype=instance("Policy", name="mixed_float16"),
        filters=4,
        kernel_size=[1],
        groups=2,
        batch_input_shape=[None, 4, 4],
    )
    path = tmp_path / "model.json"
    model = sequential(convolution, instance("GroupNormalization", name="gn", groups=2))
    path.write_text(json.dumps(model), encoding="utf-8")
    findings = policytool.audit(path, target="tf2.9").findings
    advice = [str(finding.advice) for finding in findings if finding.rule == "PT501"]
    assert len(advice) == 2
    assert not any("set a policy" in text for text in advice)


def test_signatures_run_only_in_releases_with_their_ops() -> None:
    """
    ``tf.saved_model.load`` of TF 2.9 says "Op type not registered 'DisableCopyOnRead'", and that of
    TF 2.12 loads such a model.
    """
    path = FIXTURES / "keras3.15/default_float32.export"
    advice = {
        target: next(
            finding.advice
            for finding in policytool.audit(path, target=target).findings
            if finding.rule == "PT501"
        )
        for target in ("tf2.9", "tf2.12")
    }
    assert advice["tf2.12"] == "call its signatures with tf.saved_model.load"
    assert str(advice["tf2.9"]).startswith(
        "call its signatures with tf.saved_model.load in a later release: TF 2.9 and older"
    )


def test_vocabulary_that_the_release_never_stores_has_other_advice() -> None:
    """TF 2.5 and older store none, also if it was an argument: saving again changes nothing."""
    path = FIXTURES / "tf2.3/string_lookup"
    (finding, *_) = (
        entry for entry in policytool.audit(path, target="keras3").findings if entry.rule == "PT501"
    )
    advice = str(finding.advice)
    assert "TF 2.5 and older store no vocabulary in configs" in advice
    assert "was adapted" not in advice
    assert "save the model again" not in advice


def test_archives_are_audited_for_tensorflow_js_and_a_release() -> None:
    """TensorFlow.js is no release with an archive layout; this was a KeyError."""
    path = FIXTURES / "keras3.15/default_float32.keras"
    audited = policytool.audit(path, target=["tfjs", "keras3"])
    assert [finding.rule for finding in audited.findings] == ["PT507"]


def test_layers_models_have_no_finding_for_another_target() -> None:
    """For a target of Keras, the user converts the model first."""
    path = FIXTURES / "tfjs4.22/from_keras3.15/model.json"
    options = AuditOptions(targets=("tf2.15", "keras3.15"))
    findings = auditing.audit_input(Input(path=path, exact=True), options).findings
    assert "PT507" not in {finding.rule for finding in findings}


def test_migrate_writes_no_copy_with_damaged_variables(tmp_path: Path) -> None:
    """The error names the layer, the variable and both shapes."""
    path = tmp_path / "model.keras"
    assert damaged_copy(FIXTURES / "keras3.15/sequential.keras", path, "shape", Random(0))  # noqa: S311
    done = run("migrate", path, "--to", "mixed_bfloat16", "-o", tmp_path / "copy.keras")
    assert done.code == 3
    assert "the variable bias of Dense dense_b has the shape (3,), but (5,) is stored" in done.out
    assert not (tmp_path / "copy.keras").exists()


@pytest.mark.parametrize("target", [None, "keras3"])
@pytest.mark.parametrize(
    "name", ["tf2.15/global_mixed_float16", "keras3.15/default_float32.export"]
)
def test_incomplete_savedmodel_is_copied_again(
    tmp_path: Path, name: str, target: str | None
) -> None:
    """Nothing else is advised: no edit, no other release and no signature."""
    model = tmp_path / "model"
    shutil.copytree(FIXTURES / name, model, ignore=shutil.ignore_patterns("*.index"))
    audited = policytool.audit(model, target=target)
    advice = {finding.advice for finding in audited.findings} - {None}
    assert advice == {"save the model again, or copy the file again"}
    assert not any(finding.fix_safety for finding in audited.findings)
    (command,) = audited.commands
    assert command.reason is not None
    missing = "no release loads the file: variables/variables.index is missing"
    assert command.reason.startswith(missing)
    assert "TF Serving" not in run("inspect", model).out


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(
    ("folder", "index", "shard"),
    [
        ("tfjs4.22/from_tf2.3", "model.json", "group1-shard1of1.bin"),
        ("checkpoints", "training.index", "training.data-00000-of-00001"),
    ],
)
def test_lost_shard_is_named(
    tmp_path: Path, folder: str, index: str, shard: str, *, is_cut: bool
) -> None:
    model = tmp_path / "model" / index
    shutil.copytree(FIXTURES / folder, model.parent)
    values = model.with_name(shard)
    data = values.read_bytes()
    values.unlink()
    if is_cut:
        values.write_bytes(data[:20])
    audited = policytool.audit(model)
    (finding,) = [finding for finding in audited.findings if finding.rule == "PT506"]
    # a model of TensorFlow.js lists its shards, but a cut one shows only in the total size
    expected = "20 bytes" if is_cut and index == "model.json" else shard
    assert expected in finding.message
    assert [command.arguments for command in audited.commands] == [None]
    assert finding.message.replace("\n", " ") in " ".join(run("inspect", model).out.split())


@pytest.mark.parametrize(
    "name", ["tf2.15/global_mixed_float16", "keras3.15/default_float32.export"]
)
def test_values_that_do_not_match_their_checksum_fail_to_load(tmp_path: Path, name: str) -> None:
    """Only ``--weights`` reads the values. TF 2.15 raises DataLossError for such a file."""
    model = tmp_path / "model"
    shutil.copytree(FIXTURES / name, model)
    values = model / "variables/variables.data-00000-of-00001"
    data = bytearray(values.read_bytes())
    data[7] ^= 64
    values.write_bytes(data)
    assert "PT506" not in {finding.rule for finding in policytool.audit(model).findings}
    audited = policytool.audit(model, weights=True)
    (finding,) = [finding for finding in audited.findings if finding.rule == "PT506"]
    assert "do not match their checksum" in finding.message
    assert not any(finding.fix_safety for finding in audited.findings)
    assert [command.arguments for command in audited.commands] == [None]


def test_values_of_a_savedmodel_are_counted() -> None:
    """The values of its layers are read, as in other formats."""
    audited = auditing.read_model(Input(path=FIXTURES / "tf2.15/global_mixed_float16", exact=True))
    assert audited.loaded is not None
    stored = stored_values.read_values(
        FIXTURES / "tf2.15/global_mixed_float16", audited.document, audited.loaded, {}
    )
    assert len(stored.counts) == 6
    assert not stored.unread
    assert not stored.damaged


@pytest.mark.parametrize(("name", "axis"), [("Softmax", [1, 2]), ("UnitNormalization", [1, 2])])
def test_axis_that_keras3_ignores_changes_results(
    tmp_path: Path, name: str, axis: list[int]
) -> None:
    """Keras 3.0, 3.6 and 3.15 load such files of TF 2.15 and Keras 3.15, and use the last axis."""
    config = {"name": "b", "trainable": True, "dtype": "float32", "axis": axis}
    inputs = {"batch_input_shape": [None, 4, 3], "dtype": "float32", "name": "x"}
    layers = (
        {"class_name": "InputLayer", "config": inputs},
        {"class_name": name, "config": config},
    )
    path = h5_model(tmp_path / "m.h5", sequential(*layers), weights=False, keras_version="2.15.0")
    assert policytool.inspect(path).releases["keras3.15"].outcome == "loads"
    audited = policytool.audit(path, target="keras3")
    (message,) = (finding.message for finding in audited.findings if finding.rule == "PT504")
    assert message.startswith("wrong predictions in Keras 3.15: the axis [1, 2]")
    assert "PT502" not in {finding.rule for finding in audited.findings}
    assert audited.commands[0].arguments


@pytest.mark.parametrize(("mode", "fails"), [("GPTQ", True), ("AWQ", True), ("Int4", False)])
def test_calibrated_layers_cannot_be_called_from_hdf5(
    tmp_path: Path, mode: str, *, fails: bool
) -> None:
    """Dense and EinsumDense of Keras 3.12 and 3.15 load, and `_kernel` is missing when called."""
    policy = {"mode": f"{mode.lower()}/4/2", "source_name": "float32"}
    dtype = {"class_name": f"{mode}DTypePolicy", "config": policy, "module": "keras"}
    inputs = {"batch_shape": [None, 4], "dtype": "float32", "name": "x"}
    layers = (
        {"class_name": "InputLayer", "config": inputs},
        {"class_name": "Dense", "config": {"name": "b", "units": 4, "dtype": dtype}},
    )
    path = h5_model(tmp_path / "m.h5", sequential(*layers), weights=False, keras_version="3.15.1")
    doubts = policytool.inspect(path).releases["keras3.15"].doubts
    assert ("calling the model fails" in str(doubts)) is fails


@pytest.mark.parametrize("name", ["keras3.15/custom_layer.keras", "tf2.15/custom_layer"])
def test_custom_class_is_one_finding(name: str) -> None:
    audited = policytool.audit(FIXTURES / name, target=name.partition("/")[0])
    rules = [finding.rule for finding in audited.findings]
    assert "PT603" in rules
    assert "PT502" not in rules
