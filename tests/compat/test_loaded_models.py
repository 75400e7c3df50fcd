"""
``policytool.load`` in the newest tf_keras and Keras 3: one of them loads the file, and the other a
conversion of it, with equal predictions.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.sampling import sampled

pytestmark = pytest.mark.compat

_SCRIPT: Final = Path(__file__).with_name("loaded_models.py")
_NEWEST: Final = frozenset({"tf_keras2.21", "keras3.15"})
_NEEDS_CODE: Final = re.compile("custom|autocast|subclassed|lambda")
_TOLERANCE: Final = 1e-2
"""For outputs in bfloat16; a wrong weight or argument changes much more."""


def _same() -> list[str]:
    """Return the fixtures whose conversions have the same predictions in both libraries."""
    record = json.loads((FIXTURES / "conversions.json").read_text(encoding="utf-8"))["files"]
    return sorted(
        str(FIXTURES / name)
        for name, outcomes in record.items()
        if frozenset(outcomes.get("same", "").split()) >= _NEWEST and not _NEEDS_CODE.search(name)
    )


PAIR: Final = [str(FIXTURES / "tf2.15" / f"global_mixed_float16.{end}") for end in ("json", "h5")]
FILES: Final = [PAIR, *sampled("loaded models", _same(), share=8)]


def _predictions(python: Path, legacy: str, result: Path) -> Any:  # nested lists
    packages = sysconfig.get_path("purelib")
    arguments = map(str, (ROOT, packages, json.dumps(FILES), result))
    command = [str(python), str(_SCRIPT), *arguments]
    environment = {**os.environ, **ENVIRONMENT, "TF_USE_LEGACY_KERAS": legacy}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(result.read_text(encoding="utf-8"))


def test_both_libraries_predict_the_same(compat_python: Path, tmp_path: Path) -> None:
    """The architecture with its weights is the first of the files."""
    keras3 = _predictions(compat_python, "0", tmp_path / "keras3.json")
    tf_keras = _predictions(compat_python, "1", tmp_path / "tf_keras.json")
    for file, first, second in zip(FILES, keras3, tf_keras, strict=True):
        assert len(first) == len(second), file
        for one, other in zip(first, second, strict=True):
            np.testing.assert_allclose(one, other, _TOLERANCE, _TOLERANCE, err_msg=str(file))
