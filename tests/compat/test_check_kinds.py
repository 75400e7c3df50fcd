"""
``check`` on models of every kind, written by both Kerases: what is measured of each, under which
names, and what is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.commands import check as checks
from policytool.commands.check import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.support.errors import ModelFileError

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
        (found,) = discovery.inputs([str(models / name)])
        allowed = TensorFlowTools(
            worker=tools.worker,
            custom_objects=(CLASSES[name.partition("/")[0]],) if classes else (),
            path=(HERE,),
            trust=trust,
        )
        return checks.check(found, None, CheckOptions(candidate=Options(to=to), **wanted), allowed)

    return check


def the_run(check: Check) -> CheckRun:
    """Return the one run of a check."""
    (found,) = check.runs
    return found


def places(check: Check) -> list[str]:
    """Return the calls that were measured, the model's own name apart, in order."""
    return [call.place.partition("/")[2] for call in the_run(check).calls if "/" in call.path]


@pytest.mark.parametrize("to", [None, "mixed_bfloat16"])
@pytest.mark.parametrize("file", EVERY_FORMAT)
@pytest.mark.parametrize("kind", PLAIN)
def test_models_without_fault_pass(checked: Checked, kind: str, file: str, to: str | None) -> None:
    """
    As they were saved, under mixed_float16, and under another policy: every call has its
    counterpart and every output is measured.
    """
    found = checked(file.format(kind), to)
    run = the_run(found)
    assert found.passed, run.verdict.missed
    assert not run.unmatched
    assert not found.notes
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
def test_a_saved_model_of_keras_passes(checked: Checked, to: str | None) -> None:
    """
    It is built anew from its metadata on both sides, and measures what the file of the same model
    does.
    """
    saved, plain = checked("tf_keras/clean", to), checked("tf_keras/clean.h5", to)
    assert saved.passed
    assert not saved.notes
    assert places(saved) == places(plain)
    assert [call.outputs for call in the_run(saved).calls] == [
        call.outputs for call in the_run(plain).calls
    ]


@pytest.mark.parametrize("file", EVERY_FORMAT)
def test_every_call_of_shared_layers_is_measured(checked: Checked, file: str) -> None:
    """A model that is called twice, and a layer that is called three times."""
    found = places(checked(file.format("nested")))
    assert sorted(place for place in found if "common" in place) == [
        "common",
        "common (call 2)",
        "common (call 3)",
    ]
    assert {"inner", "inner (call 2)", "inner/own", "inner/own (call 2)", "sum", "scores"} <= set(
        found
    )


@pytest.mark.parametrize("file", EVERY_FORMAT)
def test_a_state_is_not_disturbed(checked: Checked, file: str) -> None:
    """A layer with a state of its own is measured where the model calls it, once."""
    run = the_run(checked(file.format("stateful"), batches=3))
    (memory,) = (call for call in run.calls if call.path.endswith("/memory"))
    assert all(
        output.isolated is None and output.accumulated is not None for output in memory.outputs
    )
    assert run.inputs.batch_size == 2
    assert run.verdict.passed


@pytest.mark.parametrize("file", EVERY_FORMAT)
def test_inputs_and_outputs_have_their_names(checked: Checked, file: str) -> None:
    """Two of each, in the order of the model."""
    run = the_run(checked(file.format("several")))
    assert [one.name for one in run.inputs.inputs] == ["image", "numbers"]
    assert [one.name for one in run.outputs] == ["classes", "amount"]


@pytest.mark.parametrize("file", EVERY_FORMAT)
def test_a_lambda_needs_trust(checked: Checked, file: str) -> None:
    """Without it nothing of the file is run; with it the Lambda is a layer like others."""
    with pytest.raises(ModelFileError, match="--trust") as refused:
        checked(file.format("lambda"))
    assert refused.value.code == "runs-code"
    found = checked(file.format("lambda"), trust=True)
    assert found.passed
    assert places(found)[-2:] == ["twice", "scores"]


@pytest.mark.parametrize("to", [None, "mixed_bfloat16"])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", OWN)
def test_classes_of_somebody_s_own(
    checked: Checked, library: str, kind: str, to: str | None
) -> None:
    """
    Refused by name without their classes; with them the layers that they hold are measured, behind
    a tf.function too.
    """
    file = f"{library}/{kind}.keras"
    if kind == "custom":
        with pytest.raises(ModelFileError, match="--custom-objects") as refused:
            checked(file, to)
        assert refused.value.code == "runs-code"
    if kind != "custom" and to is None:
        pytest.skip("the class makes its layers itself, under the policy of whoever loads it")
    found = checked(file, to, classes=True)
    assert found.passed, the_run(found).verdict.missed
    assert not the_run(found).unmatched
    inner = (
        {"block/inner", "block/scale"} if kind == "custom" else {"hidden_0", "hidden_1", "scores"}
    )
    assert inner <= set(places(found))
    computed = {
        call.compute_candidate
        for call in the_run(found).calls
        if call.place.partition("/")[2] in inner
    }
    assert computed <= {"bfloat16", "float32"} if to else {"float16", "float32"}


@pytest.mark.parametrize("kind", ["custom", "subclassed"])
def test_a_saved_model_whose_classes_are_missing_runs_as_a_graph(
    checked: Checked, kind: str
) -> None:
    """With a note that says why; with the classes it is built anew."""
    found = checked(f"tf_keras/{kind}", "mixed_bfloat16")
    assert [note.code for note in found.notes][:1] == ["graph"]
    assert all(run.signature is not None and run.rewrite is not None for run in found.runs)
    anew = checked(f"tf_keras/{kind}", "mixed_bfloat16", classes=True)
    assert not anew.notes
    assert the_run(anew).signature is None


@pytest.mark.parametrize("file", ["tf_keras/module", "keras/export"])
def test_a_saved_model_without_keras_is_a_graph(checked: Checked, file: str) -> None:
    """Each signature is one run, against TensorFlow's own rewrite of it."""
    found = checked(file, "mixed_bfloat16")
    assert {run.signature for run in found.runs} >= {"serving_default"}
    assert all(run.rewrite is not None for run in found.runs)
    assert found.passed


@pytest.mark.parametrize("to", ["mixed_bfloat16", "mixed_float16"])
def test_a_quantised_model(checked: Checked, to: str) -> None:
    """Keras 3 has no quantised policy over float16, which is said; over bfloat16 it runs."""
    if to == "mixed_float16":
        with pytest.raises(ModelFileError, match="float16"):
            checked("keras/int8.keras", to)
    else:
        assert checked("keras/int8.keras", to).passed
