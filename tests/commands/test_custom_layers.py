"""The options that keep custom layers in float32, if they combine two dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policytool.commands.check_run import options_to_keep
from policytool.formats import format_detection
from policytool.model import reading
from policytool.numerics.check_sides import PreparedSide
from tests.helpers.convertible_models import input2, keras2, layer2
from tests.helpers.small_models import h5_model

if TYPE_CHECKING:
    from pathlib import Path

_FAILURE = (
    "tf_keras 2.21.0 cannot load the candidate: TypeError: Input 'y' of 'Mul' Op has type float32 "
    "that does not match type bfloat16 of argument 'x'"
)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (
            ' (layer "gate1", type Gate)',
            "--set model/gate1=float32 --set 'model/gate 2=float32'",
        ),
        (' (layer "dense", type Dense)', ""),
        ("", ""),
    ],
)
def test_layers_of_the_class_are_kept(where: str, expected: str, tmp_path: Path) -> None:
    """Each layer of the custom class with the policy of the candidate is named."""
    policy = "mixed_bfloat16"
    config = keras2(
        input2("x", 4),
        layer2("Gate", "gate1", [["x", 0, 0, {}]], dtype=policy),
        layer2("Gate", "gate 2", [["gate1", 0, 0, {}]], dtype=policy),
        layer2("Gate", "kept", [["gate 2", 0, 0, {}]]),
        layer2("Dense", "dense", [["kept", 0, 0, {}]], dtype=policy, units=2),
    )
    path = h5_model(tmp_path / "model.h5", config)
    loaded = reading.load_model(format_detection.document(path, "model.h5"))
    side = PreparedSide(job={}, loaded=loaded, plan=None, policy=policy)
    assert options_to_keep(_FAILURE + where, side) == expected
