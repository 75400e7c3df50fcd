"""``migrate --weights``: an architecture and its weights become one model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest
import yaml

import policytool
from policytool.commands.migrate import Status
from policytool.formats import format_detection
from policytool.support.errors import ModelFileError, UsageError
from tests.conftest import run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled
from tests.helpers.separate_files import edit, separate
from tests.helpers.small_models import dense, sequential

if TYPE_CHECKING:
    from policytool.results import Migration

RELEASES: Final = ("tf2.3", "tf2.4", "tf2.15", "keras3.0", "keras3.3", "keras3.15")
OTHER_CONTENTS: Final = {
    "awq_policy": "Keras 3.15 writes archives without its zero points, so that weights do not fit",
    "gptq_policy": "as above",
    "keras_ext_is_hdf5": "it is HDF5 with another suffix",
    "sharded_00000": "it has no architecture",
    "subclassed": "no config lists its layers",
    "text_vectorization": "the archive stores the words",
    "weights_only": "it has no architecture",
}
"""Cases whose architecture and weights are not all of the model, and why."""

MODELS: Final = tuple(
    path
    for release in RELEASES
    for path in sorted((FIXTURES / release).iterdir())
    if path.suffix in {".h5", ".keras"}
    and path.is_file()
    and path.name.partition(".")[0] not in OTHER_CONTENTS
)
OLD: Final = FIXTURES / "tf2.4/default_float32.h5"
ARCHIVE: Final = FIXTURES / "keras3.15/default_float32.keras"


def joined(architecture: Path, weights: Path, **options: Any) -> Migration:
    """Return the migration of an architecture and weights to Keras 3."""
    output = options.pop("output", architecture.with_name("joined.keras"))
    target = options.pop("target", "keras3")
    return policytool.migrate(
        architecture, weights=weights, target=target, output=output, verify=False, **options
    )


def contents(path: Path) -> tuple[Any, dict[tuple[str, ...], bytes]]:
    """Return the config of a model without its training config, and the bytes of its variables."""
    document = format_detection.document(path, path.name)
    whole = document.config if isinstance(document.config, dict) else {}
    config = {
        key: value for key, value in whole.items() if key not in {"compile_config", "build_config"}
    }
    with format_detection.open_values(path, document) as values:
        assert values is not None
        return config, {
            tensor.path: b"".join(np.asarray(block).tobytes() for block in values.blocks(tensor))
            for tensor in document.tensors or ()
            if tensor.path[0] != "optimizer"
        }


@THOROUGH
@pytest.mark.parametrize(
    "model",
    sampled("models to separate", MODELS, share=16),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_separate_files_become_the_model_that_the_whole_file_becomes(
    model: Path, tmp_path: Path
) -> None:
    """The config and all values are equal, or both have the same blockers."""
    target, suffix = (
        ("tf2.15", ".h5") if model.parent.name.startswith("keras3") else ("keras3", ".keras")
    )
    architecture, weights = separate(model, tmp_path / "separate")
    whole, output = tmp_path / f"whole{suffix}", tmp_path / f"joined{suffix}"
    expected = policytool.migrate(model, target=target, output=whole, verify=False)
    done = joined(architecture, weights, target=target, output=output)
    assert done.status is expected.status
    if expected.status is not Status.WRITTEN:
        assert {item.code for item in done.blockers} == {item.code for item in expected.blockers}
        return
    assert contents(output) == contents(whole)


@pytest.mark.parametrize(
    "name", ["weights_only.h5", "weights_only.weights.h5", "weights_only.ckpt.index"]
)
def test_weights_of_each_layout(name: str, tmp_path: Path) -> None:
    """HDF5 by names and by paths, and a checkpoint, also by its prefix."""
    weights = FIXTURES / "tf2.15" / name
    architecture = _dense_architecture(tmp_path)
    assert joined(architecture, weights).status is Status.WRITTEN
    stored = contents(weights)[1] if not name.endswith(".index") else {}
    result = contents(tmp_path / "joined.keras")[1]
    assert set(stored.values()) <= set(result.values())
    if name.endswith(".index"):
        again = joined(architecture, weights.with_suffix(""), output=tmp_path / "again.keras")
        assert again.status is Status.WRITTEN
        assert contents(tmp_path / "again.keras") == contents(tmp_path / "joined.keras")


def test_architectures_of_each_format_and_shards(tmp_path: Path) -> None:
    """YAML, a TensorFlow.js topology without weights, and weights in shards."""
    sharded = FIXTURES / "keras3.15/sharded.weights.json"
    architecture = Path(shutil.copy(FIXTURES / "keras3.15/default_float32.json", tmp_path))
    assert joined(architecture, sharded).status is Status.WRITTEN
    source, weights = separate(OLD, tmp_path / "old")
    config = json.loads(source.read_text(encoding="utf-8"))
    files = {"a.yaml": yaml.safe_dump(config), "model.json": json.dumps({"modelTopology": config})}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        output = tmp_path / f"{name}.keras"
        assert joined(tmp_path / name, weights, output=output).status is Status.WRITTEN
    assert contents(tmp_path / "a.yaml.keras") == contents(tmp_path / "model.json.keras")


def test_the_weights_of_a_whole_model(tmp_path: Path) -> None:
    """A model with its own config also contains weights."""
    architecture, _ = separate(OLD, tmp_path)
    assert joined(architecture, OLD).status is Status.WRITTEN
    assert joined(architecture, ARCHIVE, output=tmp_path / "b.keras").status is Status.WRITTEN


def test_layers_with_other_names_are_matched_by_position(tmp_path: Path) -> None:
    """Layers are matched as by ``load_weights``, and a note says so."""
    architecture, weights = separate(OLD, tmp_path)
    expected = joined(architecture, weights)
    text = architecture.read_text(encoding="utf-8")
    architecture.write_text(text.replace('"dense"', '"first"'), encoding="utf-8")
    done = joined(architecture, weights, output=tmp_path / "renamed.keras")
    assert (expected.status, done.status) == (Status.WRITTEN, Status.WRITTEN)
    notes = [note.message for note in done.notes if note.code == "weights-by-position"]
    assert len(notes) == 1
    assert "dense instead of first" in notes[0]
    values = [contents(tmp_path / name)[1] for name in ("joined.keras", "renamed.keras")]
    assert values[0] == values[1]


def _with_more_units(architecture: Path, _: Path) -> str:
    edit(architecture, {"dense": {"units": 5}})
    return "Dense dense has the shape (6, 5), but (6, 4) is stored"


def _with_another_order(_: Path, weights: Path) -> str:
    with h5py.File(weights, "r+") as file:
        names = list(file.attrs["layer_names"])
        file.attrs["layer_names"] = names[::-1]
    return "lists the layer dense_1 in the place of dense"


def _without_a_layer(_: Path, weights: Path) -> str:
    with h5py.File(weights, "r+") as file:
        del file["dense_1"]
        file.attrs["layer_names"] = [
            name for name in file.attrs["layer_names"] if "dense_1" not in str(name)
        ]
    return "Dense dense_1 has no stored variables"


def _of_another_model(architecture: Path, weights: Path) -> str:
    _, others = separate(FIXTURES / "tf2.4/nested_models.h5", architecture.parent / "others")
    weights.write_bytes(others.read_bytes())
    shutil.rmtree(others.parent)
    return "Dense dense has 2 variables, but 6 are stored"


def _with_a_layer_too_many(_: Path, weights: Path) -> str:
    with h5py.File(weights, "r+") as file:
        file.copy("dense", "dense_2")
        file.attrs["layer_names"] = [*file.attrs["layer_names"], b"dense_2"]
    return "contains the variables of the layer dense_2, which the architecture lacks"


@pytest.mark.parametrize(
    "change",
    [
        _with_more_units,
        _with_another_order,
        _without_a_layer,
        _of_another_model,
        _with_a_layer_too_many,
    ],
)
def test_weights_that_do_not_fit_name_the_layer(change: Any, tmp_path: Path) -> None:
    """One sentence about the file with the weights; nothing is written."""
    architecture, weights = separate(OLD, tmp_path)
    sentence = change(architecture, weights)
    ended = run("migrate", architecture, "--weights", weights, "--target", "keras3")
    assert (ended.code, ended.err.count("\n")) == (3, 1)
    assert str(weights) in ended.err
    assert sentence in ended.err
    assert "[weights-mismatch]" in ended.err
    assert {path.name for path in tmp_path.iterdir()} == {architecture.name, weights.name}


def test_paths_of_objects_that_do_not_fit_name_the_layer(tmp_path: Path) -> None:
    """
    The error names the layer for another shape, for a missing layer, and for an additional layer.
    """
    architecture, weights = separate(ARCHIVE, tmp_path)
    original = architecture.read_bytes()
    edit(architecture, {"dense": {"units": 5}})
    with pytest.raises(ModelFileError, match=r"Dense dense has the shape \(6, 5\)"):
        joined(architecture, weights)
    architecture.write_bytes(original)
    with h5py.File(weights, "r+") as file:
        file.move("layers/dense_1", "layers/dense_2")
    with pytest.raises(ModelFileError, match="stores the variable layers/dense_2/vars/0"):
        joined(architecture, weights)
    with h5py.File(weights, "r+") as file:
        del file["layers/dense_2"]
    with pytest.raises(ModelFileError, match="Dense dense_1 has no stored variables"):
        joined(architecture, weights)


def _dense_architecture(folder: Path) -> Path:
    """Write the architecture of the fixtures ``weights_only``."""
    architecture = folder / "a.json"
    layer = dense(units=3, batch_input_shape=[None, 6])
    architecture.write_text(json.dumps(sequential(layer)), encoding="utf-8")
    return architecture


def test_lacking_variables_do_not_fit_if_no_release_loads_the_result(tmp_path: Path) -> None:
    """Only the conversion makes the config of Keras 2 one that a release loads from paths."""
    weights = Path(shutil.copy(FIXTURES / "tf2.15/weights_only.weights.h5", tmp_path))
    with h5py.File(weights, "r+") as file:
        paths: list[str] = []
        file.visit(paths.append)
        del file[next(path for path in paths if path.endswith("vars/1"))]
    with pytest.raises(ModelFileError, match="the variable bias of Dense dense_a is not stored"):
        joined(_dense_architecture(tmp_path), weights)


def test_unlisted_variables_block_the_conversion(tmp_path: Path) -> None:
    """The weights fit, because HDF5 lists the variables of each layer, but values would be lost."""
    weights = Path(shutil.copy(FIXTURES / "tf2.15/weights_only.h5", tmp_path))
    with h5py.File(weights, "r+") as file:
        paths: list[str] = []
        file.visit(paths.append)
        file[next(path for path in paths if path.endswith("bias:0")) + "_old"] = np.zeros(3)
    done = joined(_dense_architecture(tmp_path), weights)
    assert [blocker.code for blocker in done.blockers] == ["variables"]


def test_values_are_cast_and_counted(tmp_path: Path) -> None:
    """A value that overflows the new dtype blocks the output."""
    architecture, weights = separate(OLD, tmp_path)
    done = joined(architecture, weights, to="float16", include=["outputs"])
    assert done.status is Status.WRITTEN
    stored = {len(value) for value in contents(tmp_path / "joined.keras")[1].values()}
    assert stored == {48, 8, 24, 6}
    with h5py.File(weights, "r+") as file:
        file["dense/dense/kernel:0"][0, 0] = 1e30
    again = joined(architecture, weights, to="float16", output=tmp_path / "b.keras")
    assert [blocker.code for blocker in again.blockers] == ["overflow"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "specify the release with --target"),
        (("--target", "keras3", "--in-place"), "--in-place and --weights conflict"),
        (("--target", "keras3", "-o", "a.json"), "which architecture JSON cannot contain"),
        (("--target", "keras3", "-o", "weights.h5", "--existing=replace"), "file with the weights"),
        (("--target", "keras3", "model.h5"), "those of one architecture"),
        (("--target", "keras3", "--plan", "plan.json"), "--plan"),
    ],
)
def test_usage_errors(
    options: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Options that contradict ``--weights``."""
    separate(OLD, tmp_path)
    shutil.copy(OLD, tmp_path / "model.h5")
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / "weights.h5").read_bytes()
    ended = run("migrate", "architecture.json", "--weights", "weights.h5", *options)
    assert ended.code == 2, ended
    assert sentence.lower() in ended.err.lower()
    assert (tmp_path / "weights.h5").read_bytes() == before


def test_files_of_other_kinds(tmp_path: Path) -> None:
    """A model with its own weights, an architecture as weights, and a custom class."""
    architecture, weights = separate(OLD, tmp_path)
    with pytest.raises(UsageError, match="has its own weights"):
        joined(OLD, weights, output=tmp_path / "x.keras")
    with pytest.raises(ModelFileError, match="contains no weights"):
        joined(architecture, architecture)
    with pytest.raises(ModelFileError, match="contains weights that cannot be joined"):
        joined(architecture, FIXTURES / "tf2.15/default_float32")
    subclassed = separate(FIXTURES / "tf2.15/subclassed.keras", tmp_path / "subclassed")
    with pytest.raises(ModelFileError, match="custom class Net, whose config lists no layers"):
        joined(*subclassed)


def test_a_report_names_the_format_of_the_architecture(tmp_path: Path) -> None:
    """The plan is for the file that was specified."""
    architecture, weights = separate(OLD, tmp_path)
    done = joined(architecture, weights)
    assert done.plan.format == "json"
    assert done.plan.path == str(architecture)
