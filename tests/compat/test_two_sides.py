"""
Predictions of a source and of a conversion's result, each in a process with the newest library that
reads it: both files are one that both read.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

import h5py
import numpy as np
import pytest
from msgspec.structs import replace

from policytool.commands.destinations import Destination
from policytool.commands.migrate import Migration, Status
from policytool.commands.migrate_all import migrate_all
from policytool.formats import discovery, format_detection
from policytool.formats.edits import Content
from policytool.migration import planning
from policytool.migration.plan import Conversion
from policytool.migration.planning.options import Options
from policytool.model import reading
from policytool.numerics.tensorflow_run import TensorFlowRun, TensorFlowTools, ToleranceMissedError
from policytool.numerics.workers import Interpreter, Worker
from policytool.support.errors import WorkerError
from tests.compat.asking import ENVIRONMENT
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.numerics.predictions import PredictionComparison

pytestmark = pytest.mark.compat

SECONDS: Final = 300
SAME: Final = {
    "tf2.15/default_float32.h5": "keras3.15",
    "tf2.15/floatx_float64.h5": "keras3.15",
    "tf2.15/default_float32": "tf_keras2.21",
    "tf2.4/global_mixed_float16.h5": "tf2.4",
    "keras3.15/string_lookup.keras": "keras3.15",
    "keras3.15/text_vectorization.keras": "keras3.3",
}
"""A fixture to the target whose library reads it as well as its own does."""


@pytest.fixture(scope="module")
def sides(compat_python: Path) -> Iterator[TensorFlowTools]:
    """Return two children for all files, with one library each."""
    interpreter = Interpreter(python=str(compat_python), timeout=SECONDS)
    with Worker(interpreter) as worker, Worker(interpreter) as target:
        yield TensorFlowTools(worker=worker, target=target, verify=True)


def compared(
    tools: TensorFlowTools, source: Path, result: Path, target: str
) -> PredictionComparison:
    """Return what a verification found of a file and of its conversion."""
    loaded = reading.load_model(format_detection.document(source, source.name))
    conversion = Conversion(
        target=target,
        content=Content(container=result.suffix.removeprefix(".") or "h5", config=None),
    )
    run = TensorFlowRun(
        plan=replace(planning.plan(loaded, Options()), edits=(), casts=(), conversion=conversion),
        loaded=loaded,
        source=source,
        tools=tools,
    )
    run.verify(result)
    assert run.comparison is not None
    return run.comparison


@pytest.mark.parametrize("name", SAME)
def test_one_file_predicts_the_same_in_both_processes(sides: TensorFlowTools, name: str) -> None:
    """Words, ids and floats that one process drew are what the other takes."""
    path = FIXTURES / name
    comparison = compared(sides, path, path, SAME[name])
    assert comparison.missed == ()
    assert comparison.samples == 16
    assert comparison.versions_after is not None
    assert comparison.versions["library"] == ("keras" if name.startswith("keras3") else "tf_keras")
    assert comparison.versions_after["library"] == (
        "keras" if SAME[name].startswith("keras3") else "tf_keras"
    )
    assert all(output.values for call in comparison.calls for output in call.outputs)


def test_conversion_is_verified_before_the_output_is_written(
    sides: TensorFlowTools, tmp_path: Path
) -> None:
    """The other library loads the result, which has no name yet, under the suffix of its format."""
    target = tmp_path / "out.h5"
    source = discovery.named_input(str(FIXTURES / "keras3.15/global_mixed_float16.keras"))
    (done,) = migrate_all(
        [source],
        Options(target="tf_keras2.21", containers=("h5",)),
        Destination(output=target),
        sides,
    )
    assert isinstance(done, Migration), done
    assert done.status is Status.WRITTEN, done.plan.refusals
    assert done.comparison is not None
    assert done.comparison.versions_after is not None
    assert (done.comparison.versions["library"], done.comparison.versions_after["library"]) == (
        "keras",
        "tf_keras",
    )
    assert list(tmp_path.iterdir()) == [target]


def test_a_conversion_is_verified_by_default(compat_python: Path, tmp_path: Path) -> None:
    """The libraries are found without importing them, and the inputs can be made."""
    interpreter = Interpreter(python=str(compat_python), timeout=SECONDS)
    source = discovery.named_input(str(FIXTURES / "tf2.15/default_float32.h5"))
    with Worker(interpreter) as worker, Worker(interpreter) as other:
        tools = TensorFlowTools(worker=worker, target=other, verify=None)
        destination = Destination(output=tmp_path)
        (done,) = migrate_all([source], Options(target="keras3.15"), destination, tools)
    assert isinstance(done, Migration), done
    assert (done.status, done.not_verified) == (Status.WRITTEN, None)
    assert done.comparison is not None
    assert done.comparison.versions["library"] == "tf_keras"


WITH_LAMBDAS: Final = """
import math, sys
import tensorflow as tf, tf_keras
from tf_keras import layers
inputs = layers.Input((8, 8, 3))
pooled = layers.Lambda(lambda t: tf.reduce_mean(t, axis=[1, 2]), name="pool")(inputs)
scaled = layers.Lambda(lambda t, by: t * math.pi * by, name="scale", arguments={"by": 2})(pooled)
tf_keras.Model(inputs, layers.Dense(2)(scaled)).save(sys.argv[1])
"""


def test_code_of_lambdas_runs_on_both_sides_if_it_is_trusted(
    compat_python: Path, tmp_path: Path
) -> None:
    """The source lacks modules that its code uses, and the result functions that it calls."""
    path = tmp_path / "lambdas.h5"
    command = [str(compat_python), "-c", WITH_LAMBDAS, str(path)]
    subprocess.run(command, env={**os.environ, **ENVIRONMENT}, check=True, timeout=SECONDS)
    interpreter = Interpreter(python=str(compat_python), timeout=SECONDS)
    source = discovery.named_input(str(path))
    with Worker(interpreter) as worker, Worker(interpreter) as other:
        tools = TensorFlowTools(worker=worker, target=other, verify=None)
        destination = Destination(output=tmp_path / "distrusted.keras")
        (distrusted,) = migrate_all([source], Options(target="keras3.15"), destination, tools)
        assert isinstance(distrusted, Migration), distrusted
        assert str(distrusted.not_verified).startswith(
            "model/pool is a Lambda with Python bytecode"
        )
        assert "use --trust only for files from a trusted source, and then also --python" in str(
            distrusted.not_verified
        )
        tools = replace(tools, verify=True, trust=True)
        destination = Destination(output=tmp_path / "trusted.keras")
        (done,) = migrate_all([source], Options(target="keras3.15"), destination, tools)
    assert isinstance(done, Migration), done
    assert done.plan.conversion is not None
    assert dict(done.plan.conversion.functions) == {
        "pool_function": "lambda t: tf.reduce_mean(t, axis=[1, 2])",
        "scale_function": "lambda t, by: (t * math.pi) * 2",
    }
    assert (done.status, done.not_verified) == (Status.WRITTEN, None)
    assert done.comparison is not None
    assert done.comparison.missed == ()


def embedding_model(path: Path, *, masks: bool) -> Path:
    """Write a model of Keras 2 that embeds ids and runs a GRU over them."""
    first = {"batch_input_shape": [None, 6], "input_dim": 9, "output_dim": 2, "mask_zero": masks}
    layers = [
        {"class_name": "Embedding", "config": {"name": "ids", "dtype": "float32", **first}},
        {"class_name": "GRU", "config": {"name": "gru", "dtype": "float32", "units": 2}},
    ]
    model = {"class_name": "Sequential", "config": {"name": "net", "layers": layers}}
    random = np.random.default_rng(1)
    shapes = {
        "ids": {"ids/embeddings:0": (9, 2)},
        "gru": {
            "gru/gru_cell/kernel:0": (2, 6),
            "gru/gru_cell/recurrent_kernel:0": (2, 6),
            "gru/gru_cell/bias:0": (2, 6),
        },
    }
    with h5py.File(path, "w") as file:
        file.attrs.update(
            model_config=json.dumps(model), keras_version="2.15.0", backend="tensorflow"
        )
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = [name.encode() for name in shapes]
        for name, variables in shapes.items():
            group = weights.create_group(name)
            group.attrs["weight_names"] = [variable.encode() for variable in variables]
            for variable, shape in variables.items():
                group[variable] = random.normal(size=shape).astype("float32")
    return path


def test_a_mask_that_got_lost_is_a_miss(sides: TensorFlowTools, tmp_path: Path) -> None:
    """Inputs have rows with padding."""
    masked = embedding_model(tmp_path / "masked.h5", masks=True)
    plain = embedding_model(tmp_path / "plain.h5", masks=False)
    assert compared(sides, masked, masked, "tf_keras2.21").missed == ()
    with pytest.raises(ToleranceMissedError, match="gru differs by"):
        compared(sides, masked, plain, "tf_keras2.21")


def test_other_weights_are_a_miss(sides: TensorFlowTools) -> None:
    """A result that computes something else is found out."""
    with pytest.raises(ToleranceMissedError, match="differs by"):
        compared(
            sides,
            FIXTURES / "tf2.15/default_float32.h5",
            FIXTURES / "tf2.1/default_float32.h5",
            "tf_keras2.21",
        )


def test_result_that_its_library_fails_to_load_gives_a_one_line_error(
    sides: TensorFlowTools, tmp_path: Path
) -> None:
    damaged = tmp_path / "result.keras"
    shutil.copy(FIXTURES / "keras3.15/string_lookup.keras", damaged)
    with pytest.raises(WorkerError, match=r"tf_keras 2\.21\.0 cannot load the result: "):
        compared(sides, FIXTURES / "tf2.15/default_float32.h5", damaged, "tf_keras2.21")
