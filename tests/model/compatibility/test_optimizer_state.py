"""Training verdicts on files whose optimizer state is damaged."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

import policytool
from policytool.formats import format_detection
from policytool.model import reading
from policytool.model.model import Outcome
from policytool.model.optimizer_config import trainable_tensors
from tests.helpers.changed_fixtures import keras_zip
from tests.helpers.damaged_variables import damaged_copy
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

_RATE = "the optimizer's learning_rate has the shape (), but (3,) is stored"
_MOMENTUM = "the optimizer's momentum of variable 0 of Dense dense_a has the shape (6, 3), but"


@pytest.mark.parametrize(
    ("release", "kind", "reason"),
    [
        ("keras3.15", "slot shape", _RATE),
        ("keras3.15", "slots exchanged", _RATE),
        ("tf2.15", "slot shape", f"{_MOMENTUM} (6, 5) is stored"),
        ("tf2.15", "slots exchanged", f"{_MOMENTUM} (3,) is stored"),
    ],
)
def test_slots_of_another_shape_fail_to_load(
    tmp_path: Path, release: str, kind: str, reason: str
) -> None:
    """An archive whose slots have other shapes loads only without its training configuration."""
    copy = tmp_path / "model.keras"
    source = FIXTURES / release / "default_float32_compiled.keras"
    assert damaged_copy(source, copy, kind, Random(3))  # noqa: S311
    verdict = policytool.inspect(copy).releases[release]
    assert verdict.outcome is Outcome.LOADS
    assert verdict.training is not None
    assert verdict.training.reason == reason


def test_archive_without_an_optimizer_is_compiled_with_rmsprop(tmp_path: Path) -> None:
    """Keras 3.15.1 writes such archives for a model that it saved as HDF5 before."""
    name = "keras3.15/default_float32_compiled.keras"
    path = keras_zip(tmp_path, name, lambda config: config["compile_config"].pop("optimizer"))
    training = policytool.inspect(path).releases["keras3.15"].training
    assert training is not None
    assert training.outcome is Outcome.LOADS
    findings = policytool.audit(path, target="keras3.15").findings
    (lost,) = (finding.message for finding in findings if finding.rule == "PT206")
    assert "the optimizer has 4 variables, but 6 are stored" in lost


@pytest.mark.parametrize(("kind", "count"), [("slot missing", 1), ("no slots", 0)])
@pytest.mark.parametrize("release", ["keras3.15", "tf2.15"])
def test_missing_slots_are_lost(tmp_path: Path, kind: str, count: int, release: str) -> None:
    """Keras warns and restarts training; without any slot, there is no state to lose."""
    copy = tmp_path / "model.keras"
    source = FIXTURES / release / "default_float32_compiled.keras"
    assert damaged_copy(source, copy, kind, Random(3))  # noqa: S311
    training = policytool.inspect(copy).releases[release].training
    assert training is not None
    assert training.outcome is Outcome.LOADS
    findings = policytool.audit(copy, target=release).findings
    lost = [finding.message for finding in findings if finding.rule == "PT206"]
    assert len(lost) == count
    assert all("variables, but" in message for message in lost)


@pytest.mark.parametrize(
    ("release", "loader"),
    [("tf2.15", "tf2.15"), ("tf2.3", "tf_keras2.21")],
)
def test_listed_slots_must_be_stored(tmp_path: Path, release: str, loader: str) -> None:
    """All releases read every listed variable from HDF5."""
    copy = tmp_path / "model.h5"
    source = FIXTURES / release / "default_float32_compiled.h5"
    assert damaged_copy(source, copy, "slot missing", Random(3))  # noqa: S311
    verdict = policytool.inspect(copy).releases[loader]
    assert verdict.training is not None
    assert "is listed, but not stored" in str(verdict.training.reason)


@pytest.mark.parametrize(
    "fixture", ["keras3.15/int8.keras", "keras3.6/int8.keras", "keras3.3/int8.keras"]
)
def test_kernels_in_integers_are_not_trained(fixture: str) -> None:
    """
    Measured in Keras 3.3, 3.6 and 3.15: a model that was quantized after training has fewer
    trainable variables than slots, and loads with a warning.
    """
    loaded = reading.load_model(format_detection.document(FIXTURES / fixture, fixture))
    trainable = trainable_tensors(loaded.document, loaded.placed)
    assert [tensor.shape for tensor in trainable] == [(8,), (8,), (4,)]
