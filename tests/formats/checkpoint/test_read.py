"""
TensorFlow checkpoints as weights files: their tensors, and the files that are read as a checkpoint.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.formats.checkpoint import MAGIC
from policytool.formats.checkpoint.bundle import OBJECT_GRAPH_KEY, is_table
from policytool.support import limits
from policytool.support.errors import ModelFileError
from tests.conftest import run
from tests.contracts.format_contract import FormatContract
from tests.helpers import bundles
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

WRITTEN: Final = FIXTURES / "checkpoints"
FLOAT: Final = ("float32", (2,), b"\0" * 8)


class TestCheckpoint(FormatContract):
    package = "checkpoint"
    document_format = ("weights",)
    samples = tuple(WRITTEN / f"{name}.index" for name in ("saver", "training", "listed"))


def layers(model: policytool.Model) -> dict[str, list[str]]:
    """Return the variable names of each layer."""
    return {layer.path: [variable.name for variable in layer.variables] for layer in model.layers}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory with a copy of a checkpoint and its state file."""
    for file in WRITTEN.glob("training.*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "/elsewhere/training"\n', encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_layers_have_the_names_of_the_object_graph() -> None:
    """
    With an object graph, layers have the names of the model's attributes, and variables of the
    optimizer are counted.
    """
    model = policytool.inspect(WRITTEN / "training.index")
    assert layers(model) == {
        "step": ["step"],
        "module": ["scale"],
        "module/words": ["0"],
        "dense_a": ["kernel", "bias"],
        "norm": ["gamma", "beta", "moving_mean", "moving_variance"],
        "dense_b": ["kernel", "bias"],
    }
    assert model.format == "weights"
    assert [item.code for item in model.observations] == ["no-policy", "training-state"]
    assert model.observations[1].message.startswith("14 stored variables belong to an optimizer")
    dtypes = {
        variable.name: variable.dtype for layer in model.layers for variable in layer.variables
    }
    assert (dtypes["scale"], dtypes["kernel"], dtypes["0"]) == ("bfloat16", "float32", "string")


def test_weights_of_tf1_are_distinguished_from_slots_by_name() -> None:
    """
    In a checkpoint of TF 1, slots and powers of Adam and the global step are not weights, and a
    sliced variable is one variable.
    """
    model = policytool.inspect(WRITTEN / "saver.index")
    assert layers(model) == {
        "decoder": ["empty", "kernel", "words"],
        "encoder": ["columns", "rows"],
    }
    shapes = {
        variable.name: variable.shape for layer in model.layers for variable in layer.variables
    }
    assert (shapes["rows"], shapes["columns"]) == ((10, 4), (3, 5, 2))
    assert model.observations[1].message.startswith("5 stored variables belong")


def test_weights_that_only_an_optimizer_leads_to_are_weights() -> None:
    """
    Weights count as weights even if only the optimizer refers to them, as for layers in a list of
    Keras 3.
    """
    model = policytool.inspect(WRITTEN / "listed.index")
    assert layers(model) == {
        "model/head": ["_kernel", "bias"],
        "model/optimizer/_trainable_variables": ["0", "1", "2", "3"],
    }
    assert model.summary.parameters == 6 * 3 + 3 + 3 * 3 + 3 + 3 * 2 + 2


def test_index_without_other_files_is_read_and_reported(place: Path) -> None:
    """
    An index without its other files is read: shapes and dtypes are in the index, and without an
    object graph the keys name the objects. The missing files are reported.
    """
    (place / "training.data-00000-of-00001").unlink()
    model = policytool.inspect(place / "training.index")
    assert layers(model)["net/layer_with_weights-0"] == ["bias", "kernel"]
    assert [item.code for item in model.observations] == ["no-policy", "checkpoint-incomplete"]


@pytest.mark.parametrize(
    "name", ["training", "training.index", "training.data-00000-of-00001", "checkpoint", ".", "*"]
)
def test_every_file_of_a_checkpoint_selects_the_index(name: str, place: Path) -> None:
    """
    Each file of a checkpoint is read as the checkpoint: a shard, the prefix and the state file; a
    directory with it contains one model.
    """
    ended = run("inspect", "--format", "json", name)
    assert ended.code == 0, ended.err
    assert [model["path"] for model in ended.json["models"]] == ["training.index"]
    assert (place / "training.index").is_file()


@pytest.mark.parametrize("name", ["training.data-00000-of-00001", "checkpoint"])
def test_checkpoint_part_without_an_index_fails_only_if_the_user_names_the_part(
    name: str, place: Path
) -> None:
    (place / "training.index").unlink()
    ended = run("inspect", name)
    assert ended.code == 3
    assert "Copy its index, training.index, to the same directory" in ended.err
    assert "[checkpoint-part]" in ended.err
    assert run("inspect", ".").code == 4


def test_state_file_does_not_lead_outside_the_directory(place: Path) -> None:
    """
    Only the last component of a path in a state file is used, so that it cannot lead outside the
    directory.
    """
    (place / "inner").mkdir()
    (place / "inner/checkpoint").write_text(
        'model_checkpoint_path: "../training"\n', encoding="utf-8"
    )
    assert run("inspect", "inner/checkpoint").code == 3


def test_variables_of_a_savedmodel_select_the_savedmodel() -> None:
    path = FIXTURES / "tf2.15/default_float32"
    for part in (
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
        "variables",
    ):
        ended = run("inspect", "--format", "json", path / part)
        assert [model["format"] for model in ended.json["models"]] == ["savedmodel"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty"),
        (b"index", "truncated"),
        (b"version https://git-lfs.github.com/spec/v1\n", "lfs-pointer"),
        (b"\0" * 100, "truncated"),
    ],
)
def test_damaged_index_with_a_shard_is_reported_as_a_damaged_checkpoint(
    content: bytes, code: str, place: Path
) -> None:
    (place / "training.index").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"training\.index") as raised:
        policytool.inspect(place / "training.index")
    assert raised.value.code == code


def test_other_files_called_index_are_no_checkpoints(place: Path) -> None:
    (place / "faiss.index").write_bytes(b"IxFI" + b"\0" * 100)
    assert run("inspect", "faiss.index").code == 3
    assert "[foreign]" in run("inspect", "faiss.index").err


def test_renamed_index_and_previous_format_have_separate_errors(place: Path) -> None:
    shutil.copy(place / "training.index", place / "model.ckpt")
    ended = run("inspect", "model.ckpt")
    assert ended.code == 3
    assert "[checkpoint-v1]" in ended.err


def test_format_detection_and_reader_use_the_same_magic_number() -> None:
    assert is_table(b"\0" * 40 + MAGIC)
    assert not is_table(MAGIC)


def test_variables_with_equal_names_are_named_by_object_path(tmp_path: Path) -> None:
    graph = [
        ([("a", 1), ("b", 2)], []),
        ([("w", 3), ("own", 5)], []),
        ([("w", 4)], []),
        ([], [("dense/kernel", "x")]),
        ([], [("dense/kernel", "y")]),
        ([], [("Variable", "z")]),
    ]
    bundles.write(
        tmp_path / "made",
        dict([bundles.object_graph(graph), *((key, FLOAT) for key in ("x", "y", "z"))]),
    )
    assert layers(policytool.inspect(tmp_path / "made.index")) == {"a": ["w", "own"], "b": ["w"]}


def test_objects_in_circles_and_chains_are_bounded(tmp_path: Path) -> None:
    """A circular object graph is read, and a chain beyond the depth limit is an error."""
    circle = [([("up", 0), ("v", 1)], []), ([("back", 0)], [("", "x")])]
    bundles.write(tmp_path / "circle", dict([bundles.object_graph(circle), ("x", FLOAT)]))
    assert layers(policytool.inspect(tmp_path / "circle.index")) == {"v": ["v"]}
    depth = limits.OBJECT_DEPTH.value + 1
    chain = [*(([("n", index + 1)], []) for index in range(depth)), ([], [("", "x")])]
    bundles.write(tmp_path / "chain", dict([bundles.object_graph(chain), ("x", FLOAT)]))
    with pytest.raises(ModelFileError, match="nests objects to a depth of at least 201 levels"):
        policytool.inspect(tmp_path / "chain.index")


def test_tensors_outside_the_object_graph_are_listed_by_key(tmp_path: Path) -> None:
    bundles.write(tmp_path / "made", dict([bundles.object_graph([([], [])]), ("scope/x", FLOAT)]))
    assert layers(policytool.inspect(tmp_path / "made.index")) == {"scope": ["x"]}
    assert OBJECT_GRAPH_KEY not in str(policytool.inspect(tmp_path / "made.index"))


def test_keys_give_names_if_the_object_graph_is_empty(tmp_path: Path) -> None:
    """The keys are object paths; optimizer slots and counters are not weights."""
    value = ".ATTRIBUTES/VARIABLE_VALUE"
    slot = f"dense/kernel/.OPTIMIZER_SLOT/optimizer/m/{value}"
    keys = (f"dense/kernel/{value}", slot, f"save_counter/{value}")
    bundles.write(
        tmp_path / "made", dict([bundles.object_graph([]), *((key, FLOAT) for key in keys)])
    )
    assert layers(policytool.inspect(tmp_path / "made.index")) == {"dense": ["kernel"]}
