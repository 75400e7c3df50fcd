"""Recorded runs of fixtures, and of copies with one planted difference, whose layer is named."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics import recordings
from policytool.numerics.check_results.verdicts import Answer
from policytool.support.errors import WorkerError
from tests.compat.asking import run_script
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled
from tests.helpers.scripts import fixture_script

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.numerics.check_results.checks import Check
    from policytool.numerics.tensorflow_run import TensorFlowTools

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("recordings")]


@dataclass
class Runs:
    """Records fixtures, each once, and runs models against the recordings."""

    tools: TensorFlowTools
    folder: Path
    files: dict[str, Path] = field(default_factory=dict)

    def run(self, path: Path, **options: Any) -> Check:
        """Return the check of one model."""
        (model,) = discovery.inputs([str(path)])
        return checks.check(model, None, CheckOptions(**options), self.tools)

    def recording(self, fixture: str) -> Path:
        """Return the recorded run of a fixture."""
        if fixture not in self.files:
            file = self.folder / f"{len(self.files)}.h5"
            result = self.run(FIXTURES / fixture, record=file, batches=2)
            assert result.recording is not None
            assert result.recording.rows == 16
            self.files[fixture] = file
        return self.files[fixture]


@pytest.fixture(scope="module")
def runs(tools: TensorFlowTools, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return the runs, in one child process."""
    return Runs(tools, tmp_path_factory.mktemp("recordings"))


def edited_config(path: Path, layer: str, **values: Any) -> None:
    """Change the arguments of a layer in the config of an HDF5 file."""

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("name") == layer and values.keys() <= value.keys():
                value.update(values)
            for item in value.values():
                visit(item)
        for item in value if isinstance(value, list) else ():
            visit(item)

    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        before = json.dumps(config)
        visit(config)
        assert json.dumps(config) != before
        file.attrs["model_config"] = json.dumps(config)


def edited_weights(path: Path, layer: str, change: float) -> None:
    """Change one value of the first matrix of a layer in an HDF5 file."""
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file["model_weights"].visit(names.append)
        name = next(
            name
            for name in names
            if layer in name.split("/")
            and isinstance(file["model_weights"][name], h5py.Dataset)
            and file["model_weights"][name].ndim > 1
        )
        array = np.asarray(file["model_weights"][name])
        array.flat[array.size // 2] += change
        file["model_weights"][name][...] = array


CONFIGS: Final = (
    ("tf2.15/rnn.h5", "lstm", {"recurrent_activation": "hard_sigmoid"}),
    ("tf2.15/rnn.h5", "gru", {"activation": "softsign"}),
    ("tf2.15/rnn.h5", "simple_rnn", {"activation": "relu"}),
    ("tf2.15/rnn.h5", "conv_lstm2d", {"recurrent_activation": "sigmoid"}),
    ("tf2.15/preprocessing.h5", "layer_norm", {"epsilon": 0.5}),
    ("tf2.15/nested_models.h5", "probabilities", {"activation": "sigmoid"}),
    ("tf2.15/default_float32.h5", "dense", {"activation": "elu"}),
)
WEIGHTS: Final = (
    ("tf2.15/rnn.h5", "lstm"),
    ("tf2.15/rnn.h5", "gru"),
    ("tf2.15/preprocessing.h5", "embedding"),
    ("tf2.15/mha.h5", "mha"),
    ("tf2.15/mha.h5", "dense_a"),
    ("tf2.15/wrappers.h5", "bidirectional_1"),
    ("tf2.15/wrappers.h5", "time_distributed_1"),
    ("tf2.15/default_float32.h5", "dense_1"),
)


def assert_named(result: Check, layer: str) -> None:
    """Check that a check answers *not safe*, and names the layer."""
    assert result.answer is Answer.NOT_SAFE
    (origin,) = (run.origin for run in result.runs)
    assert origin is not None
    assert layer in origin.path.split("/"), origin


@pytest.mark.parametrize(("fixture", "layer", "values"), CONFIGS)
def test_a_changed_argument_is_named_by_its_layer(
    runs: Runs, tmp_path: Path, fixture: str, layer: str, values: dict[str, Any]
) -> None:
    """Every later layer returns other values too, and is not the origin."""
    path = tmp_path / "model.h5"
    shutil.copy(FIXTURES / fixture, path)
    edited_config(path, layer, **values)
    assert_named(runs.run(path, against=runs.recording(fixture)), layer)


@pytest.mark.parametrize(
    ("layer", "values"), [("batch_norm", {"epsilon": 0.5}), ("rescaling", {"scale": 0.75})]
)
def test_a_change_that_the_outputs_do_not_show_is_a_note(
    runs: Runs, tmp_path: Path, layer: str, values: dict[str, Any]
) -> None:
    """A later layer normalizes the values."""
    fixture, path = "tf2.15/preprocessing.h5", tmp_path / "model.h5"
    shutil.copy(FIXTURES / fixture, path)
    edited_config(path, layer, **values)
    result = runs.run(path, against=runs.recording(fixture))
    assert result.is_equal
    assert f"layer net/{layer} (" in result.notes[-1].message


@pytest.mark.parametrize(("fixture", "layer"), WEIGHTS)
def test_a_changed_weight_is_named_by_its_layer(
    runs: Runs, tmp_path: Path, fixture: str, layer: str
) -> None:
    """One value of a matrix is enough."""
    path = tmp_path / "model.h5"
    shutil.copy(FIXTURES / fixture, path)
    edited_weights(path, layer, 0.05)
    assert_named(runs.run(path, against=runs.recording(fixture)), layer)


@pytest.mark.parametrize(
    "fixture",
    [*dict.fromkeys(case[0] for case in (*CONFIGS, *WEIGHTS)), "tf2.15/string_lookup.h5"],
)
def test_the_same_model_is_equal(runs: Runs, tmp_path: Path, fixture: str) -> None:
    """The run is equal on synthetic inputs, and a second recording has the same records."""
    second = tmp_path / "second.h5"
    result = runs.run(FIXTURES / fixture, against=runs.recording(fixture), record=second)
    assert result.is_equal
    assert {note.code for note in result.notes} == {"recorded"}
    first, again = (recordings.read(file).run.calls for file in (runs.recording(fixture), second))
    assert [call.outputs for call in first] == [call.outputs for call in again]


MIXED: Final = "tf2.15/global_mixed_float16.h5"


def head_of(path: Path) -> str:
    """Return the name of the last layer with a matrix in an HDF5 file."""
    with h5py.File(path) as file:
        layers = json.loads(file.attrs["model_config"])["config"]["layers"]
        groups = file["model_weights"]
        names: list[str] = [layer["config"]["name"] for layer in layers]
        return [name for name in names if name in groups and len(groups[name])][-1]


def without_sums(recording: Path, path: Path) -> Path:
    """Return a copy of a recorded run as older releases of policytool wrote it."""
    shutil.copy(recording, path)
    with h5py.File(path, "r+") as file:
        run = json.loads(bytes(file["recording"][()]))
        for call in run["calls"]:
            del call["weights"]
        for key in ("weights", "rounding"):
            run.pop(key, None)
        del file["recording"]
        file["recording"] = np.frombuffer(json.dumps(run).encode(), "uint8")
    return path


@pytest.mark.parametrize("change", [1e-4, 0.05])
def test_a_changed_weight_is_named_although_rounding_could_explain_its_error(
    runs: Runs, tmp_path: Path, change: float
) -> None:
    """The layers compute in 16 bits, and the weights are in float32."""
    path = tmp_path / "model.h5"
    shutil.copy(FIXTURES / MIXED, path)
    head = head_of(path)
    edited_weights(path, head, change)
    result = runs.run(path, against=runs.recording(MIXED))
    (run,) = result.runs
    assert run.changed_weights is not None
    assert [name.rpartition("/")[2] for name in run.changed_weights] == [head]
    outputs = [output.accumulated.relative or 0.0 for output in run.outputs if output.accumulated]
    if max(outputs) > 1e-6:
        assert_named(result, head)
    else:
        assert "weights-differ" in {note.code for note in result.notes}


def test_an_older_recording_has_no_sums_of_weights(runs: Runs, tmp_path: Path) -> None:
    """A note says that changed weights may be missed."""
    old = without_sums(runs.recording(MIXED), tmp_path / "old.h5")
    result = runs.run(FIXTURES / MIXED, against=old)
    assert result.is_equal
    assert result.runs[0].changed_weights is None
    assert "older release" in result.notes[0].message


_SUBCLASSED: Final = """
import sys, numpy as np, tf_keras
class Net(tf_keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf_keras.layers.Dense(3)
    def call(self, x):
        return self.dense(x)
model = Net()
model.predict(np.zeros((8, 4), "float32"))
model.save(sys.argv[1], save_format="tf")
"""


@pytest.mark.parametrize("is_converted", [True, False])
def test_a_note_has_a_conversion_only_if_one_is_known(
    runs: Runs, compat_python: Path, tmp_path: Path, *, is_converted: bool
) -> None:
    """The recorded run is one of an older release of the same library."""
    file, model = tmp_path / "old.h5", tmp_path / "net"
    if is_converted:
        shutil.copytree(FIXTURES / "tf2.15/wrappers", model)
    else:
        run_script(compat_python, "-c", _SUBCLASSED, model)
    runs.run(model, record=file, batches=2)
    with h5py.File(file, "r+") as stored:
        run = json.loads(bytes(stored["recording"][()]))
        run["side"]["library"] = "tensorflow.keras 2.9.0"
        del stored["recording"]
        stored["recording"] = np.frombuffer(json.dumps(run).encode(), "uint8")
    result = runs.run(model, against=file)
    (note,) = (note.message for note in result.notes if note.code == "not-keras3")
    assert ("`policytool migrate" in note) is is_converted


def test_a_graph_may_round_in_its_dtypes(runs: Runs, tmp_path: Path) -> None:
    """The limit follows from the operations; a graph with other weights has that of float32."""
    export = FIXTURES / "keras3.15/global_mixed_float16.export"
    file = tmp_path / "graph.h5"
    runs.run(export, record=file)
    result = runs.run(export, against=file)
    (judgement,) = result.runs[0].verdict.judgements
    assert result.is_equal
    assert 1e-3 < judgement.tolerance < 0.05
    with h5py.File(file, "r+") as stored:
        run = json.loads(bytes(stored["recording"][()]))
        assert "float16" in {group["dtype"] for group in run["rounding"]}
        run["weights"] = "1"
        del stored["recording"]
        stored["recording"] = np.frombuffer(json.dumps(run).encode(), "uint8")
    other = runs.run(export, against=file)
    (judgement,) = other.runs[0].verdict.judgements
    assert other.runs[0].changed_weights == ()
    assert judgement.tolerance < 1e-5


def test_allowed_share_of_changes_does_not_apply_without_a_change_of_precision(runs: Runs) -> None:
    fixture = CONFIGS[0][0]
    file = runs.recording(fixture)
    result = runs.run(FIXTURES / fixture, against=file, max_change=0.5)
    assert {note.code for note in result.notes} == {"recorded", "unused-max-change"}


def test_a_converted_model_is_compared_by_its_layers(runs: Runs) -> None:
    """The file of another library has the same layers."""
    file = runs.recording("tf2.15/default_float32.h5")
    result = runs.run(FIXTURES / "keras3.15/default_float32.keras", against=file)
    assert result.is_equal
    assert not result.runs[0].unmatched
    assert result.reference.library != result.candidate.library


def test_another_policy_is_undecided_on_synthetic_inputs(runs: Runs) -> None:
    """A note names the first layer with another dtype."""
    file = runs.recording("tf2.15/default_float32.h5")
    result = runs.run(
        FIXTURES / "tf2.15/default_float32.h5", against=file, candidate=Options(to="mixed_bfloat16")
    )
    assert result.answer is Answer.UNDECIDED
    assert "bfloat16 instead of float32" in result.notes[-1].message


def test_a_graph_is_compared_by_its_outputs(runs: Runs) -> None:
    """An export of Keras 3 has no layers."""
    model = FIXTURES / "keras3.15/global_mixed_float16.keras"
    file = runs.recording("keras3.15/global_mixed_float16.keras")
    export = FIXTURES / "keras3.15/global_mixed_float16.export"
    (run,) = runs.run(export, against=file).runs
    assert run.outputs[0].accumulated is not None
    assert not run.calls
    assert runs.run(model, against=file).is_equal


_NAMED_SIGNATURES: Final = """
import sys, tensorflow as tf
module = tf.Module()
module.w = tf.Variable([[1.0, -2.0], [0.5, 3.0]])
spec = tf.TensorSpec([None, 2], tf.float32, name="x")
scale = tf.TensorSpec([], tf.float32, name="scale")
module.score = tf.function(lambda x: {"score": x @ module.w}, input_signature=[spec])
module.both = tf.function(
    lambda scale, x: {"scaled": scale * (x @ module.w)}, input_signature=[scale, spec]
)
tf.saved_model.save(module, sys.argv[1], {"score": module.score, "both": module.both})
"""


def test_a_graph_without_default_signature_runs_one_that_accepts_the_inputs(
    runs: Runs, compat_python: Path, tmp_path: Path
) -> None:
    """Both the recording and the comparison use it, and say so."""
    model = tmp_path / "module"
    run_script(compat_python, "-c", _NAMED_SIGNATURES, model)
    np.savez(tmp_path / "x.npz", x=np.ones((16, 2), "float32"))
    file = tmp_path / "run.h5"
    runs.run(model, record=file, inputs=tmp_path / "x.npz")
    result = runs.run(model, against=file)
    assert result.is_equal
    assert [output.name for output in result.runs[0].outputs] == ["score"]
    assert result.runs[0].inputs.notes == ("signature score is compared, and not both",)
    np.savez(tmp_path / "y.npz", y=np.ones((16, 2)), z=np.ones((16, 2)))
    with pytest.raises(WorkerError, match=r"no signature accepts the inputs: signature both: "):
        runs.run(model, record=tmp_path / "other.h5", inputs=tmp_path / "y.npz")


PLANTED: Final = fixture_script("writer.run_cases").PLANTED
SAMPLE: Final = sampled("planted differences", range(len(PLANTED)), share=8)


@pytest.fixture(scope="module")
def planted(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with models of Keras 3, and copies that each differ in one layer."""
    folder = tmp_path_factory.mktemp("planted")
    models = {PLANTED[number][0] for number in SAMPLE}
    script = FIXTURES / "writer" / "run_cases.py"
    run_script(compat_python, script, folder, "keras", *sorted(models))
    return folder


@pytest.mark.parametrize("number", SAMPLE)
def test_a_planted_difference_is_named(runs: Runs, planted: Path, number: int) -> None:
    """
    The layer, or one in it, is the origin, or in a note if a later layer hides its difference.
    """
    name, layer, _ = PLANTED[number]
    recording = planted / f"{name}.run.h5"
    if not recording.exists():
        runs.run(planted / f"{name}.keras", inputs=planted / f"{name}.npz", record=recording)
    result = runs.run(planted / f"{name}-{number}.keras", against=recording)
    (run,) = result.runs
    origin = f"layer {run.origin.path} (" if run.origin is not None else ""
    assert re.search(rf"/{layer}(?:/\S+)? \(", origin + result.notes[-1].message)


_LITE: Final = """
import sys, tensorflow as tf, keras
model = keras.models.load_model(sys.argv[1])
for factor, path in ((1, sys.argv[2]), (2, sys.argv[3])):
    model.layers[1].set_weights([factor * array for array in model.layers[1].get_weights()])
    with open(path, "wb") as file:
        file.write(tf.lite.TFLiteConverter.from_keras_model(model).convert())
"""


def test_a_tensorflow_lite_file_is_compared_by_its_outputs(
    runs: Runs, compat_python: Path, tmp_path: Path
) -> None:
    """Its converter runs in the environment, and the second file has other weights."""
    model = FIXTURES / "keras3.15/default_float32.keras"
    same, other = tmp_path / "same.tflite", tmp_path / "other.tflite"
    run_script(compat_python, "-c", _LITE, model, same, other)
    against = runs.recording("keras3.15/default_float32.keras")
    (run,) = runs.run(same, against=against).runs
    assert run.is_equal_within_rounding
    assert not run.calls
    (run,) = runs.run(other, against=against).runs
    assert not run.is_equal_within_rounding


def test_all_values_are_recorded_on_request(runs: Runs, tmp_path: Path) -> None:
    """Each record then has an array."""
    path = tmp_path / "all.h5"
    fixture = FIXTURES / "tf2.15/default_float32.h5"
    runs.run(fixture, record=path, record_all=True)
    with h5py.File(path) as file:
        assert len(file["activations"]) == len(file["layers/sketches"])
        assert np.array_equal(file["activations/2"], file["outputs/0"])


def test_other_outputs_are_an_error(runs: Runs) -> None:
    """A model with other inputs or outputs cannot be compared."""
    file = runs.recording("tf2.15/default_float32.h5")
    with pytest.raises(WorkerError):
        runs.run(FIXTURES / "tf2.15/rnn.h5", against=file)
