"""
``check`` on named fixtures, with the TensorFlow of the interpreter that ``POLICYTOOL_COMPAT``
names, as ``make test`` sets it.

One child does it all. Every fixture is checked in ``tests/compat/test_check_fixtures.py``.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics import check_sides, recordings
from policytool.numerics.check_results.checks import InputKind
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter, Worker
from policytool.support.errors import ModelFileError, UsageError, WorkerError
from tests.conftest import MIXED_KERAS, UNPACKED, run
from tests.helpers.marks import SLOW
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.numerics.check_results.checks import Check, CheckRun

PYTHON: Final = os.environ.get("POLICYTOOL_COMPAT")
"""Read before the tests: their own environment has no variable of policytool's."""

pytestmark = [
    SLOW,
    pytest.mark.skipif(
        PYTHON is None,
        reason="POLICYTOOL_COMPAT names no interpreter with TensorFlow; make test sets it",
    ),
]

CLASSES: Final = """
from writer import api, custom_classes
CLASSES = custom_classes.classes(api.open_release("{}"))
"""
"""A module with the fixtures' own classes, as a user has one."""

NAMED: Final = (
    ("keras2.2.4/default_float32.h5", "mixed_float16"),
    ("tf1.15/wrappers.h5", "mixed_bfloat16"),
    ("tf2.3/global_mixed_float16.h5", None),
    ("tf2.5/global_mixed_float16", None),
    ("tf2.1/exp_mf16_fixed128_uncompiled.yaml", None),
    ("tf2.3/global_mixed_float16.json", "mixed_bfloat16"),
    ("tf2.15/rnn_mixed.h5", None),
    ("tf2.15/nested_models.keras", "mixed_float16"),
    ("tf2.15/shared_layer", "mixed_bfloat16"),
    ("tf_keras2.21/mha_mixed.h5", None),
    ("keras3.0/default_float32.keras", "mixed_float16"),
    ("keras3.15/global_mixed_float16.keras", None),
    ("keras3.15/global_mixed_float16.h5", None),
    ("keras3.15/global_mixed_float16.json", None),
    ("keras3.15/wrappers_mixed.keras", None),
    ("keras3.15/text_vectorization.keras", "mixed_float16"),
)
"""
A fixture of each kind and format, of both Kerases, and the policy of the candidate; None for the
file's own.
"""


@pytest.fixture(scope="module")  # other tests count the processes there are
def worker() -> Iterator[Worker]:
    """Return a child process that all tests share."""
    with Worker(Interpreter(python=str(PYTHON), timeout=120)) as child:
        yield child


def checked(worker: Worker, *files: str | Path, to: str | None = None, **wanted: Any) -> Check:
    """Return the result of checking one or two fixtures."""
    tools = {
        name: wanted.pop(name) for name in ("custom_objects", "path", "trust") if name in wanted
    }
    inputs = [next(discovery.inputs([str(FIXTURES / file)])) for file in files]
    options = CheckOptions(candidate=Options(to=to), isolated=True, **wanted)
    return checks.check(
        inputs[0],
        inputs[1] if len(inputs) > 1 else None,
        options,
        TensorFlowTools(worker=worker, **tools),
    )


def save_inputs(worker: Worker, path: Path, **options: Any) -> None:
    """Save synthetic inputs of a fixture in a file for ``--inputs``."""
    file = path.with_suffix(".h5")
    checks.check(
        next(discovery.inputs([str(FIXTURES / MIXED_KERAS)])),
        None,
        CheckOptions(record=file, **options),
        TensorFlowTools(worker=worker),
    )
    recording = recordings.read(file)
    np.save(path.with_suffix(".npy"), recording.arrays["inputs/0"])
    path.with_suffix(".npy").rename(path)


def the_run(check: Check) -> CheckRun:
    """Return the one run of a check."""
    (result,) = check.runs
    return result


@pytest.mark.parametrize(("file", "to"), NAMED)
def test_named_fixtures_pass(worker: Worker, file: str, to: str | None) -> None:
    """Sampled fixtures pass with default tolerances; all layers are compared."""
    result = checked(worker, file, to=to)
    run = the_run(result)
    assert result.holds, run.verdict.missed
    assert run.verdict.first_not_finite is None
    assert run.inputs.kind is InputKind.SYNTHETIC
    assert not run.unmatched
    assert not result.notes
    assert run.outputs
    assert all(
        output.accumulated is not None and output.accumulated.infinite == (0, 0)
        for output in run.outputs
    )
    assert any(output.isolated is not None for call in run.calls for output in call.outputs)
    assert {call.path.partition("/")[0] for call in run.calls} == {run.calls[-1].path}
    assert result.candidate.weights == ("random" if file.endswith(("json", "yaml")) else "file")
    measured_paths = {call.path for call in run.calls}
    assert measured_paths & {layer.path for layer in result.connected_layers if layer.inputs}


def test_the_library_is_the_file_s(worker: Worker) -> None:
    """Files of Keras 2 run in tf_keras and those of Keras 3 in Keras 3, in one child process."""
    assert checked(worker, "tf2.3/global_mixed_float16.h5").candidate.library.startswith("tf_keras")
    assert checked(worker, MIXED_KERAS).candidate.library.startswith("keras 3")


def test_an_unpacked_model_is_a_model(worker: Worker) -> None:
    """The directory form of a ``.keras`` archive is checked, or is an error message."""
    assert the_run(checked(worker, UNPACKED, to="mixed_bfloat16")).outputs


@pytest.mark.parametrize(
    "file", ["keras3.15/global_mixed_float16.export", "keras3.3/global_mixed_float16.export"]
)
def test_a_saved_model_without_keras_metadata_runs_as_a_graph(worker: Worker, file: str) -> None:
    """Each signature is compared with its conversion by TensorFlow."""
    result = checked(worker, file, to="mixed_bfloat16")
    assert [run.signature for run in result.runs]
    assert all(run.rewrite is not None for run in result.runs)
    assert result.holds, the_run(result).verdict.missed


@pytest.mark.parametrize(
    ("file", "release"),
    [("tf2.15/custom_layer.h5", "tf_keras2.21"), ("keras3.15/subclassed.keras", "keras3.15")],
)
def test_custom_classes_need_the_option_custom_objects(
    worker: Worker, tmp_path: Path, file: str, release: str
) -> None:
    """Custom classes are an error before TensorFlow starts; it names the option for them."""
    with pytest.raises(ModelFileError, match="--custom-objects") as refused:
        checked(worker, file, to="mixed_bfloat16")
    assert refused.value.code == "runs-code"
    module = f"own_{release.partition('.')[0]}"
    (tmp_path / f"{module}.py").write_text(CLASSES.format(release), encoding="utf-8")
    result = checked(
        worker,
        file,
        to="mixed_bfloat16",
        custom_objects=(f"{module}:CLASSES",),
        path=(str(FIXTURES), str(tmp_path)),
    )
    assert result.holds, the_run(result).verdict.missed
    assert not result.notes


@pytest.mark.parametrize("file", ["tf_keras2.21/lambda.json", "keras3.15/lambda.keras"])
def test_lambda_layer_runs_only_with_trust(worker: Worker, file: str) -> None:
    """A file with a Lambda runs only with ``--trust``."""
    with pytest.raises(ModelFileError, match="--trust") as refused:
        checked(worker, file, to="mixed_bfloat16")
    assert refused.value.code == "runs-code"
    assert checked(worker, file, to="mixed_bfloat16", trust=True).holds


def test_two_files(worker: Worker, tmp_path: Path) -> None:
    """Outputs before and after ``migrate`` are equal for equal policies, and close otherwise."""
    for name, options in (("same.h5", ()), ("other.h5", ("--to", "float32"))):
        assert (
            run(
                "migrate",
                FIXTURES / "tf2.3/global_mixed_float16.h5",
                *options,
                "-o",
                tmp_path / name,
            ).code
            == 0
        )
    same = checked(worker, "tf2.3/global_mixed_float16.h5", tmp_path / "same.h5")
    assert same.holds
    assert {
        output.accumulated.relative
        for call in the_run(same).calls
        for output in call.outputs
        if output.accumulated is not None
    } == {0.0}
    other = checked(worker, tmp_path / "other.h5", "tf2.3/global_mixed_float16.h5")
    assert other.holds
    assert any(
        output.accumulated is not None and output.accumulated.relative
        for output in the_run(other).outputs
    )
    alone = checked(worker, "tf2.3/global_mixed_float16.h5")
    assert the_run(other).calls == the_run(alone).calls


def architecture(target: Path, *, outputs: int = 1, units: int | None = None) -> Path:
    """Return a file with an architecture whose last layer has several outputs or another size."""
    config = json.loads((FIXTURES / "keras3.15/default_float32.json").read_bytes())
    layers = config["config"]["layers"]
    dense = [layer["config"] for layer in layers if layer["class_name"] == "Dense"][-1]
    dense["units"] = units or dense["units"]
    config["config"]["output_layers"] = [[layers[-1]["config"]["name"], 0, 0]] * outputs
    target.write_text(json.dumps(config), encoding="utf-8")
    return target


def test_other_outputs_are_no_pass(worker: Worker, tmp_path: Path) -> None:
    """Two models with different outputs are an error, even if their common layers agree."""
    with pytest.raises(WorkerError, match="cannot be compared") as refused:
        checked(
            worker,
            architecture(tmp_path / "one.json"),
            architecture(tmp_path / "two.json", outputs=2),
        )
    assert refused.value.code == "outputs"


def test_random_weights_have_to_fit_both(worker: Worker, tmp_path: Path) -> None:
    """Architectures of different sizes are an error before they get random weights."""
    with pytest.raises(WorkerError, match="--weights") as refused:
        checked(
            worker,
            architecture(tmp_path / "one.json"),
            architecture(tmp_path / "two.json", units=9),
        )
    assert refused.value.code == "weights"


def test_weights_are_an_architecture_s(worker: Worker, tmp_path: Path) -> None:
    """A weights file is an error if it is missing, or if the model already contains weights."""
    with pytest.raises(ModelFileError, match="does not exist") as refused:
        checked(
            worker,
            "keras3.15/default_float32.json",
            to="mixed_float16",
            weights=tmp_path / "gone.weights.h5",
        )
    assert refused.value.code == "not-found"
    with pytest.raises(UsageError, match="has its own"):
        checked(worker, MIXED_KERAS, weights=FIXTURES / "keras3.15/weights_only.weights.h5")


def test_a_policy_that_changes_nothing_is_not_put_to_the_test(worker: Worker) -> None:
    """A note says that no layer changes, except for two files, whose weights can differ."""
    assert checked(worker, "keras3.15/global_float32.keras", to="float32").is_same_model
    assert not checked(worker, "keras3.15/global_float32.keras", to="mixed_float16").is_same_model
    assert not checked(
        worker, "keras3.15/global_float32.keras", "keras3.15/global_float32.keras"
    ).is_same_model


def test_layers_that_draw_random_numbers_are_reported(worker: Worker, tmp_path: Path) -> None:
    config = json.loads((FIXTURES / "tf2.15/default_float32.json").read_bytes())
    (last, *place) = config["config"]["output_layers"][0]
    for training, random in ((True, 1), (False, 0)):
        layer = {"name": "noisy", "rate": 0.5, "dtype": "float32"}
        noisy = {
            "class_name": "Dropout",
            "config": layer,
            "name": "noisy",
            "inbound_nodes": [[[last, *place, {"training": training}]]],
        }
        changed = {
            **config["config"],
            "layers": [*config["config"]["layers"], noisy],
            "output_layers": [["noisy", 0, 0]],
        }
        target = tmp_path / f"{training}.json"
        target.write_text(json.dumps({**config, "config": changed}), encoding="utf-8")
        result = the_run(checked(worker, target, to="mixed_float16"))
        assert len(result.random) == random
        assert all(path.endswith("/noisy") for path in result.random)


def test_gradients_need_two_models_of_one_keras(worker: Worker) -> None:
    """Gradients of a Keras 2 file and a Keras 3 file are an error before anything runs."""
    with pytest.raises(UsageError, match="--measure gradients"):
        checked(
            worker, "tf2.15/default_float32.h5", "keras3.15/default_float32.keras", gradients=True
        )


def test_files_of_both_generations(worker: Worker) -> None:
    """Layers of Keras 2 and Keras 3 models are compared despite different arguments."""
    result = checked(worker, "tf2.15/default_float32.h5", "keras3.15/default_float32.keras")
    assert result.reference.library != result.candidate.library
    layers = [call for call in the_run(result).calls if not call.is_model]
    assert layers
    assert all(output.isolated is not None for call in layers for output in call.outputs)


def test_saved_inputs_give_the_same_result(worker: Worker, tmp_path: Path) -> None:
    """Drawn inputs have two batches more, constant values and edges, which are not saved."""
    saved = tmp_path / "inputs.npz"
    drawn = checked(worker, MIXED_KERAS, batches=2, batch_size=4, seed=7)
    save_inputs(worker, saved, batches=2, batch_size=4, seed=7)
    given = checked(worker, MIXED_KERAS, inputs=saved, batch_size=4)
    assert the_run(given).inputs.kind is InputKind.GIVEN
    assert the_run(given).inputs.batches == 2
    assert the_run(drawn).inputs.batches == 2 + 2
    assert the_run(drawn).inputs.extra == ("constant", "edges")
    assert np.load(saved).shape[0] == 8
    other = checked(worker, MIXED_KERAS, batches=2, batch_size=4, seed=8)
    assert the_run(other).calls != the_run(drawn).calls


FEED: Final = """
import numpy as np

def one():
    for seed in range(3):
        yield np.random.default_rng(seed).normal(size=SHAPE).astype("float32")

def by_name():
    for array in one():
        yield {NAME: array}

def endless():
    while True:
        yield from one()

def fails():
    yield from one()
    raise ValueError("no more files")
"""


def test_inputs_come_from_a_function(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function in the working directory gives inputs by order or name, without ``--trust``."""
    (drawn,) = the_run(checked(worker, MIXED_KERAS)).inputs.inputs
    assert drawn.shape is not None
    assert drawn.range == (-3.0, 3.0)
    code = f"NAME, SHAPE = {drawn.name!r}, (5, *{drawn.shape[1:]!r})\n{FEED}"
    (tmp_path / "own_feed.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    one, named, few = (
        the_run(checked(worker, MIXED_KERAS, inputs=check_sides.file_or_function(name), batches=n))
        for name, n in (("own_feed:one", None), ("own_feed:by_name", None), ("own_feed:endless", 2))
    )
    assert one.inputs == named.inputs
    assert one.calls == named.calls
    assert (one.inputs.kind, one.inputs.batches, one.inputs.batch_size) == (InputKind.GIVEN, 3, 5)
    assert few.inputs.batches == 2
    assert few.calls != one.calls
    assert (one.inputs.extra, one.inputs.inputs[0].range) == ((), None)
    for name, message in (
        (
            "own_feed:endless",
            "at least 1001 batches, above the input-batches limit of 1000; raise ",
        ),
        (
            "own_feed:fails",
            "--inputs own_feed:fails raised ValueError: no more files \\(own_feed.py,",
        ),
        ("own_feed:none", "--inputs own_feed:none: the module own_feed has no function none"),
        ("own_nothing:one", "the module own_nothing cannot be imported: ModuleNotFoundError"),
    ):
        with pytest.raises(WorkerError, match=message) as refused:
            checked(worker, MIXED_KERAS, inputs=check_sides.file_or_function(name))
        assert refused.value.code == "user-function"


def test_a_quantised_model_is_compared_with_float32(worker: Worker) -> None:
    """A quantized model is compared with a float32 reference that has the same weights."""
    result = checked(worker, "keras3.15/int8.keras", to="mixed_bfloat16")
    assert result.holds, the_run(result).verdict.missed
    quantised = [
        any(name.startswith("int8_from_") for name in side.policies)
        for side in (result.reference, result.candidate)
    ]
    assert quantised == [False, True]


def test_the_answer_decides_the_exit_code(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 0 for safe, 1 for not safe, and 5 for undecided unless it is accepted."""
    monkeypatch.setattr("policytool.cli.check_command.Worker", lambda *_: _Lent(worker))
    assert run("check", MIXED_KERAS).code == 5
    assert run("check", MIXED_KERAS, "--accept-undecided").code == 0
    assert run("check", MIXED_KERAS, "--format", "json").json["check"]["answer"] == "undecided"
    inputs = tmp_path / "inputs.npz"
    options = ("--inputs", inputs, "--batches", "x128")
    save_inputs(worker, inputs, batches=64)
    result = run("check", MIXED_KERAS, *options)
    assert result.code == 0, result.out
    assert result.out.startswith("Safe")
    strict = run("check", MIXED_KERAS, *options, "--max-change", "0.0001")
    assert strict.code in {1, 5}
    assert not strict.out.startswith("Safe")


class _Lent:
    """A child that stays alive when the command ends."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def __enter__(self) -> Worker:
        return self.worker

    def __exit__(self, *_: object) -> None:
        pass
