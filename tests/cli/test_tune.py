"""``policytool tune`` with TensorFlow: what it writes, how it ends, and each objective."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

import policytool
from policytool.reports.tuning import training_code
from tests.conftest import Ended, run, tensorflow
from tests.helpers.convertible_models import load
from tests.helpers.example_tunings import layer, trial, tuning
from tests.helpers.marks import SLOW
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = SLOW

RNN: Final = "rnn.keras"
CLASSIFIER: Final = "classifier.keras"
TIGHT: Final = ("--to", "mixed_float16", "--tolerance", "0.0006")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with two models and inputs of the second."""
    monkeypatch.chdir(tmp_path)
    fixtures = ROOT / "fixtures/keras3.15"
    shutil.copy(fixtures / "rnn_mixed.keras", RNN)
    shutil.copy(fixtures / "global_mixed_float16.keras", CLASSIFIER)
    rows = np.random.default_rng(0).normal(size=(30, 6)).astype("float32")
    np.savez("x.npz", features=rows)
    np.save("y.npy", np.arange(30) % 2)
    return tmp_path


def tune(*arguments: str) -> tuple[Ended, dict[str, Any]]:
    """Run ``tune`` and return its JSON report as well."""
    ended = run("tune", *arguments, "--python", tensorflow(), "--format", "json")
    return ended, json.loads(ended.out)["tuning"] if ended.out else {}


def policies(path: str) -> dict[str, str | None]:
    """Return the policy of each layer of a file."""
    return {layer.path: layer.policy for layer in policytool.inspect(path).layers}


def passes(trial: dict[str, Any]) -> bool:
    """Return whether a trial meets the objective on both halves of inputs too few for a bound."""
    return bool(max(trial["excess"], trial["validation"]) <= 1)


def test_the_written_model_has_the_set() -> None:
    """Each removal was tried and fails, and the plan in the report writes the same model."""
    ended, result = tune(RNN, *TIGHT, "-o", "tuned.keras", "--format", "json=report.json")
    assert ended.code == 5, ended.err  # synthetic inputs decide nothing
    kept = result["kept"]
    assert 0 < len(kept) < len(result["layers"])
    written = policies("tuned.keras")
    for item in result["layers"]:
        expected = "float32" if item["path"] in kept else "mixed_float16"
        assert written[item["path"]] == expected
    trials = {frozenset(trial["kept"]): trial for trial in result["trials"]}
    assert passes(trials[frozenset(kept)])
    assert result["margin"] or not any(passes(trials[frozenset(kept) - {path}]) for path in kept)
    ended = run("migrate", "--plan", "report.json", RNN, "-o", "planned.keras")
    assert ended.code == 0, ended.err
    assert policies("planned.keras") == written
    ended = run("check", "tuned.keras", "--format", "json", "--python", tensorflow())
    (measured,) = json.loads(ended.out)["check"]["runs"]
    assert all(output["accumulated"]["relative"] <= 0.0006 for output in measured["outputs"])


def test_the_same_search_has_the_same_result() -> None:
    """Searches with the same seed and the same budget have the same result."""
    actual = [tune(RNN, *TIGHT, "--budget", "12", "--preview")[1] for _ in range(2)]
    for item in actual:
        del item["seconds"]
    assert actual[0] == actual[1]


def test_nothing_has_to_stay_in_float32(place: Path) -> None:
    """One trial is enough, and layers with a rule are converted."""
    arguments = (CLASSIFIER, "--to", "float16", "--include", "outputs", "--preview")
    ended, result = tune(*arguments, "--format", "html=page.html")
    assert ended.code == 5, ended.err
    assert "data-graph=" in (place / "page.html").read_text(encoding="utf-8")
    assert (result["kept"], len(result["trials"]), result["ending"]) == ([], 1, "minimal")


def test_no_set_is_found_within_the_budget(place: Path) -> None:
    """Nothing is written, and the closest set is reported with its error."""
    tight = ("--to", "mixed_bfloat16", "--tolerance", "0.0001", "--include", "exceptions")
    ended, result = tune(CLASSIFIER, *tight, "--budget", "2", "--set", ".*dense.*=bfloat16")
    assert ended.code == 1, ended.err
    assert result["best"] is None
    assert result["closest"]["excess"] > 1
    assert sorted(path.name for path in place.iterdir() if "bfloat16" in path.name) == []


@pytest.mark.parametrize(
    "objective",
    [
        ("--metric", "agreement=0"),
        ("--labels", "y.npy", "--metric", "accuracy=0"),
        ("--metric", "own:distance=0.01"),
        ("--tolerance", "0.01", "--gradients"),
    ],
    ids=" ".join,
)
def test_objectives(objective: tuple[str, ...], place: Path) -> None:
    """Each of them is met by the model that is written; 15 other rows decide nothing."""
    (place / "own.py").write_text(
        "import numpy as np\n"
        "def distance(labels, predictions):\n"
        "    return float(np.abs(labels - predictions).max())\n"
        "distance.higher_is_better = False\n"
    )
    inputs = ("--inputs", "x.npz", "--to", "mixed_bfloat16", "--include", "exceptions")
    ended, result = tune(CLASSIFIER, *inputs, *objective, "-o", "out.keras")
    assert ended.code == 5, ended.err
    assert result["split"] == "shared"
    assert result["best"]["excess"] <= 1
    assert result["best"]["validation"] <= 1
    assert (place / "out.keras").is_file()


def test_enough_rows_show_that_the_model_is_safe() -> None:
    """The bound is about the half that the search did not use."""
    np.savez("many.npz", features=np.random.default_rng(1).normal(size=(800, 6)).astype("float32"))
    inputs = ("--inputs", "many.npz", "--to", "mixed_float16", "--include", "exceptions")
    ended, result = tune(CLASSIFIER, *inputs, "--preview")
    assert ended.code == 0, ended.err
    promise = result["best"]["promise"]
    assert (result["answer"], promise["answer"], promise["rows"]) == ("safe", "safe", 400)
    assert 0 < promise["most"] <= 0.01
    assert "on 400 other rows" in result["sentence"]


def test_a_search_is_interrupted_and_resumed(place: Path) -> None:
    """Ctrl-C writes the best set so far; the record continues the search, for this one alone."""
    command = [sys.executable, "-m", "policytool", "tune", RNN, *TIGHT, "--python", tensorflow()]
    command += ["--resume", "trials.json", "-o", "first.keras", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        record = place / "trials.json"
        end = time.monotonic() + 120
        while time.monotonic() < end and not (
            record.exists() and len(json.loads(record.read_text())["trials"]) > 3
        ):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    result = json.loads(out)["tuning"]
    assert result["ending"] == "interrupted"
    kept = {path for path, policy in policies("first.keras").items() if policy == "float32"}
    assert kept >= set(result["kept"])
    done = len(json.loads(record.read_text())["trials"])
    ended, resumed = tune(RNN, *TIGHT, "--resume", "trials.json", "-o", "second.keras")
    assert ended.code == 5, ended.err
    assert resumed["resumed"] == done
    assert len(resumed["kept"]) <= len(result["kept"])
    other = ("--to", "mixed_float16", "--tolerance", "0.5", "--resume", "trials.json")
    ended = run("tune", RNN, *other, "--python", tensorflow())
    assert ended.code == 3
    assert "belongs to a search with other options" in ended.err


def test_time_ends_a_search() -> None:
    """The first set does not pass, and there is no time for another one."""
    ended, result = tune(RNN, *TIGHT, "--budget", "1s", "--preview")
    assert ended.code == 1, ended.err
    assert result["ending"] == "time"
    assert result["best"] is None


def test_tuned_savedmodel_is_exported_again(place: Path) -> None:
    """The graph then follows the policies."""
    shutil.copytree(ROOT / "fixtures/tf2.5/global_mixed_float16", place / "exported")
    options = ("--to", "mixed_bfloat16", "--tolerance", "0.1", "-o", "tuned")
    ended, result = tune("exported", *options)
    assert ended.code == 5, ended.err
    assert (place / "tuned/saved_model.pb").is_file()
    assert result["reference"]["library"].startswith("tf_keras")


def test_python_returns_the_search(place: Path) -> None:
    result = policytool.tune(
        RNN, to="mixed_float16", tolerance=0.0006, output="out.keras", python=tensorflow()
    )
    assert result.passed
    assert result.output is not None
    assert result.output.name == "out.keras"
    assert set(result.kept) <= {layer.path for layer in result.layers}
    assert len(repr(result)) <= 200
    assert result.to_dict()["plans"]
    assert (place / "out.keras").is_file()


NESTED: Final = """
import json, pathlib, sys
import keras
layers = keras.layers
def head():
    return keras.Sequential([layers.Dense(4, name="c"), layers.Dense(4, name="d")], name="head")
def inner():
    source = keras.Input((4,))
    return keras.Model(source, layers.Dense(4, name="b")(source), name="inner")
def graph():
    source = keras.Input((4,))
    tensor = head()(inner()(layers.Dense(4, name="a")(source)))
    return keras.Model(source, layers.Dense(2, name="out")(tensor), name="net")
def chain():
    parts = [layers.Dense(4, name="a"), inner(), head(), layers.Dense(2, name="out")]
    model = keras.Sequential(parts, name="net")
    model.build((None, 4))
    return model
def dtypes(model, path):
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from dtypes(layer, path + "/" + layer.name)
        elif layer.weights:
            yield path + "/" + layer.name, layer.compute_dtype
kind, file, code = sys.argv[1:]
exec(pathlib.Path(code).read_text())
model = {"graph": graph, "chain": chain}[kind]()
model.save(file)
print(json.dumps(dict(dtypes(model, "net"))))
"""


@pytest.mark.parametrize("kind", ["graph", "chain"])
def test_model_that_is_created_under_the_map_has_the_dtypes_of_the_set(
    kind: str, place: Path
) -> None:
    """Also in nested models, which Keras names in the paths of some layers only."""

    def dtypes(code: str) -> dict[str, str]:
        (place / "policies.py").write_text(code)
        words = [tensorflow(), "-c", NESTED, kind, "nested.keras", "policies.py"]
        ended = subprocess.run(words, check=True, capture_output=True, text=True)
        result: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
        return result

    paths = list(dtypes(""))
    kept = {"net/a", "net/inner/b", "net/head/d", "net/out"}
    layers = tuple(layer(path, kept=path in kept) for path in paths)
    result = tuning(
        layers=layers,
        trials=(trial(*(path for path in paths if path in kept), excess=0.5),),
        fixed={},
        connected_layers=load(place / "nested.keras").connected_layers,
    )
    code = training_code.code_of(result)
    assert code is not None
    expected = {path: "float32" if path in kept else "float16" for path in paths}
    assert dtypes(code) == expected
