"""What tf_keras does with op layers whose numbers have another dtype than their tensors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.helpers.op_numbers import CASES, model
from tests.helpers.scripts import run_captured

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

PROGRAM: Final = """
import json, sys
import tf_keras
found = []
for config in json.load(sys.stdin):
    try:
        tf_keras.models.model_from_json(json.dumps(config))
    except ValueError as error:
        found.append("Inconsistent values for attr" not in str(error) and str(error))
    else:
        found.append(True)
print("\\n" + json.dumps(found))
"""


def test_tf_keras_loads_what_the_verdicts_say(compat_python: Path) -> None:
    configs = [model(op, dtypes, numbers) for op, dtypes, numbers, _ in CASES]
    done = run_captured(
        [str(compat_python), "-c", PROGRAM],
        env=ENVIRONMENT,
        timeout=SECONDS,
        input=json.dumps(configs),
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [loads for *_, loads in CASES]
