"""
``check`` without TensorFlow: the errors are those of plain Keras on the same backend, and findings
name the layer.

The environments are those in ``POLICYTOOL_JAX`` and ``POLICYTOOL_TORCH``. A backend without one is
skipped.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics.check_results.verdicts import Answer
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter, Worker
from tests.compat.asking import run_script
from tests.helpers.planted_failures import HARMLESS, WEAK
from tests.helpers.sampling import sampled
from tests.trained import backends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from policytool.numerics.check_results.checks import Check

    Checked = Callable[..., Check]

PYTHONS: Final = {name: os.environ.get(f"POLICYTOOL_{name.upper()}") for name in ("jax", "torch")}
"""Read before the tests: their own environment has no variable of policytool's."""

POLICIES: Final = ("mixed_float16", "mixed_bfloat16")

PLANTED: Final = (
    *sampled("planted failures of backends", WEAK, share=8),
    *sampled("harmless models of backends", HARMLESS, share=8),
)

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("backends")]


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
    """The origin is the planted layer."""
    python = str(PYTHONS[backend])
    pairs = list(backends.planted(tmp_path, python, backend, 1, *PLANTED))
    backends.predict(pairs, python, backend)
    with Worker(Interpreter(python=python, timeout=300, backend=backend)) as worker:
        for pair in pairs:
            result = backends.compare(pair, worker)
            assert (result["harmful"], result["answer"]) not in backends.WRONG, result
            assert result["origin"] is not False, result
