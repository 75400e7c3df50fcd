"""
Synthetic inputs have the range of what a model was trained on, and ``check`` says at which size
they overflow float16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from msgspec.structs import replace

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Assignment, Options
from policytool.numerics.check_results.metrics import LARGEST_FINITE
from policytool.reports.checks._verdict import headline
from tests.compat.asking import run_module
from tests.compat.probed_models import FEATURES, LIBRARIES, WEIGHT

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.numerics.check_results.checks import Check
    from policytool.numerics.tensorflow_run import TensorFlowTools

pytestmark = pytest.mark.compat

HALF: Final = CheckOptions(candidate=Options(to="mixed_float16"))


@pytest.fixture(scope="module")
def probed(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the models."""
    base = tmp_path_factory.mktemp("probed")
    run_module(compat_python, "probed_models", base)
    return base


def _check(path: Path, tools: TensorFlowTools, wanted: CheckOptions = HALF) -> Check:
    return checks.check(discovery.named_input(str(path)), None, wanted, tools)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("model", "layer"), [("normalization", "net/adapted"), ("batch_normalization", "net/normal")]
)
def test_features_above_the_float16_range_overflow_without_data(
    library: str, model: str, layer: str, probed: Path, tools: TensorFlowTools
) -> None:
    """
    Inputs around 0 are finite in every layer, and the synthetic inputs for this model are not.
    """
    kept = Assignment(pattern=layer, policy="mixed_float16")
    expected = replace(HALF, candidate=Options(to="mixed_float16", assignments=(kept,)))
    result = _check(probed / library / f"{model}.keras", tools, expected)
    (run,) = result.runs
    assert run.inputs.inputs[0].how == (
        f"normally distributed values with the mean and variance of {layer.partition('/')[2]}"
    )
    assert run.verdict.first_not_finite == layer
    assert "output scores contains NaN or infinity" in headline(result)
    assert run.overflow_probe is None


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("model", ["narrow", "broad"])
def test_inputs_that_are_normalized_show_no_error_that_data_would_not(
    library: str, model: str, probed: Path, tools: TensorFlowTools
) -> None:
    """Drawn from the moving mean and variance; the same model fails on N(0, 1)."""
    path = probed / library / f"{model}.keras"
    result = _check(path, tools)
    (run,) = result.runs
    assert result.holds, run.verdict.missed
    assert "; synthetic inputs show only rounding" in headline(result)
    assert all(output.changes is not None and output.changes.varies for output in run.outputs)


@pytest.mark.parametrize("library", LIBRARIES)
def test_inputs_of_another_range_fail(
    library: str, probed: Path, tmp_path: Path, tools: TensorFlowTools
) -> None:
    """This result shows that the previous test can fail."""
    inputs = tmp_path / "inputs.npy"
    np.save(inputs, np.random.default_rng(1).normal(size=(16, FEATURES)).astype("float32"))
    result = _check(probed / library / "narrow.keras", tools, replace(HALF, inputs=inputs))
    (run,) = result.runs
    assert run.verdict.first_not_finite == "net/hidden"  # what it gets is kept in float32
    assert run.overflow_probe is None


@pytest.mark.parametrize("library", LIBRARIES)
def test_probe_finds_the_factor_and_the_layer(
    library: str, probed: Path, tools: TensorFlowTools
) -> None:
    """Sums of four inputs of 3, the largest synthetic ones, are the first to leave float16."""
    result = _check(probed / library / "wide.keras", tools)
    (run,) = result.runs
    probe = run.overflow_probe
    assert probe is not None
    assert probe.factor is not None
    assert (probe.path, probe.class_name) == ("net/wide", "Dense")
    exact = LARGEST_FINITE["float16"] / (FEATURES * WEIGHT * 3)
    assert probe.finite_to <= exact <= probe.factor <= 1.2 * probe.finite_to
    assert result.holds
    assert (
        f"float16 overflows in net/wide (Dense) at inputs {probe.factor:g} times larger than these"
        in headline(result)
    )


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("ids", {}),
        ("wide", {"candidate": Options(to="mixed_bfloat16")}),
        ("wide", {"probes_overflow": False}),
    ],
)
def test_nothing_is_probed_without_floats_or_float16(
    library: str, model: str, changes: dict[str, Any], probed: Path, tools: TensorFlowTools
) -> None:
    """The trials that search for an origin are not probed either."""
    result = _check(probed / library / f"{model}.keras", tools, replace(HALF, **changes))
    assert [run.overflow_probe for run in result.runs] == [None]
    assert "times larger" not in headline(result)


@pytest.mark.parametrize("library", LIBRARIES)
def test_probe_ends_if_inputs_exceed_the_float16_range(
    library: str, probed: Path, tools: TensorFlowTools
) -> None:
    """Only JSON contains the largest factor of a model without an overflow."""
    result = _check(probed / library / "narrow.keras", tools)
    (probe,) = (run.overflow_probe for run in result.runs)
    assert probe is not None
    assert probe.factor is not None  # exponentials overflow first
    wide = _check(probed / library / "broad.keras", tools)
    (probe,) = (run.overflow_probe for run in wide.runs)
    assert probe is not None
    assert (probe.factor, probe.path, probe.class_name) == (None, None, None)
    assert probe.finite_to >= 16
    assert "times larger" not in headline(wide)
