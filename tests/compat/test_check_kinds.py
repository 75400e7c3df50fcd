"""
``check`` on models of every kind, written by both Kerases: what is measured of each, under which
names, and what is refused.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import pytest

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.reports import View
from policytool.reports.checks import CHECK_REPORTERS, Checks
from policytool.reports.checks._page import caveats
from policytool.support.errors import ModelFileError
from tests.contracts.reporter_contract import rendered_by
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.numerics.check_results.checks import Check, CheckRun

    Checked = Callable[..., Check]

pytestmark = pytest.mark.compat

HERE: Final = str(Path(__file__).parent)
LIBRARIES: Final = ("tf_keras", "keras")
CLASSES: Final = {"tf_keras": "check_classes:TF_KERAS", "keras": "check_classes:KERAS"}
EVERY_FORMAT: Final = ("tf_keras/{}.h5", "tf_keras/{}.keras", "keras/{}.keras")
PLAIN: Final = ("clean", "nested", "stateful", "masked", "several", "float-ids")
OWN: Final = ("custom", "subclassed", "traced")
"""Kinds whose classes are those of ``check_classes.py``."""


@pytest.fixture(scope="module")
def checked(models: Path, tools: TensorFlowTools) -> Checked:
    """Return a function that checks one of the models."""

    def check(
        name: str,
        to: str | None = None,
        *,
        classes: bool = False,
        trust: bool = False,
        **wanted: Any,
    ) -> Check:
        (result,) = discovery.inputs([str(models / name)])
        allowed = TensorFlowTools(
            worker=tools.worker,
            custom_objects=(CLASSES[name.partition("/")[0]],) if classes else (),
            path=(HERE,),
            trust=trust,
        )
        return checks.check(
            result, None, CheckOptions(candidate=Options(to=to), isolated=True, **wanted), allowed
        )

    return check


def the_run(check: Check) -> CheckRun:
    """Return the one run of a check."""
    (result,) = check.runs
    return result


def places(check: Check) -> list[str]:
    """Return the calls that were measured, the model's own name apart, in order."""
    return [call.place.partition("/")[2] for call in the_run(check).calls if "/" in call.path]


@pytest.mark.parametrize("to", [None, "mixed_bfloat16"])
@pytest.mark.parametrize("file", EVERY_FORMAT)
@pytest.mark.parametrize("kind", PLAIN)
def test_models_without_fault_pass(checked: Checked, kind: str, file: str, to: str | None) -> None:
    """
    Models pass as they were saved, under mixed_float16, and under another policy: each call has a
    counterpart, and each output is measured.
    """
    result = checked(file.format(kind), to)
    run = the_run(result)
    assert result.holds, run.verdict.missed
    assert not run.unmatched
    assert {note.code for note in result.notes} <= {"every-layer"}
    assert all(
        output.accumulated is not None and output.accumulated.overflow == 0
        for output in run.outputs
    )
    assert (
        len(
            [
                call
                for call in run.calls
                if any(output.isolated is not None for output in call.outputs)
            ]
        )
        >= len(run.calls) // 2
    )


@pytest.mark.parametrize("to", [None, "mixed_bfloat16"])
def test_savedmodel_of_keras_passes(checked: Checked, to: str | None) -> None:
    """
    The SavedModel is rebuilt from its metadata on both sides, with the results of the file of the
    same model.
    """
    saved, plain = checked("tf_keras/clean", to), checked("tf_keras/clean.h5", to)
    assert saved.holds
    assert {note.code for note in saved.notes} <= {"every-layer"}
    assert places(saved) == places(plain)
    assert [call.outputs for call in the_run(saved).calls] == [
        call.outputs for call in the_run(plain).calls
    ]


@pytest.mark.parametrize("file", EVERY_FORMAT)
def test_every_call_of_shared_layers_is_measured(checked: Checked, file: str) -> None:
    """A model that is called twice, and a layer that is called three times."""
    result = places(checked(file.format("nested")))
    assert sorted(place for place in result if "common" in place) == [
        "common",
        "common (call 2)",
        "common (call 3)",
    ]
    assert {"inner", "inner (call 2)", "inner/own", "inner/own (call 2)", "sum", "scores"} <= set(
        result
    )


@pytest.mark.parametrize("file", EVERY_FORMAT)
def test_stateful_layer_is_measured_once(checked: Checked, file: str) -> None:
    """The layer is measured only in the call of the model, so its state is unchanged."""
    run = the_run(checked(file.format("stateful"), batches=3))
    (memory,) = (call for call in run.calls if call.path.endswith("/memory"))
    assert all(
        output.isolated is None and output.accumulated is not None for output in memory.outputs
    )
    assert run.inputs.batch_size == 2
    assert run.verdict.passed


@pytest.mark.parametrize("file", EVERY_FORMAT)
def test_inputs_and_outputs_are_named_in_model_order(checked: Checked, file: str) -> None:
    run = the_run(checked(file.format("several")))
    assert [input_value.name for input_value in run.inputs.inputs] == ["image", "numbers"]
    assert [output.name for output in run.outputs] == ["classes", "amount"]


@pytest.mark.parametrize("file", EVERY_FORMAT)
def test_lambda_needs_trust(checked: Checked, file: str) -> None:
    with pytest.raises(ModelFileError, match="--trust") as refused:
        checked(file.format("lambda"))
    assert refused.value.code == "runs-code"
    result = checked(file.format("lambda"), trust=True)
    assert result.holds
    assert places(result)[-2:] == ["twice", "scores"]


@pytest.mark.parametrize("to", [None, "mixed_bfloat16"])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", OWN)
def test_custom_classes_need_custom_objects(
    checked: Checked, library: str, kind: str, to: str | None
) -> None:
    """
    With their classes, the layers in custom classes are measured, also behind a ``tf.function``.
    """
    file = f"{library}/{kind}.keras"
    if kind == "custom":
        with pytest.raises(ModelFileError, match="--custom-objects") as refused:
            checked(file, to)
        assert refused.value.code == "runs-code"
    if kind != "custom" and to is None:
        pytest.skip("the class makes its layers itself, under the policy of whoever loads it")
    result = checked(file, to, classes=True)
    assert result.holds, the_run(result).verdict.missed
    assert not the_run(result).unmatched
    inner = (
        {"block/inner", "block/scale"} if kind == "custom" else {"hidden_0", "hidden_1", "scores"}
    )
    assert inner <= set(places(result))
    computed = {
        call.compute_candidate
        for call in the_run(result).calls
        if call.place.partition("/")[2] in inner
    }
    assert computed <= {"bfloat16", "float32"} if to else {"float16", "float32"}


@pytest.mark.parametrize("kind", ["custom", "subclassed"])
def test_savedmodel_with_missing_classes_runs_as_a_graph(checked: Checked, kind: str) -> None:
    """A note reports the reason. With its classes, the model is rebuilt."""
    result = checked(f"tf_keras/{kind}", "mixed_bfloat16")
    assert [note.code for note in result.notes][:1] == ["graph"]
    assert all(run.signature is not None and run.rewrite is not None for run in result.runs)
    anew = checked(f"tf_keras/{kind}", "mixed_bfloat16", classes=True)
    assert {note.code for note in anew.notes} <= {"every-layer"}
    assert the_run(anew).signature is None


@pytest.mark.parametrize(
    "file",
    ["tf_keras/module", "keras/export", str(FIXTURES / "tf1.15/global_mixed_float16.export")],
)
def test_a_saved_model_without_keras_is_a_graph(checked: Checked, file: str) -> None:
    """
    Each signature is one run, against TensorFlow's own rewrite of it; also of an export of TF 1,
    which has the architecture as an asset.
    """
    result = checked(file, "mixed_bfloat16")
    assert {run.signature for run in result.runs} >= {"serving_default"}
    assert all(run.rewrite is not None for run in result.runs)
    assert result.holds


@pytest.mark.parametrize("to", ["mixed_bfloat16", "mixed_float16"])
def test_quantized_model_runs_only_over_bfloat16(checked: Checked, to: str) -> None:
    """Keras 3 has no quantized policy over float16, which is an error."""
    if to == "mixed_float16":
        with pytest.raises(ModelFileError, match="float16"):
            checked("keras/int8.keras", to)
    else:
        assert checked("keras/int8.keras", to).holds


@pytest.mark.parametrize(
    ("mode", "least", "most"), [("int8", 1e-3, 0.05), ("int4", 0.0, 0.0), ("float8", 0.01, 0.2)]
)
def test_quantized_model_is_compared_with_floats(
    checked: Checked, mode: str, least: float, most: float
) -> None:
    """
    The reference has the weights of the file without rounding. The int4 layers of Keras 3.15
    quantize only weights, so the report says that the run shows nothing.
    """
    result = checked(f"keras/{mode}.keras")
    error = output_error(result)
    assert result.holds
    assert result.reference.dequantized == (mode,)
    assert set(result.reference.policies) == {"float32"}
    assert any(mode in policy for policy in result.candidate.policies)
    assert least <= error <= most
    assert result.is_same_model == (mode == "int4")
    text = "; ".join(caveats(result))
    assert ("policytool check ORIGINAL" in text) == (mode != "float8")
    assert ("does not test the quantization" in text) == result.is_same_model


@pytest.mark.parametrize(
    ("mode", "least", "most"),
    [("int8", 2.0**-9, 0.1), ("int4", 2.0**-5, 0.6), ("float8", 2.0**-7, 0.5)],
)
def test_a_quantised_file_is_compared_with_the_original(
    models: Path, tools: TensorFlowTools, mode: str, least: float, most: float
) -> None:
    """
    Each layer is off by the rounding of its weights and inputs, and its tolerance is derived from
    the step; other layers are not off at all.
    """
    comparison = compared(models, tools, "original", mode)
    assert comparison.holds, the_run(comparison).verdict.missed
    assert not comparison.reference.dequantized
    tolerances = {judgement.path: judgement for judgement in the_run(comparison).verdict.judgements}
    for name in ("hidden", "scores"):
        judged = next(one for path, one in tolerances.items() if path.endswith(name))
        assert judged.error is not None
        assert judged.tolerance is not None
        assert least < judged.error < judged.tolerance < most
    norm = next(one for path, one in tolerances.items() if path.endswith("norm"))
    assert norm.error == 0


def test_a_quantised_layer_with_other_weights_is_marked(
    models: Path, tools: TensorFlowTools
) -> None:
    """
    A scale that is too large by a third is no rounding to 8 bits, although the layer that follows
    makes the outputs the same.
    """
    with zipfile.ZipFile(models / "keras" / "int8.keras") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with h5py.File(io.BytesIO(parts["model.weights.h5"]), "r") as file:
        paths: list[str] = []
        file.visit(paths.append)
        hidden = next(path for path in paths if "einsum_dense" in path and path.endswith("vars/1"))
    held = io.BytesIO(parts["model.weights.h5"])
    with h5py.File(held, "r+") as file:
        file[hidden][...] = file[hidden][...] / 1.33
    parts["model.weights.h5"] = held.getvalue()
    with zipfile.ZipFile(models / "keras" / "broken.keras", "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    comparison = compared(models, tools, "original", "broken")
    (judged,) = (
        judgement
        for judgement in the_run(comparison).verdict.judgements
        if judgement.path.endswith("hidden")
    )
    assert judged.is_missed
    assert comparison.holds


def compared(models: Path, tools: TensorFlowTools, first: str, second: str, **wanted: Any) -> Check:
    """Return the check of two models of Keras 3."""
    (one,) = discovery.inputs([str(models / f"keras/{first}.keras")])
    (other,) = discovery.inputs([str(models / f"keras/{second}.keras")])
    return checks.check(one, other, CheckOptions(isolated=True, **wanted), tools)


def output_error(found: Check) -> float:
    """Return the relative error of the one output."""
    (output,) = the_run(found).outputs
    assert output.accumulated is not None
    assert output.accumulated.relative is not None
    return output.accumulated.relative


@pytest.mark.parametrize("file", ["tf_keras/clean.h5", "keras/clean.keras"])
def test_the_backend_is_named(checked: Checked, file: str) -> None:
    """The backends of both models are reported, for each library."""
    result = checked(file)
    assert (result.reference.backend, result.candidate.backend) == ("tensorflow", "tensorflow")
    assert "backend" not in "; ".join(caveats(result))


def test_a_model_of_another_backend(checked: Checked, models: Path) -> None:
    """HDF5 files say which backend wrote them."""
    shutil.copy(models / "keras" / "clean-float32.h5", models / "keras" / "clean-jax.h5")
    with h5py.File(models / "keras" / "clean-jax.h5", "r+") as file:
        file.attrs["backend"] = "jax"
    result = checked("keras/clean-jax.h5", "mixed_bfloat16")
    assert result.candidate.written_with == "jax"
    (caveat,) = [text for text in caveats(result) if "jax" in text]
    assert caveat == (
        f"{result.candidate.path} was written with the jax backend and ran with the tensorflow "
        "backend, whose kernels may round differently"
    )
    plain = checked("keras/clean-float32.h5", "mixed_bfloat16")
    assert not [text for text in caveats(plain) if "backend" in text]


def test_an_export_runs_each_graph_once(checked: Checked) -> None:
    """Keras 3 exports the same graph as ``serve`` and as ``serving_default``."""
    run = the_run(checked("keras/export", "mixed_bfloat16"))
    assert (run.signature, run.aliases) == ("serving_default", ("serve",))


def test_report_on_a_graph_lists_the_ops_in_float32(checked: Checked) -> None:
    """The report names the list of TensorFlow that keeps each op in float32."""
    result = checked("keras/export", "mixed_float16")
    rewrite = the_run(result).rewrite
    assert rewrite is not None
    kept = {kept_entry.scope.rpartition("/")[2]: kept_entry for kept_entry in rewrite.kept}
    assert kept["average_1"].is_whole
    assert kept["average_1"].ops == {"Mean": 1}
    assert not any(scope.startswith("conv") for scope in kept)
    text = rendered_by(CHECK_REPORTERS, "table", Checks(check=result), View(width=300))
    assert "average_1 (Mean is on TensorFlow's deny list)" in text
