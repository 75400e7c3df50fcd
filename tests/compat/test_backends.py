"""
``check``, ``tune`` and ``migrate --verify`` without TensorFlow: the errors are those of plain Keras
on the same backend, and findings name the layer.

The environments are those in ``POLICYTOOL_JAX`` and ``POLICYTOOL_TORCH``. A backend without one is
skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zipfile
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

import policytool
from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics.check_results.verdicts import Answer
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter, Worker
from policytool.releases.releases import BACKENDS
from policytool.support.errors import PolicytoolError
from tests.architectures import compare as architectures
from tests.compat.asking import run_script
from tests.helpers.planted_failures import HARMLESS, WEAK
from tests.helpers.sampling import sampled
from tests.trained import backends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from policytool.numerics.check_results.checks import Check

    Checked = Callable[..., Check]
    Config = dict[str, Any]

PYTHONS: Final = {name: os.environ.get(f"POLICYTOOL_{name.upper()}") for name in ("jax", "torch")}
"""Read before the tests: their own environment has no variable of policytool's."""

POLICIES: Final = ("mixed_float16", "mixed_bfloat16")

EXACT: Final = 1e-6
NARROW: Final = 1e-3
"""Errors of the products of values in 16 bits."""

PLANTED: Final = (
    *sampled("planted failures of backends", WEAK, share=8),
    *sampled("harmless models of backends", HARMLESS, share=8),
)

NAMED: Final = {
    "jax": ("jax.numpy", "save"),
    "torch": ("torch", "load"),
}
"""A function of each backend that reads or writes files."""

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("backends")]


class Divided(Worker):
    """A child that divides the CPU into two devices."""

    def run(self, job: Mapping[str, Any], *, side: str = "") -> Mapping[str, Any]:
        """Return the result of a job."""
        return super().run({**job, "logical": 2}, side=side)


@pytest.fixture(scope="module", params=PYTHONS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return a backend with an environment."""
    name: str = request.param
    if not PYTHONS[name]:
        pytest.skip(f"no environment with {name}")
    return name


@pytest.fixture(scope="module")
def folder(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with the models that the backend wrote."""
    directory = tmp_path_factory.mktemp(backend)
    arguments = (str(PYTHONS[backend]), "-m", "tests.compat.backend_models", directory)
    run_script(*arguments, environment={"KERAS_BACKEND": backend})
    return directory


@pytest.fixture(scope="module")
def checked(backend: str, folder: Path) -> Iterator[Checked]:
    """Return a function that checks a model on the backend."""
    interpreter = Interpreter(python=str(PYTHONS[backend]), timeout=300)
    with Worker(interpreter) as worker:

        def check(name: str, policy: str | None, **options: Any) -> Check:
            (model,) = discovery.inputs([str(folder / f"{name}.keras")])
            request = CheckOptions(candidate=Options(to=policy), **options)
            return checks.check(model, None, request, TensorFlowTools(worker=worker))

        yield check


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["dense", "image", "sequence"])
def test_errors_are_those_of_plain_keras(
    checked: Checked, folder: Path, backend: str, name: str, policy: str
) -> None:
    """Each reduction has a depth, so that rounding explains the errors of all layers."""
    result = checked(name, policy, inputs=folder / f"{name}.npy", isolated=True)
    (run,) = result.runs
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))[name][policy]
    error = run.outputs[0].accumulated
    assert error is not None
    assert error.relative == pytest.approx(truth, rel=0.01)
    assert result.candidate.backend == backend
    assert set(result.versions) == {backend, "keras"}
    assert run.is_within_rounding
    assert run.is_isolated


@pytest.mark.parametrize(
    ("name", "depths"),
    [
        ("image", {"stem": 27, "depth": 9, "norm": 0, "sum": 0, "pool": 144, "out": 8}),
        # Each of the 10 steps of the LSTM and of the GRU multiplies its input and its state.
        ("sequence", {"attention": 56, "lstm": 10 * (8 + 6), "gru": 10 * (6 + 6), "out": 6}),
    ],
)
def test_depths_are_those_of_the_shapes(
    checked: Checked, folder: Path, name: str, depths: dict[str, int]
) -> None:
    (run,) = checked(name, POLICIES[1], inputs=folder / f"{name}.npy", isolated=True).runs
    measured = {str(call.path).partition("/")[2]: call.depth for call in run.calls}
    assert depths.items() <= measured.items()


def test_overflow_names_its_layer(checked: Checked, folder: Path) -> None:
    """The advice keeps the layer in float32."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))["overflow"]
    assert truth["mixed_float16"] == -1
    result = checked("overflow", "mixed_float16", inputs=folder / "overflow.npy")
    (run,) = result.runs
    assert result.answer is Answer.NOT_SAFE
    assert run.origin is not None
    assert run.origin.path is not None
    assert run.origin.path.endswith("/large")


def test_larger_inputs_overflow(checked: Checked) -> None:
    """The probe of synthetic inputs finds a factor."""
    (run,) = checked("dense", "mixed_float16").runs
    assert run.overflow_probe is not None
    assert run.overflow_probe.factor is not None


def test_a_run_is_equal_to_its_recording(checked: Checked, folder: Path, tmp_path: Path) -> None:
    """Another policy differs from it."""
    file = tmp_path / "run.h5"
    checked("image", None, inputs=folder / "image.npy", record=file, record_all=True)
    assert checked("image", None, against=file).is_equal
    result = checked("image", "mixed_bfloat16", against=file)
    assert not result.is_equal
    assert any("stem" in note.message for note in result.notes)


def test_answers_on_planted_failures_are_those_of_plain_keras(backend: str, tmp_path: Path) -> None:
    """
    The origin is the planted layer, except in the recorded models for which a backend has another:
    torch sums values of pooling in float32, and in JAX the layer before a sum has a larger error.
    """
    origins = json.loads(backends.RECORD.read_text(encoding="utf-8"))[backend]["origins"]
    python = str(PYTHONS[backend])
    pairs = list(backends.planted(tmp_path, python, backend, 1, *PLANTED))
    backends.predict(pairs, python, backend)
    with Worker(Interpreter(python=python, timeout=300, backend=backend)) as worker:
        for pair in pairs:
            result = backends.compare(pair, worker)
            assert (result["harmful"], result["answer"]) not in backends.WRONG, result
            assert result["origin"] is not False or not origins[result["name"]], result


def test_tuned_models_predict_as_before_in_plain_keras(
    backend: str, folder: Path, tmp_path: Path
) -> None:
    """The layer that overflows stays in float32. Without TensorFlow, nothing else is needed."""
    source, output = folder / "overflow.keras", tmp_path / "tuned.keras"
    result = policytool.tune(
        source,
        to="mixed_float16",
        inputs=folder / "overflow.npy",
        output=output,
        python=PYTHONS[backend],
        backend=backend,  # type: ignore[arg-type]  # any name
    )
    assert any(path.endswith("/large") for path in result.kept)
    assert len(result.kept) < len(result.layers)
    np.savez(tmp_path / "inputs.npz", x=np.load(folder / "overflow.npy"))
    sides = {"reference": str(source), "candidate": str(output)}
    (tmp_path / "jobs.json").write_text(json.dumps(sides), encoding="utf-8")
    program = (str(PYTHONS[backend]), "-m", "tests.trained.predictions", "keras", tmp_path)
    run_script(*program, environment={"KERAS_BACKEND": backend})
    before, after = (np.load(tmp_path / f"{side}.npz")["out"] for side in sides)
    assert np.linalg.norm(after - before) < 0.01 * np.linalg.norm(before)


@pytest.mark.parametrize("target", ["mixed_bfloat16", "keras3.3"])
def test_migrate_verifies_predictions(
    backend: str, folder: Path, tmp_path: Path, target: str
) -> None:
    """A policy changes them as plain Keras does, and another release of Keras 3 does not."""
    option = "to" if target in POLICIES else "target"
    options: dict[str, Any] = {option: target, "backend": backend, "verify": True}
    output = tmp_path / "migrated.keras"
    result = policytool.migrate(
        folder / "dense.keras", output=output, python=PYTHONS[backend], **options
    )
    assert result.is_verified
    assert output.exists()
    (report,) = result.to_dict()["plans"]
    (release,) = report["verified"]["releases"]
    assert re.fullmatch(rf"Keras [\d.]+ on {BACKENDS[backend]}", release)
    (call,) = report["verification"]["calls"]
    assert [compared["equal"] for compared in call["outputs"]] == [option == "target"]


def test_gradients_are_those_of_plain_keras(backend: str) -> None:
    """
    Gradients of a training step and of outputs, and the dtype of a gradient is that of its layer.
    The effect of TF32 can be measured, too.
    """
    program = (str(PYTHONS[backend]), "-m", "tests.compat.backend_gradients")
    printed = run_script(*program, environment={"KERAS_BACKEND": backend})
    for name, result in json.loads(printed.splitlines()[-1]).items():
        model, policy = name.split()
        narrow = policy.removeprefix("mixed_")
        assert result["step"] < EXACT, name
        assert result["other"] < NARROW, name
        assert result["tf32"] >= 4
        widths = {"dense": (2, 4), "attention": (11, 2)}[model]
        assert result["flows"] == [narrow] * widths[0] + ["float32"] * widths[1]


def test_check_and_search_use_gradients(checked: Checked, folder: Path) -> None:
    """The report has every variable, and the layers of the search have sensitivities."""
    data = folder / "image.npy"
    result = checked("image", "mixed_float16", inputs=data, gradients=True, sensitivity=True)
    (run,) = result.runs
    assert run.gradients is not None
    assert len(run.gradients.variables) == 8
    assert not [note for note in result.notes if note.code == "no-gradients"]
    assert all(
        output.sensitivity is not None and output.sensitivity > 0
        for call in run.calls
        for output in call.outputs
    )


def test_each_device_has_a_run_in_float32(backend: str, folder: Path) -> None:
    """JAX divides the CPU; torch has one. Products of float32 matrices have the full precision."""
    (model,) = discovery.inputs([str(folder / "image.keras")])
    request = CheckOptions(
        candidate=Options(to="mixed_bfloat16"), inputs=folder / "image.npy", device="all"
    )
    interpreter = Interpreter(python=str(PYTHONS[backend]), timeout=300, backend=backend)
    with Divided(interpreter) as worker:
        runs = checks.check(model, None, request, TensorFlowTools(worker=worker)).runs
    assert [run.device.name for run in runs] == ["cpu:0", "cpu:1"][: 2 if backend == "jax" else 1]
    assert all(str(run.device.matrix_precision).endswith("highest") for run in runs)
    assert len({run.outputs[0].accumulated for run in runs}) == 1


@pytest.mark.parametrize("how", ["layer", "activation"])
def test_a_file_cannot_name_functions_of_the_backend(
    checked: Checked, folder: Path, backend: str, how: str
) -> None:
    """The guard refuses the file before the backend is started."""
    module, name = NAMED[backend]
    path = folder / f"named-{how}.keras"

    def named(config: Config) -> None:
        layer = config["config"]["layers"][1]
        if how == "layer":
            layer.update(module=module, class_name=name)
        else:
            function = {"module": module, "class_name": "function", "config": name}
            layer["config"]["activation"] = {**function, "registered_name": name}

    with zipfile.ZipFile(folder / "dense.keras") as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.namelist():
            data = source.read(entry)
            if entry == "config.json":
                config = json.loads(data)
                named(config)
                data = json.dumps(config).encode()
            target.writestr(entry, data)
    with pytest.raises(PolicytoolError, match=re.escape(f"{module}")):
        checked(path.stem, "mixed_bfloat16")


def test_a_model_that_the_backend_cannot_compile_is_not_timed(
    checked: Checked, folder: Path, backend: str
) -> None:
    """JAX does not compile attention in float16 for CPUs, and runs it op by op."""
    result = checked("sequence", "mixed_float16", inputs=folder / "sequence.npy", timing=True)
    (run,) = result.runs
    assert run.outputs[0].accumulated is not None
    is_noted = any(note.code == "timing" for note in result.notes)
    assert is_noted is (backend == "jax")
    assert bool(run.timings) is not is_noted


def test_peak_memory_is_that_of_the_compiled_call(
    checked: Checked, folder: Path, backend: str
) -> None:
    """JAX plans at least the stem's output, and torch does not count on CPUs."""
    (run,) = checked("image", "mixed_bfloat16", inputs=folder / "image.npy", timing=True).runs
    assert {"reference", "candidate"} == set(run.timings)
    for timing in run.timings.values():
        peak = timing.peak_memory
        assert (peak is not None and peak >= 12 * 12 * 8 * 2) is (backend == "jax")


def test_architectures_are_compared_in_two_places(backend: str, tmp_path: Path) -> None:
    """``make test-gpu`` does the same with all architectures, on a CPU and a GPU."""
    place = architectures.Place(backend, "cpu", str(PYTHONS[backend]))
    architectures.write_models(tmp_path, place, 32, ("LSTM",))
    with contextlib.ExitStack() as stack:
        runs = architectures.Runs(tmp_path, (place, place), stack)
        for policy in architectures.POLICIES[::2]:
            row = runs.compared("LSTM", policy)
            assert (row["departs"], row["largest"]) == (None, 0)
        assert runs.measured("LSTM", "mixed_bfloat16")["timings"].keys() == {
            "reference",
            "candidate",
        }
        planted = runs.planted()
        assert (planted["wrong"], planted["named"]) == (0, planted["pairs"])
        assert runs.tuned("LSTM")["candidates"] > 0
