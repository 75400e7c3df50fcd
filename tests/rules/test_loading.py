"""Rules about who takes a file."""

from __future__ import annotations

import atexit
import json
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import policytool
from policytool.commands import audit as auditing
from policytool.formats.discovery import Input
from policytool.migration.convert import decoding
from policytool.rules import AuditOptions
from policytool.rules.base import Fix, Remedy
from policytool.support.text import protobuf_messages
from tests.conftest import run
from tests.contracts.rule_contract import RuleContract, found
from tests.helpers.damaged_variables import damaged_copy
from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    import pytest

    from policytool.migration.convert.architecture import Unit
    from policytool.model.loaded_model import LoadedModel

_TODAY = AuditOptions(targets=("tf2.15", "keras3.15"))


class TestTargetRefuses(RuleContract):
    id = "PT501"
    question = _TODAY
    triggers = {
        "keras3.15/keras_ops.h5": ("mlp/features", "mlp/dense_a", "mlp/dense_a", None),
        "keras3.15/rnn.keras": (None, "net/sequence", "net/lstm", "net/conv_lstm2d"),
        "tf2.15/rnn.h5": ("net/lstm", "net/gru", "net/simple_rnn", "net/rnn", "net/conv_lstm2d"),
        "tf2.5/mha.json": (None, "net/mha"),
        "tf2.5/tf_op_layers.h5": (None,),
        "tf2.15/per_layer.h5": (None, None),
        "keras3.15/loops.export": (None,),
        "keras3.15/weights_only.weights.h5": (None, None),
        "keras3.15/sharded.weights.json": (None, None),
        "tf2.9/weights_only.ckpt.index": (None, None),
    }
    silent = (
        *(
            "tf2.12/default_float32.h5",
            "tf2.3/default_float32.h5",
            "tf2.15/custom_layer.h5",
            "tf2.15/lambda.h5",
        ),
        *(
            "tf2.15/global_mixed_float16.h5",
            "tf2.3/exp_mf16_fixed128.h5",
        ),  # refused for their policies alone, which rules of PT1 tell
    )

    def test_the_layers_the_class_and_the_key_that_do_it_are_named(self) -> None:
        """A key is told once for all layers that have it."""
        findings = found(
            self.id, FIXTURES / "keras3.15/keras_ops.h5", AuditOptions(targets=("keras3.6",))
        )
        assert [(finding.path, finding.detail) for finding in findings][:2] == [
            (None, "keras3.6 graph"),
            ("mlp/dense_a", "keras3.6 key Dense quantization_config"),
        ]
        assert findings[1].message == (
            "fails to load in Keras 3.6: Dense has no argument `quantization_config` (also "
            "mlp/dense_b)"
        )
        assert findings[1].address is not None

    def test_nothing_is_said_of_the_keras_that_wrote_an_export_of_tf_1(
        self, tmp_path: Path
    ) -> None:
        """Without a config and the versions of Keras, no row that looks at them holds."""
        model = protobuf_messages.parse("SavedModel", b"")
        model.meta_graphs.add().meta_info.tensorflow_version = b"1.5.0"
        (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
        found = policytool.inspect(str(tmp_path)).releases.values()
        assert {one.reason for one in found} == {None, "Keras 3 does not support SavedModels"}

    def test_what_has_no_config_is_told_what_else_to_do(self) -> None:
        """Signatures can be called, and weights loaded into a model."""
        for name, advice in (
            ("loops.export", "load its signatures as a layer with keras.layers.TFSMLayer"),
            ("weights_only.weights.h5", "build the model from its code and call load_weights"),
        ):
            first, *_ = found(self.id, FIXTURES / "keras3.15" / name, _TODAY)
            assert first.advice == advice

    def test_what_migrate_fixes_has_its_command(self) -> None:
        """
        Where the storage of variables alone stands in the way, migrate widens them; a key that is
        refused it does not take away.
        """
        (storage,) = found(
            self.id, FIXTURES / "tf2.15/per_layer.h5", AuditOptions(targets=("tf2.15",))
        )
        assert storage.remedy == Remedy(fix=Fix.SAFE)
        (key, *_) = found(self.id, FIXTURES / "tf2.15/rnn.h5", _TODAY)
        assert key.remedy is None

    def test_what_migrate_converts_needs_no_advice(self) -> None:
        """The command of the model says how; the advice has what the target leaves open then."""
        (key, *_) = found(self.id, FIXTURES / "tf2.15/rnn.h5", _TODAY)
        assert key.advice is None
        advice = {
            finding.detail.partition(" ")[0]: finding.advice
            for finding in found(self.id, FIXTURES / "keras3.15/keras_ops.h5", _TODAY)
        }
        assert str(advice["tf2.15"]).startswith(
            "compatibility of the converted model with TF 2.15 is unknown: "
        )

    def test_what_migrate_cannot_convert_has_the_reason_of_its_refusal(self) -> None:
        """And what to do instead."""
        findings = found(
            self.id, FIXTURES / "keras3.15/subclassed.h5", AuditOptions(targets=("tf2.15",))
        )
        assert len(findings) == 1
        assert str(findings[0].advice).startswith("migrate cannot convert the model: ")
        assert str(findings[0].advice).endswith(
            "; load the model in the release that wrote it, rebuild it in the target "
            "release, and copy the weights"
        )

    def test_a_model_is_planned_once_for_each_target(self, monkeypatch: pytest.MonkeyPatch) -> None:
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


class TestNotJudged(RuleContract):
    id = "PT502"
    question = _TODAY
    triggers = {
        "tf2.15/custom_layer.h5": ("net/pair", "net/holder", "net/scale"),
        "tf2.5/tf_op_layers.h5": ("mlp/tf.cast", "mlp/tf.__operators__.getitem"),
        "tf2.15/lambda.h5": ("net/double", "net/double"),
        "keras3.15/loops.export": (None,),
    }
    silent = ("tf2.15/default_float32.h5", "keras3.15/mha.keras", "keras3.15/keras_ops.h5")

    def test_a_key_that_no_release_writes_is_left_open(self, tmp_path: Path) -> None:
        """Nobody was asked about it, so nobody is said to take it."""
        config = json.loads((FIXTURES / "tf2.15/default_float32.json").read_text(encoding="utf-8"))
        config["config"]["layers"][1]["config"]["kernel_scaling"] = 2
        (tmp_path / "model.json").write_text(json.dumps(config), encoding="utf-8")
        (finding,) = found(self.id, tmp_path / "model.json", AuditOptions(targets=("tf2.15",)))
        assert finding.detail == "tf2.15 key Dense kernel_scaling"

    def test_an_activation_of_someone_elses_is_left_open(self, tmp_path: Path) -> None:
        """
        A function by a name that no release has is the user's own; serialised as a function it says
        so.
        """
        for activation in (
            "my_activation",
            {
                "module": "builtins",
                "class_name": "function",
                "config": "my_activation",
                "registered_name": "function",
            },
        ):
            config = json.loads(
                (FIXTURES / "tf2.15/default_float32.json").read_text(encoding="utf-8")
            )
            config["config"]["layers"][1]["config"]["activation"] = activation
            (tmp_path / "model.json").write_text(json.dumps(config), encoding="utf-8")
            (finding,) = found(self.id, tmp_path / "model.json", AuditOptions(targets=("tf2.15",)))
            assert finding.detail == "tf2.15 class my_activation"

    def test_the_reason_why_migrate_does_not_convert_is_told(self) -> None:
        """
        Byte code is converted by nobody; a file that the target's own library wrote is not
        converted.
        """
        advice = {
            finding.detail.partition(" ")[0]: finding.advice
            for finding in found(self.id, FIXTURES / "tf2.15/lambda.h5", _TODAY)
        }
        assert str(advice["keras3.15"]).startswith(
            "migrate cannot convert the model: net/double (Lambda)"
        )
        assert (
            advice["tf2.15"] == "to check, load the model in TF 2.15 with the code of its classes"
        )


class TestNoLoader(RuleContract):
    id = "PT503"
    triggers = {
        "keras3.15/keras_ops.h5": (None,),
        "tf2.15/per_layer.h5": (None,),
        "keras3.15/subclassed.h5": (None,),
    }
    silent = (
        "tf2.15/default_float32.h5",
        "keras3.15/mha.keras",
        "tf2.15/custom_layer.h5",
        "tf2.5/tf_op_layers.h5",
        "keras3.15/per_layer.keras",
    )


class TestComputesOtherwise(RuleContract):
    id = "PT504"
    question = _TODAY
    triggers = {"tf2.15/rnn.h5": ("net/conv_lstm2d",), "keras2.2.4/rnn.h5": ("net/lstm_1",)}
    silent = ("tf2.15/default_float32.h5", "keras3.15/rnn.keras", "tf2.15/wrappers.h5")

    def test_it_says_what_differs(self) -> None:
        """The message has what both make of one number."""
        (finding,) = found(self.id, FIXTURES / "tf2.15/rnn.h5", _TODAY)
        assert finding.message == (
            "Keras 3.15 uses a different formula for hard_sigmoid than the release that wrote the "
            "file: 0.3333 instead of 0.3 for the input -1"
        )
        assert finding.advice is None


class TestNewestKerasFails(RuleContract):
    id = "PT505"
    triggers = {
        "tf2.3/global_mixed_float16.h5": (None,),
        "tf2.15/rnn.h5": (None,),
        "tf2.15/default_float32": (None,),
    }
    silent = (
        "tf2.15/default_float32.h5",
        "keras3.15/mha.keras",
        "keras3.15/subclassed.h5",  # PT503's
        "keras3.15/loops.export",
        "keras3.15/weights_only.weights.h5",
    )

    def test_it_is_one_finding_however_many_causes(self) -> None:
        """It names the first, and how many others there are."""
        (finding,) = found(self.id, FIXTURES / "tf2.15/rnn.h5")
        assert finding.message.startswith("Keras 3.15, the newest Keras, fails to load the model: ")
        assert finding.message.endswith(" more causes")

    def test_it_is_silent_with_a_target(self) -> None:
        """PT104 and PT501 then name every cause."""
        assert not found(self.id, FIXTURES / "tf2.15/rnn.h5", _TODAY)


def _damaged(name: str, kind: str) -> str:
    """Return the path of a copy of a fixture whose variables are damaged."""
    folder = ROOT / "build" / "damaged"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, suffix=Path(name).suffix, delete=False) as copy:
        path = Path(copy.name)
    atexit.register(path.unlink, missing_ok=True)
    assert damaged_copy(FIXTURES / name, path, kind, Random(0))  # noqa: S311  # no secret
    return str(path)


class TestMismatchedVariables(RuleContract):
    id = "PT506"
    triggers = {
        _damaged("keras3.15/sequential.keras", "no weights"): (None,),
        _damaged("keras3.15/sequential.keras", "shape"): ("stack/dense_b",),
        _damaged("keras3.15/sequential.h5", "one more"): ("stack/dense_b",),
        _damaged("tf2.15/sequential.h5", "no weights"): (None,),
        _damaged("tf2.15/sequential.h5", "group missing"): ("stack/dense_b",),
    }
    silent = (
        "keras3.15/sequential.keras",
        "keras3.15/int8.keras",
        "keras3.15/custom_layer.keras",
        "tf2.15/sequential.h5",
        "tf2.15/default_float32",
    )

    def test_both_shapes_are_named(self, tmp_path: Path) -> None:
        """So is the variable; migrate then writes nothing."""
        path = tmp_path / "model.keras"
        assert damaged_copy(FIXTURES / "keras3.15/sequential.keras", path, "shape", Random(0))  # noqa: S311
        (finding,) = found(self.id, path)
        assert finding.message == (
            "fails to load in Keras 3.15: the variable bias of Dense dense_b has the shape (3,), "
            "but (5,) is stored"
        )
        done = run("migrate", path, "--to", "mixed_bfloat16", "-o", tmp_path / "copy.keras")
        assert done.code == 3
        assert not (tmp_path / "copy.keras").exists()
