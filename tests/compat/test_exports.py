"""The newest Keras exports layers as measured, with the exporters that are installed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.formats.document import Signature
from policytool.formats.format_detection import document
from policytool.model.signature_layers import layer_call, needs_tf_keras
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


CALLS: Final = """
import sys
import keras
import numpy as np
import tensorflow as tf
names, folder = sys.argv[1].split(","), sys.argv[2]
values = {name: np.ones((2, 3), "float32") for name in names}
specs = [tf.TensorSpec((None, 3), name=name) for name in names]
module = tf.Module()
module.add = tf.function(lambda *given: {"y": tf.add_n(given)}, input_signature=specs)
tf.saved_model.save(module, folder, signatures={"serving_default": module.add})
layer = keras.layers.TFSMLayer(folder, call_endpoint="serving_default")
first, *others = names
calls = [
    lambda: layer(*values.values()),
    lambda: layer(list(values.values())),
    lambda: layer(values),
    lambda: layer(values[first], **{name: values[name] for name in others}),
]
works = 0
for call in calls:
    try:
        call()
        works += 1
    except TypeError:
        pass
print(works)
"""
"""Calls a signature with some inputs in all ways, and prints how many work."""


@pytest.mark.compat
@pytest.mark.parametrize("names", [("x",), ("x", "scale")])
def test_a_signature_runs_as_a_layer_if_it_has_one_input(
    names: tuple[str, ...], compat_python: Path, tmp_path: Path
) -> None:
    """
    TFSMLayer passes one argument by position, and signatures take several only by name. The object
    has no function with the name of the signature, as exported models have.
    """
    signature = Signature(
        name="serving_default", inputs=dict.fromkeys(names, "float32"), outputs={}
    )
    done = run_captured(
        [compat_python, "-c", CALLS, ",".join(names), tmp_path],
        env={**os.environ, **ENVIRONMENT},
        timeout=None,
    )
    assert (int(done.stdout.splitlines()[-1]) > 0) is signature.runs_as_layer


EXPORTS: Final = """
import sys
import keras
import numpy as np
import tensorflow as tf
library, folder = sys.argv[1:]
if library == "tf_keras":
    import tf_keras as writer
else:
    writer = keras
inputs = {name: writer.Input((3,), name=name) for name in ("b", "a")}
for kind, given in (("dict", inputs), ("list", list(inputs.values())), ("one", inputs["a"])):
    parts = writer.layers.Concatenate()(list(inputs.values())) if kind != "one" else given
    model = writer.Model(given, writer.layers.Dense(2)(parts))
    model.export(f"{folder}/{kind}")
    if kind == "one":
        half = writer.Input((3,), name="a", dtype="float16")
        writer.Model(half, writer.layers.Dense(2, dtype="float16")(half)).export(f"{folder}/half")
    if kind == "dict":
        specs = {name: tf.TensorSpec((None, 3), name=name) for name in inputs}
        archive = writer.export.ExportArchive()
        archive.track(model)
        archive.add_endpoint("double", lambda given: 2 * model(given), [specs])
        archive.add_endpoint("serve", model.call, [specs])
        archive.write_out(f"{folder}/archive")
"""
"""
Exports models with a dict or a list of inputs, with one input, and with one in float16, and an
archive whose function ``serve`` has the arguments of ``Model.call``.
"""

LAYER: Final = """
import sys
import keras
import numpy as np
import tensorflow as tf
path, call = sys.argv[1:]
a, b = np.ones((2, 3), "float32"), np.full((2, 3), 2, "float32")
call = call.replace("'a': ...", "'a': a").replace("'b': ...", "'b': b")
signature = tf.saved_model.load(path).signatures["serving_default"]
given = {"a": tf.constant(a), "b": tf.constant(b)}
specs = signature.structured_input_signature[1]
(expected,) = signature(**{n: tf.cast(given[n], spec.dtype) for n, spec in specs.items()}).values()
np.testing.assert_array_equal(eval(call, {**globals(), "inputs": a}), expected)
"""
"""Runs a call of a layer, and compares the result with that of the signature."""


@pytest.mark.compat
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_exported_models_run_as_layers_as_advised(
    library: str, compat_python: Path, tmp_path: Path
) -> None:
    """The endpoint ``serve`` takes several inputs in the structure that the file contains."""
    env = {**os.environ, **ENVIRONMENT}
    run_captured([compat_python, "-c", EXPORTS, library, tmp_path], env=env, timeout=None)
    for kind in ("dict", "list", "one", "half", "archive"):
        path = tmp_path / kind
        call = layer_call(document(path, kind).signatures)
        assert call is not None
        run_captured([compat_python, "-c", LAYER, path, call], env=env, timeout=None)


LOAD: Final = """
import sys
if sys.argv[1] == "without":
    sys.modules["tf_keras"] = None
import tensorflow as tf
for path in sys.argv[2:]:
    try:
        tf.saved_model.load(path)
        print("loads")
    except AttributeError as error:
        print(error)
"""
"""Prints which models load with tf_keras or without it."""


@pytest.mark.compat
def test_slot_variables_need_tf_keras_since_tf_2_16(compat_python: Path) -> None:
    """TensorFlow restores the optimizers of TF 2.1 to 2.10 with a class of Keras 2."""
    names = ("tf2.1/exp_mf16_fixed128", "tf2.5/exp_mf16_fixed128", "tf2.15/adam_autowrap_mf16")
    paths = [FIXTURES / name for name in names]
    for package in ("with", "without"):
        done = run_captured(
            [compat_python, "-c", LOAD, package, *paths],
            env={**os.environ, **ENVIRONMENT},
            timeout=None,
        )
        for path, line in zip(paths, done.stdout.splitlines(), strict=True):
            is_needed = needs_tf_keras(document(path, path.name).observations)
            fails = is_needed and package == "without"
            assert line == (
                "'_UserObject' object has no attribute 'add_slot'" if fails else "loads"
            ), path


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
