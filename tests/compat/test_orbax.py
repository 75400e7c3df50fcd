"""Keras loads what ``migrate`` makes of Orbax checkpoints, with the variables that it saved."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.commands.migrate import Status
from tests.compat.asking import SECONDS
from tests.formats.orbax.test_convert import CONVERTED
from tests.formats.orbax.test_read import ORBAX, SEED, TRUTH, needs_tensorstore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.compat, needs_tensorstore]

CHECKSUMS: Final = """
import hashlib, json, sys
import keras, numpy as np
model = keras.saving.load_model(sys.argv[1])
values = [
    (v, np.ascontiguousarray(v.numpy())) for v in model.variables
    if not v.path.startswith(sys.argv[2])
]
print(json.dumps([
    [list(v.shape), str(v.dtype), hashlib.sha256(data.tobytes()).hexdigest()] for v, data in values
]))
"""


@pytest.mark.parametrize("case", CONVERTED)
def test_keras_loads_the_saved_values(case: str, compat_python: Path, tmp_path: Path) -> None:
    """The shapes, the dtypes and the bytes of all variables are those when Keras saved them."""
    output = tmp_path / "model.keras"
    done = policytool.migrate(ORBAX / case, target="keras3", output=output, verify=False)
    assert done.status is Status.WRITTEN, done.plan.refusals
    loaded = subprocess.run(
        [str(compat_python), "-c", CHECKSUMS, str(output), SEED],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    expected = [rest for path, *rest in TRUTH[case]["variables"] if not path.startswith(SEED)]
    assert sorted(json.loads(loaded.stdout.splitlines()[-1])) == sorted(expected)
