"""The newest Keras exports layers as measured, with the exporters that are installed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.releases import exports
from tests.compat.asking import ENVIRONMENT
from tests.helpers.paths import FIXTURES
from tests.helpers.scripts import fixture_script, run_captured

if TYPE_CHECKING:
    from pathlib import Path

MODULES: Final = {
    "tf_saved_model": (),
    "onnx": ("tf2onnx", "onnx", "onnxruntime"),
    "litert": ("ai_edge_litert",),
    "openvino": ("openvino",),
}
"""What each exporter and its runtime need beside TensorFlow."""

CASES: Final = ("Dense", "Conv2D", "ops.Add")
POLICIES: Final = ("float32", "float16")
DRIVER: Final = f"""
import importlib.util, json
from writer import exports
from writer.api import open_release
from writer.layer_cases import cases
api = open_release("keras3.15")
known = {{case.name: case for case in (*cases(api), *exports.operations(api))}}
answers = {{}}
for exporter, modules in {MODULES}.items():
    if all(map(importlib.util.find_spec, modules)):
        for name in {CASES}:
            for policy in {POLICIES}:
                answer = exports.outcome(api, known[name], policy, exporter)
                answers[" ".join((exporter, name, policy))] = answer
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(compat_python: Path) -> dict[str, Any]:
    """Return the outcomes by exporter, class and policy."""
    done = run_captured(
        [compat_python, "-c", DRIVER], cwd=FIXTURES, env={**os.environ, **ENVIRONMENT}, timeout=None
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.compat
@pytest.mark.parametrize("exporter", MODULES)
def test_exports_are_those_of_the_table(exporter: str, answers: dict[str, Any]) -> None:
    """Failures and dtypes of weights are the recorded ones."""
    script = fixture_script("exports")
    for name in CASES:
        for policy in POLICIES:
            answer = answers.get(f"{exporter} {name} {policy}")
            if answer is None:
                pytest.skip(f"needs {', '.join(MODULES[exporter])} beside TensorFlow")
            outcome = script.outcome(answer, policy)
            recorded = (
                exports.operation_export(exporter, name.removeprefix("ops."), [policy])
                if name.startswith("ops.")
                else exports.export(exporter, policy, name, {})
            )
            assert recorded is not None
            assert outcome.get("fails") == recorded.fails, outcome
            assert tuple(outcome.get("weights", ())) == recorded.weights
