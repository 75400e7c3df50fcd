"""
Models that no command fixes for the newest Keras: the library itself shows the reason that the
audit gives.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.helpers.paths import FIXTURES
from tests.helpers.scripts import run_captured

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

PROGRAM: Final = """
import json, sys
import keras, numpy
found = {}
for path in sys.argv[1:]:
    try:
        model = keras.saving.load_model(path)
    except Exception as error:
        found[path] = str(error)
    else:
        found[path] = type(model.optimizer).__name__
found["hard_sigmoid"] = float(keras.activations.hard_sigmoid(numpy.array([-1.0], "float32"))[0])
print("\\n" + json.dumps(found))
"""

BLOCKED: Final = {
    "tf2.15/weights_only.h5": (
        "a file of weights contains no layers",
        "No model config found in the file",
    ),
    "keras3.15/loops.export": (
        "SavedModel without Keras metadata",
        "File format not supported",
    ),
    "keras2.3.1/sequential_unbuilt_input.h5": (
        "input shape",
        "Model expected 0 layers, found 2 saved layers",
    ),
    "keras3.15/subclassed.h5": ("not in its config", "Unknown layer: 'Net'"),
    "tf2.3/string_lookup": ("vocabulary", "File format not supported"),
}
"""Fixture to a part of the audit's reason, and of the library's error."""

UNSCALED: Final = "tf2.3/exp_mf16_none.h5"
"""A model that loads once it is converted, and whose optimizer scales no losses."""


def reason(name: str, *select: str) -> str:
    """Return why no command fixes a fixture, which rules named in ``select`` may be about."""
    audited = policytool.audit(FIXTURES / name, target="keras3", select=["ALL", *select])
    (command,) = audited.commands
    assert command.arguments is None, name
    return str(command.reason)


@pytest.fixture(scope="module")
def answers(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the newest Keras makes of the fixtures, and of the one that was converted."""
    converted = tmp_path_factory.mktemp("converted") / "unscaled.keras"
    policytool.migrate(FIXTURES / UNSCALED, target="keras3", output=converted)
    paths = [*(str(FIXTURES / name) for name in BLOCKED), str(converted)]
    done = run_captured(
        [str(compat_python), "-c", PROGRAM, *paths], env=ENVIRONMENT, timeout=SECONDS
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result | {UNSCALED: result[str(converted)]}


@pytest.mark.parametrize("name", BLOCKED)
def test_library_fails_to_load_models_that_no_command_fixes(
    name: str, answers: dict[str, Any]
) -> None:
    """The error of the library fits the reason in the report."""
    result, error = BLOCKED[name]
    assert result in reason(name)
    assert error in answers[str(FIXTURES / name)]


def test_architecture_with_hard_sigmoid_is_not_fixed(
    answers: dict[str, Any],
) -> None:
    """
    hard_sigmoid(-1) is 0.3 in Keras 2 and 1/3 in Keras 3. Scaled weights can correct that, but the
    file has none.
    """
    assert "the file has no weights" in reason("tf2.12/rnn.json")
    assert answers["hard_sigmoid"] == pytest.approx(1 / 3)


def test_an_optimizer_that_never_scaled_losses_scales_none(answers: dict[str, Any]) -> None:
    """The converted model loads, and trains as unscaled as before."""
    assert reason(UNSCALED, "PT2").startswith("PT203 still occurs")
    assert answers[UNSCALED] == "SGD"
