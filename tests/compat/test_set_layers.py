"""``check`` of a model that is not safe because of a layer that the user set with ``--set``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Assignment, Options
from policytool.numerics.check_results.verdicts import Answer
from policytool.reports.checks import headline
from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.helpers.scripts import run_captured

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.numerics.tensorflow_run import TensorFlowTools

pytestmark = pytest.mark.compat

PROGRAM: Final = """
import sys
import keras
import numpy as np
keras.utils.set_random_seed(1)
rows = np.load(sys.argv[1])
normalize = keras.layers.Normalization(name="normalize")
normalize.adapt(rows)
model = keras.Sequential([
    keras.layers.Input((3,)), normalize,
    keras.layers.Dense(16, "relu", name="hidden"), keras.layers.Dense(3, "softmax", name="prob"),
])
model.save(sys.argv[2])
"""

PINNED: Final = Assignment(pattern="sequential/normalize", policy="mixed_bfloat16")
PATTERN: Final = Assignment(pattern=".*/normalize", policy="mixed_bfloat16")
"""An exact path takes precedence over it."""


@pytest.mark.parametrize(
    ("assigned", "written"),
    [
        (PINNED, ()),
        (PATTERN, (PATTERN, Assignment(pattern="sequential/normalize", policy="float32"))),
    ],
)
def test_layer_set_by_the_user_is_kept_in_float32(
    compat_python: Path,
    tools: TensorFlowTools,
    tmp_path: Path,
    assigned: Assignment,
    written: tuple[Assignment, ...],
) -> None:
    """
    If a layer that the user set causes the failure, the check says that it does not fail with this
    layer in float32, and ``migrate`` gets no ``--set`` that contradicts this.
    """
    rows = np.random.default_rng(1).normal(1.6e5, 300, (400, 3)).astype("float32")
    inputs, model = tmp_path / "rows.npy", tmp_path / "model.keras"
    np.save(inputs, rows)
    run_captured(
        [str(compat_python), "-c", PROGRAM, str(inputs), str(model)],
        env=ENVIRONMENT,
        timeout=SECONDS,
    )
    candidate = Options(to="mixed_bfloat16", assignments=(assigned,))
    options = CheckOptions(candidate=candidate, inputs=inputs)
    result = checks.check(discovery.named_input(str(model)), None, options, tools)
    assert result.answer is Answer.NOT_SAFE
    assert result.advice is not None
    assert result.advice.layers == ("sequential/normalize",)
    assert result.advice.replaced == ((assigned,) if assigned is PINNED else ())
    assert result.migration is not None
    assert result.migration.assignments == written
    assert ("without --set" in headline(result)) == (assigned is PINNED)
