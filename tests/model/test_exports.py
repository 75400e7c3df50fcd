"""Whether Keras exports models, according to the measured table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.formats import format_detection
from policytool.model import reading
from policytool.model.exports import ExportVerdict, export_verdict, export_verdicts
from policytool.releases import exports
from policytool.releases.layer_classes import known_classes, operation_classes
from policytool.releases.releases import EXPORTERS, conversion_target, loaders_of
from policytool.support.errors import UsageError
from tests.conftest import run
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.model.loaded_model import LoadedModel

KERAS3: Final = FIXTURES / "keras3.15"


def _verdict(name: str, exporter: str) -> ExportVerdict:
    path = KERAS3 / name
    return export_verdict(reading.load_model(format_detection.document(path, str(path))), exporter)


def test_every_exporter_is_measured_with_the_policies() -> None:
    """The names of targets are those of the table."""
    for exporter in EXPORTERS:
        policies = exports.policies(exporter)
        assert {"float32", "mixed_float16", "mixed_bfloat16", "float16"} <= {*policies}
        assert len({case for row in policies["float32"] for case in row["cases"]}) > 60


def test_a_case_has_one_outcome_and_a_known_class() -> None:
    """No case is listed twice, and each stands for a class that files name."""
    for exporter in EXPORTERS:
        for rows in exports.policies(exporter).values():
            cases = [case for row in rows for case in row["cases"]]
            assert len(cases) == len({*cases})
            names = {
                case.partition("[")[0] for case in cases if not case.startswith("activations.")
            }
            assert names <= {*known_classes(), *(f"ops.{name}" for name in operation_classes())}


def test_mixed_float16_has_float16_weights_in_onnx() -> None:
    """The exporter of ONNX folds the casts of weights; TensorFlow keeps the variables."""
    onnx, saved = (
        exports.export(exporter, "mixed_float16", "Dense", {})
        for exporter in ("onnx", "tf_saved_model")
    )
    assert onnx is not None
    assert saved is not None
    assert (onnx.fails, onnx.weights) == (None, ("float16",))
    assert (saved.fails, saved.weights) == (None, ("float32",))


def test_bfloat16_does_not_run_in_onnx_runtime() -> None:
    """The export succeeds, but the file mixes float16 and bfloat16."""
    for policy in ("mixed_bfloat16", "bfloat16"):
        dense = exports.export("onnx", policy, "Dense", {})
        assert dense is not None
        assert dense.fails == "run"


def test_arguments_choose_the_measured_case() -> None:
    """LiteRT runs an LSTM only if it is unrolled; a class without a case is not measured."""
    rolled = exports.export("litert", "float32", "LSTM", {"unroll": False})
    unrolled = exports.export("litert", "float32", "LSTM", {"unroll": True})
    assert rolled is not None
    assert rolled.fails == "run"
    assert unrolled is not None
    assert unrolled.fails is None
    assert exports.export("litert", "float32", "MyLayer", {}) is None
    plain, grouped = (exports.export("onnx", "float32", "Conv2D", {"groups": n}) for n in (1, 3))
    assert plain is not None
    assert plain.fails is None
    assert grouped is not None
    assert grouped.fails == "run"


def test_int4_has_the_policy_that_keras_writes() -> None:
    """Keras adds the size of the blocks to the name of the policy."""
    assert _verdict("int4.keras", "onnx").unmeasured == ()


def test_verdict_names_layers_and_weights() -> None:
    """The verdict has the first failing layers, and the dtypes in the file."""
    failing = _verdict("global_mixed_bfloat16.keras", "onnx").failing
    assert [one.class_name for one in failing] == ["Dense"]
    assert failing[0].needs_float32
    working = _verdict("default_float32.keras", "onnx")
    assert (working.failing, working.unmeasured, working.weights) == ((), (), ("float32",))


def test_custom_layers_are_not_measured() -> None:
    """Nothing is claimed of code that no measurement ran."""
    custom = _verdict("custom_layer.keras", "onnx").unmeasured
    assert custom


def test_operations_are_judged_by_the_dtype_of_their_tensors() -> None:
    """LiteRT runs an addition in float32 but not in float16; other dtypes were not measured."""
    fails = {
        dtypes: outcome and outcome.fails
        for dtypes in (("float32",), ("float16",), ("bool", "float32"), ("int32",), ("complex64",))
        for outcome in [exports.operation_export("litert", "Add", dtypes)]
    }
    assert fails == {
        ("float32",): None,
        ("float16",): "run",
        ("bool", "float32"): None,
        ("int32",): None,
        ("complex64",): None,
    }
    assert exports.operation_export("litert", "Add", ("complex64",)) is None
    verdict = _verdict("keras_ops.keras", "onnx")
    assert verdict.failing == ()
    assert "the operation Add in float32" in [one.name for one in verdict.exports]


def test_activations_fail_in_the_layers_that_have_them(tmp_path: Path) -> None:
    """ONNX lacks the op of the exact gelu, which layers name; relu has it."""
    exact, relu = (
        export_verdict(_one_layer(tmp_path, activation), "onnx") for activation in ("gelu", "relu")
    )
    assert [one.export.message for one in exact.failing if one.export] == [
        "activation gelu: it needs TensorFlow's op Erfc"
    ]
    assert relu.failing == ()


def _one_layer(folder: Path, activation: str) -> LoadedModel:
    """Return a Sequential model of one Dense layer, written as Keras 3.15 does."""
    config = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {
            "name": "net",
            "layers": [
                {
                    "module": "keras.layers",
                    "class_name": "Dense",
                    "config": {"name": "dense", "units": 2, "activation": activation},
                    "build_config": {"input_shape": [None, 3]},
                }
            ],
        },
    }
    path = folder / f"{activation}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return reading.load_model(format_detection.document(path, str(path)))


def test_onnx_makes_a_constant_tensor_an_input() -> None:
    """The exported file asks for the values of ``ops.ones``, which the model has."""
    for exporter, fails in (("onnx", "run"), ("tf_saved_model", None)):
        outcome = exports.operation_export(exporter, "Subtract", ("float32",), has_constants=True)
        assert outcome is not None
        assert outcome.fails == fails


def test_a_model_that_keras_3_fails_to_load_has_no_verdicts() -> None:
    """The other rules of loading report it."""
    path = FIXTURES / "tf2.15/rnn.h5"
    loaded = reading.load_model(format_detection.document(path, str(path)))
    assert export_verdicts(loaded) == ()
    rules = {finding.rule for finding in policytool.audit(path, target="onnx").findings}
    assert "PT501" in rules
    assert "PT508" not in rules


def test_exporters_are_targets_of_audit_only() -> None:
    """Migrate writes no exports, and says how to do it."""
    assert conversion_target("onnx") == "keras3"
    assert loaders_of(["onnx"]) == loaders_of(["keras3"])
    with pytest.raises(UsageError, match=r'model\.export\(PATH, format="onnx"\)'):
        policytool.migrate(KERAS3 / "default_float32.keras", target="onnx")


def test_audit_prints_the_policy_that_can_be_exported() -> None:
    """The command of the finding is checked with the same rule, and the exit code is 1."""
    path = KERAS3 / "global_mixed_bfloat16.keras"
    audited = policytool.audit(path, target="onnx")
    assert [finding.rule for finding in audited.findings] == ["PT508"]
    assert audited.commands[0].arguments == ("--to", "float32")
    ended = run("audit", path, "--target", "onnx")
    assert ended.code == 1
    assert "migrate" in ended.out
    assert run("audit", KERAS3 / "default_float32.keras", "--target", "onnx").code == 0


def test_layers_with_their_own_policies_are_set_one_by_one() -> None:
    """``--to`` does not change exceptions; quantized layers have no fix."""
    (command,) = policytool.audit(KERAS3 / "per_layer.keras", target="litert").commands
    assert command.arguments is not None
    assert "--set" in command.arguments
    assert ".*=float32" in command.arguments
    (command,) = policytool.audit(KERAS3 / "int8.keras", target="litert").commands
    assert command.arguments is None


def test_inspect_shows_the_exports() -> None:
    """One line says to which formats Keras exports the model, and the dtypes of weights in them."""
    out = run("inspect", KERAS3 / "default_float32.keras").out
    assert "exports  ONNX, LiteRT, OpenVINO, SavedModel with float32 weights" in out
    assert "exports" not in run("inspect", FIXTURES / "tf2.15/rnn.h5").out
