"""
Keras loads what ``migrate`` makes of Orbax checkpoints, with the variables that it saved; ``check``
and ``tune`` run the same.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.commands.migrate import Status
from tests.compat.asking import SECONDS
from tests.conftest import run
from tests.formats.orbax.test_convert import CONVERTED
from tests.formats.orbax.test_read import ORBAX, SEED, TRUTH, needs_tensorstore
from tests.helpers.scripts import run_captured

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
    loaded = run_captured([str(compat_python), "-c", CHECKSUMS, str(output), SEED], timeout=SECONDS)
    expected = [rest for path, *rest in TRUTH[case]["variables"] if not path.startswith(SEED)]
    assert sorted(json.loads(loaded.stdout.splitlines()[-1])) == sorted(expected)


def test_check_runs_the_converted_checkpoint(compat_python: Path, tmp_path: Path) -> None:
    """A checkpoint and its converted file predict the same; the report names the checkpoint."""
    output = tmp_path / "model.keras"
    policytool.migrate(ORBAX / "whole", target="keras3", output=output, verify=False)
    python = str(compat_python)
    same = policytool.check(ORBAX / "whole", output, python=python)
    assert [item.accumulated.relative for item in same.runs[0].outputs if item.accumulated] == [0.0]
    ended = run("check", ORBAX / "whole", "--to", "mixed_bfloat16", "--python", python)
    assert "whole --to mixed_bfloat16 --target keras3.15" in ended.out
    assert tempfile.gettempdir() not in ended.out.replace(str(ORBAX), "")


def test_tune_writes_the_converted_checkpoint(compat_python: Path, tmp_path: Path) -> None:
    """The tuned model is a ``.keras`` file beside the checkpoint."""
    path = shutil.copytree(ORBAX / "whole", tmp_path / "ckpt")
    tuned = policytool.tune(path, to="mixed_bfloat16", tolerance=["0.1"], python=str(compat_python))
    assert tuned.passed
    assert (tmp_path / "ckpt.mixed_bfloat16.keras").is_file()
    assert policytool.inspect(path).format == "orbax"
