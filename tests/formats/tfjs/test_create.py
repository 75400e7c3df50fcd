"""Layers models for TensorFlow.js, created from other models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import policytool
from policytool.commands.migrate import Status
from policytool.formats import tfjs
from policytool.support.errors import ModelFileError, UsageError
from tests.conftest import run
from tests.helpers.paths import FIXTURES

SOURCE = FIXTURES / "keras3.15/nested_models.keras"


def stored(directory: Path) -> dict[str, np.ndarray]:
    """Return the values of a layers model by name, as TensorFlow.js reads them."""
    model = json.loads((directory / "model.json").read_text(encoding="utf-8"))
    (group,) = model["weightsManifest"]
    data = b"".join((directory / name).read_bytes() for name in group["paths"])
    values, start = {}, 0
    for entry in group["weights"]:
        count = int(np.prod(entry["shape"]))
        array = np.frombuffer(data, "float32", count, start).reshape(entry["shape"])
        values[entry["name"]], start = array, start + 4 * count
    assert start == len(data)
    return values


def test_weights_have_the_names_that_tensorflow_js_looks_up(tmp_path: Path) -> None:
    """Nested models add no prefix, and the config is a Keras 2 config."""
    done = policytool.migrate(SOURCE, target="tfjs", output=tmp_path / "web")
    assert done.status is Status.WRITTEN
    assert sorted(path.name for path in (tmp_path / "web").iterdir()) == [
        "group1-shard1of1.bin",
        "model.json",
    ]
    assert sorted(stored(tmp_path / "web")) == [
        f"{name}/{variable}"
        for name in ("block_a", "head_a", "tail_a", "tail_b")
        for variable in ("bias", "kernel")
    ]
    text = (tmp_path / "web/model.json").read_text(encoding="utf-8")
    assert "batch_input_shape" in text
    assert "mixed_float16" not in text
    assert not policytool.audit(tmp_path / "web/model.json").findings


def test_long_values_are_in_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policytool.migrate(SOURCE, target="tfjs", output=tmp_path / "whole")
    monkeypatch.setattr(tfjs, "_SHARD_BYTES", 50)
    policytool.migrate(SOURCE, target="tfjs", output=tmp_path / "split")
    sizes = [path.stat().st_size for path in sorted((tmp_path / "split").glob("*.bin"))]
    assert sizes == [50, 50, 50, 50, 50, 50, 32]
    whole, split = stored(tmp_path / "whole"), stored(tmp_path / "split")
    assert whole.keys() == split.keys()
    assert all(np.array_equal(whole[name], split[name]) for name in whole)


def test_the_output_is_named_after_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.keras").write_bytes(SOURCE.read_bytes())
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run("migrate", "model.keras", "--target", "tfjs").code == 0
    assert run("migrate", "model.keras", "--target", "tfjs", "-o", "out").code == 0
    assert (tmp_path / "model.tfjs/model.json").is_file()
    assert (tmp_path / "out/model.tfjs/model.json").is_file()
    assert run("migrate", "model.keras", "--target", "tfjs").code != 0
    assert run("migrate", "model.keras", "--target", "tfjs", "--existing=replace").code == 0


def test_files_are_never_replaced_by_a_model_for_tensorflow_js(tmp_path: Path) -> None:
    """
    A conversion to TensorFlow.js never replaces a file, neither in place nor by the output name.
    """
    source = FIXTURES / "tfjs4.22/from_keras3.15/model.json"
    with pytest.raises(UsageError, match="specify the output with -o"):
        policytool.migrate(source, target="tfjs", in_place=True)
    with pytest.raises(UsageError, match="specify -o DIRECTORY"):
        policytool.migrate(source, target="tfjs", output=tmp_path / "model.json")


def test_classes_that_tensorflow_js_lacks_are_reported(tmp_path: Path) -> None:
    for name, reason in (
        ("keras3.15/mha.keras", "TensorFlow.js has no layer MultiHeadAttention"),
        ("tf2.15/shared_layer.h5", "common/kernel"),
        ("keras3.15/custom_layer.keras", "Pair"),
    ):
        done = policytool.migrate(FIXTURES / name, target="tfjs", output=tmp_path / "web")
        assert done.status is Status.BLOCKED
        assert reason in done.plan.refusals[0].message
        assert done.plan.refusals[0].path
    assert not (tmp_path / "web").exists()


def test_architectures_have_no_weights_to_write(tmp_path: Path) -> None:
    """An architecture is an error, because TensorFlow.js loads no model without weights."""
    done = policytool.migrate(
        FIXTURES / "keras3.15/default_float32.json", target="tfjs", output=tmp_path / "web"
    )
    assert done.status is Status.BLOCKED
    assert "no weights" in done.plan.refusals[0].message


def test_predictions_are_not_compared(tmp_path: Path) -> None:
    """Predictions are not compared, because Keras cannot run models of TensorFlow.js."""
    with pytest.raises(ModelFileError, match="Keras cannot run"):
        policytool.migrate(
            FIXTURES / "tfjs4.22/default_float32/model.json",
            target="keras3",
            output=tmp_path / "model.keras",
            verify=True,
        )


def test_options_for_policies_are_usage_errors_for_tensorflow_js(tmp_path: Path) -> None:
    """``--to`` and ``--set`` are usage errors for TensorFlow.js, which computes in float32."""
    for options in ({"to": "mixed_float16"}, {"set": {"mlp/head": "float16"}}):
        with pytest.raises(UsageError, match="computes in float32"):
            policytool.migrate(SOURCE, target="tfjs", output=tmp_path / "web", **options)


def test_the_reason_why_predictions_are_not_compared_is_true(tmp_path: Path) -> None:
    """
    The message for a TensorFlow.js model does not suggest installing TensorFlow, which could not
    run it.
    """
    source = FIXTURES / "tfjs4.22/default_float32/model.json"
    ended = run("migrate", source, "--target", "keras3", "-o", tmp_path / "model.keras")
    assert "not verified: Keras cannot run TensorFlow.js models" in " ".join(ended.out.split())


@pytest.mark.parametrize("target", ["keras3", "keras3.0", "tf_keras", "tf2.3", "tf1.15"])
@pytest.mark.parametrize("name", ["sequential", "from_keras3.0"])
def test_a_layers_model_becomes_a_keras_file(tmp_path: Path, name: str, target: str) -> None:
    """No release of Keras reads it, even if the release supports its config."""
    source = FIXTURES / "tfjs4.22" / name / "model.json"
    result = policytool.migrate(source, target=target, output=tmp_path, verify=False, to="float32")
    assert result.status is Status.WRITTEN, result.plan.refusals
    assert result.output is not None
    assert Path(result.output).suffix == (".keras" if target.startswith("keras") else ".h5")
    assert policytool.inspect(result.output).format in {"keras", "h5"}


def test_quantized_weights_name_the_converter(tmp_path: Path) -> None:
    """A conversion of quantized weights is an error with the program that converts them."""
    source = FIXTURES / "tfjs4.22/quantized_uint8/model.json"
    result = policytool.migrate(source, target="keras3", output=tmp_path, verify=False)
    (refusal,) = result.plan.refusals
    assert "quantized weights" in refusal.message
    assert "tensorflowjs_converter" in refusal.message
