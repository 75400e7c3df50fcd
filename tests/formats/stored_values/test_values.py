"""Stored values: equal for each storage, read in blocks, and never read from outside the file."""

from __future__ import annotations

import hashlib
import io
import json
import math
import shutil
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

from policytool.formats import casting, format_detection
from policytool.formats import tfjs as tfjs_format
from policytool.formats.casting import arrays_of_chunks, numpy_dtype
from policytool.formats.document import Document, Tensor, ValuesError
from policytool.formats.format_detection import open_values
from policytool.formats.hdf5 import datasets
from tests.conftest import UNPACKED
from tests.helpers import small_models
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.formats.document import Values

KERNEL: Final = np.arange(12, dtype="f4").reshape(6, 2)


@contextmanager
def opened(path: Path) -> Iterator[tuple[Values, Document]]:
    """Open the values of a model."""
    document = format_detection.document(path, path.name)
    with open_values(path, document) as stored:
        assert stored is not None
        yield stored, document


def every(path: Path) -> dict[tuple[str, ...], np.ndarray[Any, Any]]:
    """Return all tensors of a model."""
    with opened(path) as (stored, document):
        return {
            tensor.path: np.concatenate(list(stored.blocks(tensor)))
            for tensor in document.tensors or ()
            if math.prod(tensor.shape or ())
        }


def one(path: Path, name: str = "kernel:0") -> np.ndarray[Any, Any]:
    """Return the values of the variable with this name."""
    return next(array for where, array in every(path).items() if where[-1] == name)


def h5(path: Path, kernel: Any, **options: Any) -> Path:
    """Write a complete model with this kernel and these storage options."""
    small_models.h5_model(path, small_models.sequential(), weights=False)
    with h5py.File(path, "a") as file:
        file["model_weights"].create_dataset("dense_a/dense_a/kernel:0", data=kernel, **options)
    return path


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "float32",
        "float64",
        "int8",
        "int64",
        "uint8",
        "bool",
        "complex64",
        ">f4",
        ">i2",
        "S3",
    ],
)
def test_hdf5_gives_values_in_the_machines_byte_order(tmp_path: Path, dtype: str) -> None:
    written = np.arange(12).reshape(6, 2).astype(dtype)
    result = one(h5(tmp_path / "model.h5", written))
    assert result.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(result, written.reshape(-1))


def test_bfloat16_comes_as_such(tmp_path: Path) -> None:
    """From two opaque bytes, with and without the dtype attribute of Keras 3."""
    written = KERNEL.astype(casting.DTYPES["bfloat16"])
    for name, attribute in (("with.h5", True), ("without.h5", False)):
        path = h5(tmp_path / name, written.view("V2"))
        if attribute:
            with h5py.File(path, "a") as file:
                file["model_weights/dense_a/dense_a/kernel:0"].attrs["dtype"] = "bfloat16"
        result = one(path)
        assert result.dtype == casting.DTYPES["bfloat16"]
        np.testing.assert_array_equal(result.astype("f4"), KERNEL.reshape(-1))


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (2, 1)},
        {"chunks": (4, 2), "compression": "gzip", "shuffle": True},
        {"chunks": (5, 2), "fletcher32": True},
        {},
    ],
)
def test_chunks_and_filters_are_read_in_order(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a block contains a part of the tensor."""
    monkeypatch.setattr(datasets, "BLOCK", 32)
    path = h5(tmp_path / "model.h5", KERNEL, **options)
    with opened(path) as (stored, document):
        (tensor,) = document.tensors or ()
        blocks = list(stored.blocks(tensor))
    assert len(blocks) > 1
    np.testing.assert_array_equal(np.concatenate(blocks), KERNEL.reshape(-1))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7, 5, 3), (2, 1, 1, 40)])
def test_shapes_of_every_kind(
    tmp_path: Path, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scalars, empty tensors and tensors of many blocks are read completely."""
    monkeypatch.setattr(datasets, "BLOCK", 64)
    written = np.arange(math.prod(shape), dtype="f4").reshape(shape)
    path = h5(tmp_path / "model.h5", written)
    with opened(path) as (stored, document):
        (tensor,) = document.tensors or ()
        blocks = list(stored.blocks(tensor))
    assert all(block.nbytes <= 64 for block in blocks)
    np.testing.assert_array_equal(np.concatenate([*blocks, np.zeros(0, "f4")]), written.reshape(-1))


def reason(path: Path) -> str:
    """Return the reason why the kernel of a model cannot be read."""
    with opened(path) as (stored, document), pytest.raises(ValuesError) as raised:
        list(
            stored.blocks(
                next(tensor for tensor in document.tensors or () if tensor.path[-1] == "kernel:0")
            )
        )
    return str(raised.value)


def test_external_storage_is_not_opened(tmp_path: Path) -> None:
    """Values in external storage are not read, because they are in another file."""
    (tmp_path / "secret").write_bytes(KERNEL.tobytes())
    path = small_models.h5_model(tmp_path / "model.h5", small_models.sequential(), weights=False)
    with h5py.File(path, "a") as file:
        file["model_weights"].create_dataset(
            "dense_a/dense_a/kernel:0", (6, 2), "f4", external=[(str(tmp_path / "secret"), 0, 48)]
        )
    assert "another file" in reason(path)


def test_virtual_datasets_are_not_followed(tmp_path: Path) -> None:
    """Values of a virtual dataset are not read, because they are in other files."""
    path = small_models.h5_model(tmp_path / "model.h5", small_models.sequential(), weights=False)
    layout = h5py.VirtualLayout((6, 2), "f4")
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (6, 2))
    with h5py.File(path, "a") as file:
        file["model_weights"].create_virtual_dataset("dense_a/dense_a/kernel:0", layout)
    assert "another file" in reason(path)


def test_a_few_bytes_do_not_become_gigabytes(tmp_path: Path) -> None:
    path = small_models.h5_model(tmp_path / "model.h5", small_models.sequential(), weights=False)
    with h5py.File(path, "a") as file:
        file["model_weights"].create_dataset(
            "dense_a/dense_a/kernel:0", (2**20, 2**20), "f4", chunks=(64, 64), compression="gzip"
        )
    assert "stored bytes would expand to" in reason(path)


def test_chunks_too_large_to_hold_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset with chunks larger than a block is not read; no release writes such chunks."""
    monkeypatch.setattr(datasets, "_ROW", 16)
    assert "chunks" in reason(h5(tmp_path / "model.h5", KERNEL, chunks=(6, 2)))


def test_text_of_any_length_is_not_read(tmp_path: Path) -> None:
    """Each element refers to a text of any length."""
    assert "fixed-length" in reason(
        h5(tmp_path / "model.h5", np.array(["a", "b"], dtype=h5py.string_dtype()))
    )


def test_damaged_chunk_makes_the_variable_unreadable_with_a_reason(tmp_path: Path) -> None:
    path = h5(tmp_path / "model.h5", KERNEL, chunks=(6, 2), fletcher32=True)
    data = bytearray(path.read_bytes())
    data[data.index(KERNEL.tobytes()) + 5] ^= 1
    path.write_bytes(data)
    assert "cannot be read" in reason(path)


def test_path_through_a_soft_link_has_no_values(tmp_path: Path) -> None:
    path = h5(tmp_path / "model.h5", KERNEL)
    with h5py.File(path, "a") as file:
        file["model_weights/link"] = h5py.SoftLink("/model_weights/dense_a")
    with opened(path) as (stored, _), pytest.raises(ValuesError, match="no values"):
        list(
            stored.blocks(
                Tensor(path=("link", "dense_a", "kernel:0"), shape=(6, 2), dtype="float32")
            )
        )


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_give_the_values_of_their_weights(tmp_path: Path, compression: int) -> None:
    """In place or, if the member is compressed, after inflating it."""
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file["layers/dense/vars/0"] = KERNEL
    path = small_models.keras_zip(
        tmp_path / "model.keras",
        {**small_models.keras_members(), "model.weights.h5": weights.getvalue()},
        compression=compression,
    )
    np.testing.assert_array_equal(one(path, "0"), KERNEL.reshape(-1))


def test_shards_are_searched_for_a_variable(tmp_path: Path) -> None:
    for number in range(2):
        with h5py.File(tmp_path / f"model_0000{number}.weights.h5", "w") as file:
            file[f"layers/dense{'_1' * number}/vars/0"] = KERNEL + number
    for name, data in small_models.keras_members().items():
        if name.endswith(".json"):
            (tmp_path / name).write_bytes(data)
    result = every(tmp_path)
    np.testing.assert_array_equal(result["layers", "dense", "vars", "0"], KERNEL.reshape(-1))
    np.testing.assert_array_equal(result["layers", "dense_1", "vars", "0"], KERNEL.reshape(-1) + 1)


def test_an_unpacked_model_has_values() -> None:
    """The directory form of ``.keras`` has values."""
    assert all(np.isfinite(array).all() for array in every(UNPACKED).values())


@pytest.mark.parametrize("release", ["tf2.3", "tf2.5", "tf2.15"])
def test_savedmodel_has_the_values_of_the_hdf5_file_of_the_same_release(release: str) -> None:
    twin = {
        array.tobytes() for array in every(FIXTURES / release / "global_mixed_float16.h5").values()
    }
    with opened(FIXTURES / release / "global_mixed_float16") as (stored, document):
        nodes = [node.variable for node in document.nodes.values() if node.variable is not None]
        actual = set()
        for tensor in nodes:
            try:
                actual.add(np.concatenate(list(stored.blocks(tensor))).tobytes())
            except (
                ValuesError
            ):  # an optimizer's iterations and the like, which no checkpoint key leads to
                continue
    assert twin <= actual


def test_an_export_has_values() -> None:
    """Found by nodes of the object graph or, for TF 1, by names."""
    for name in ("keras3.15/default_float32.export", "tf1.15/global_mixed_float16.export"):
        assert every(FIXTURES / name)


def test_savedmodel_without_checkpoint_files_is_an_error(tmp_path: Path) -> None:
    path = small_models.small_saved_model(tmp_path / "model")
    with opened(path) as (stored, _), pytest.raises(ValuesError, match="does not exist"):
        list(
            stored.blocks(Tensor(path=("dense_a", "kernel"), shape=(6, 2), dtype="float32", node=2))
        )


def test_checkpoint_that_contradicts_the_graph_gives_no_values() -> None:
    with opened(FIXTURES / "tf2.15/default_float32") as (stored, document):
        tensor = next(
            node.variable
            for node in document.nodes.values()
            if node.variable is not None and node.variable.shape == (6, 4)
        )
        for wrong in (
            Tensor(path=tensor.path, shape=(4, 6), dtype="float32", node=tensor.node),
            Tensor(path=tensor.path, shape=(6, 4), dtype="float16", node=tensor.node),
        ):
            with pytest.raises(ValuesError, match="the checkpoint stores this variable "):
                list(stored.blocks(wrong))


@pytest.mark.parametrize("name", ["tf2.15/default_float32.json", "tf2.1/default_float32.yaml"])
def test_an_architecture_stores_none(name: str) -> None:
    """An architecture has no values to open."""
    path = FIXTURES / name
    with open_values(path, format_detection.document(path, path.name)) as stored:
        assert stored is None


def test_weights_come_in_the_layers_own_order(tmp_path: Path) -> None:
    """Weights in HDF5 have the order of ``weight_names`` and not the alphabetical order."""
    path = small_models.h5_model(tmp_path / "model.h5", small_models.sequential(), weights=False)
    with h5py.File(path, "a") as file:
        group = file["model_weights"].create_group("dense_a")
        for name in ("zeta", "alpha"):
            group[f"dense_a/{name}:0"] = KERNEL
        group.attrs["weight_names"] = np.array([b"dense_a/zeta:0", b"dense_a/alpha:0"])
    with opened(path) as (stored, document):
        assert [tensor.path[-1] for tensor in stored.in_order(document.tensors or ())] == [
            "zeta:0",
            "alpha:0",
        ]


def test_numbers_in_keras_files_are_ordered_as_numbers() -> None:
    """The eleventh variable comes after the tenth."""
    from policytool.formats.hdf5.datasets import KerasValues

    tensors = tuple(
        Tensor(path=("layers", "dense", "vars", str(number)), shape=(), dtype="float32")
        for number in (10, 2, 0)
    )
    assert [tensor.path[-1] for tensor in KerasValues([]).in_order(tensors)] == ["0", "2", "10"]


def test_variable_outside_the_shards_has_no_values() -> None:
    """A variable that is in no shard has no values."""
    from policytool.formats.hdf5.datasets import KerasValues

    with pytest.raises(ValuesError, match="no values"):
        list(
            KerasValues([]).blocks(
                Tensor(path=("layers", "dense", "vars", "0"), shape=(), dtype="float32")
            )
        )


@pytest.mark.parametrize("size", [1, 3, 4, 5, 7, 16, 48])
def test_chunks_of_a_checkpoint_may_cut_an_element(size: int) -> None:
    data = KERNEL.tobytes()
    actual = list(
        arrays_of_chunks(
            (data[start : start + size] for start in range(0, len(data), size)), np.dtype("f4")
        )
    )
    np.testing.assert_array_equal(np.concatenate(actual), KERNEL.reshape(-1))


def test_dtype_that_numpy_lacks_is_an_error_with_its_name() -> None:
    """8-bit floats are returned as bytes."""
    assert numpy_dtype("bfloat16") == casting.DTYPES["bfloat16"]
    assert numpy_dtype("float8_e5m2") == np.dtype("u1")
    with pytest.raises(ValuesError, match="qint8"):
        numpy_dtype("qint8")


def test_a_checkpoint_that_may_not_be_read_is_a_reason(tmp_path: Path) -> None:
    """A checkpoint that cannot be opened is an error with the message of the operating system."""
    path = small_models.small_saved_model(tmp_path / "model")
    (path / "variables" / "variables.index").mkdir(parents=True)
    with opened(path) as (stored, _), pytest.raises(ValuesError):
        list(
            stored.blocks(Tensor(path=("dense_a", "kernel"), shape=(6, 2), dtype="float32", node=2))
        )


def stored(path: Path) -> set[bytes]:
    """Return the bytes of each tensor of a model."""
    return {array.tobytes() for array in every(path).values()}


@pytest.mark.parametrize(
    "export",
    sorted(
        path for path in FIXTURES.glob("keras3.*/*.export") if path.with_suffix(".keras").exists()
    ),
    ids=str,
)
def test_export_of_keras3_has_the_values_of_the_keras_archive(export: Path) -> None:
    """
    An export of Keras 3 has each variable of the ``.keras`` file once, although it stores copies,
    and the states of random layers.
    """
    states = {
        array.tobytes()
        for path, array in every(export).items()
        if path[0].startswith("seed_generator")
    }
    assert stored(export.with_suffix(".keras")) == stored(export) - states


def test_export_of_tf1_has_the_values_of_the_hdf5_file() -> None:
    """They are found by name, because it has no object graph."""
    assert stored(FIXTURES / "tf1.15/global_mixed_float16.export") == stored(
        FIXTURES / "tf1.15/global_mixed_float16.h5"
    )


@pytest.mark.parametrize("name", ["saver", "training", "listed"])
def test_checkpoints_have_the_values_that_tensorflow_read(name: str) -> None:
    path = FIXTURES / "checkpoints" / f"{name}.index"
    truth = json.loads((FIXTURES / "checkpoints/tensors.json").read_text(encoding="utf-8"))[name]
    with opened(path) as (values, document):
        for tensor in (*(document.tensors or ()), *document.state):
            result = (
                np.concatenate([*values.blocks(tensor), np.zeros(0, tensor.dtype)])
                if tensor.dtype != "string"
                else None
            )
            if result is not None:
                assert hashlib.sha256(result.tobytes()).hexdigest() == truth[str(tensor.key)][2], (
                    tensor
                )


@pytest.mark.parametrize("release", ["tf1.15", "tf2.15"])
def test_weights_in_a_checkpoint_equal_those_in_hdf5(release: str) -> None:
    """The weights that ``save_weights`` wrote into a checkpoint equal those in HDF5."""
    assert stored(FIXTURES / release / "weights_only.ckpt.index") == stored(
        FIXTURES / release / "weights_only.weights.h5"
    )


def test_checkpoint_without_shards_is_an_error(tmp_path: Path) -> None:
    """Although the index contains the shapes."""
    shutil.copy(FIXTURES / "checkpoints/saver.index", tmp_path)
    with (
        opened(tmp_path / "saver.index") as (values, document),
        pytest.raises(ValuesError, match="is missing"),
    ):
        list(values.blocks((document.tensors or ())[0]))
    with (
        opened(tmp_path / "saver.index") as (values, _),
        pytest.raises(ValuesError, match="no values"),
    ):
        list(values.blocks(Tensor(path=("x",), shape=(), dtype="float32")))


def test_weights_in_shards_have_values() -> None:
    assert stored(FIXTURES / "keras3.15/sharded.weights.json") == stored(
        FIXTURES / "keras3.15/sharded_00000.weights.h5"
    )


@pytest.mark.parametrize(
    "case", ["default_float32", "global_mixed_float16", "nested_models", "sequential", "wrappers"]
)
def test_tensorflow_js_models_have_the_values_of_their_sources(case: str) -> None:
    assert stored(FIXTURES / f"tfjs4.22/{case}/model.json") == stored(
        FIXTURES / f"tf2.15/{case}.h5"
    )


def tfjs(
    directory: Path, *weights: dict[str, Any], paths: tuple[str, ...] = ("shard.bin",)
) -> Path:
    """Write a ``model.json`` whose manifest has one group with these tensors."""
    path = directory / "model.json"
    path.write_text(
        json.dumps(
            {"modelTopology": None, "weightsManifest": [{"paths": paths, "weights": weights}]}
        ),
        encoding="utf-8",
    )
    return path


KERNEL_ENTRY: Final = {"name": "dense/kernel", "shape": [6, 2], "dtype": "float32"}


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 47, 48])
def test_tensor_in_several_shards_is_read(
    tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any place of the split and any block size."""
    monkeypatch.setattr(tfjs_format, "BLOCK", 5)
    data = bytes(7) + KERNEL.tobytes()
    (tmp_path / "a.bin").write_bytes(data[: 7 + cut])
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.bin").write_bytes(data[7 + cut :])
    path = tfjs(
        tmp_path,
        {"name": "dense/flags", "shape": [7], "dtype": "bool"},
        KERNEL_ENTRY,
        paths=("a.bin", "sub/b.bin"),
    )
    np.testing.assert_array_equal(one(path, "kernel"), KERNEL.reshape(-1))


@pytest.mark.parametrize(
    ("weights", "paths", "words"),
    [
        (
            [{**KERNEL_ENTRY, "quantization": {"dtype": "uint8", "min": 0.0, "scale": 1.0}}],
            ["shard.bin"],
            "its values are stored quantized",
        ),
        ([KERNEL_ENTRY], ["gone.bin"], "missing"),
        ([KERNEL_ENTRY], ["../shard.bin"], "outside"),
        ([KERNEL_ENTRY], ["link.bin"], "outside"),
        ([KERNEL_ENTRY], ["https://example.org/shard.bin"], "outside"),
        ([KERNEL_ENTRY], ["sub"], "missing"),
        ([KERNEL_ENTRY], [], "shorter"),
        ([{**KERNEL_ENTRY, "name": "dense/first"}, KERNEL_ENTRY], ["shard.bin"], "shorter"),
        (
            [{"name": "dense/words", "shape": [2], "dtype": "string"}, KERNEL_ENTRY],
            ["shard.bin"],
            "text",
        ),
    ],
    ids=["quantised", "gone", "above", "link", "address", "directory", "none", "short", "text"],
)
def test_tensor_outside_the_shards_has_no_values_with_a_reason(
    tmp_path: Path, weights: list[dict[str, Any]], paths: list[str], words: str
) -> None:
    """
    A tensor outside the shards has no values, and no file outside the model's directory is opened.
    """
    home = tmp_path / "model"
    (home / "sub").mkdir(parents=True)
    for directory in (home, tmp_path):
        (directory / "shard.bin").write_bytes(KERNEL.tobytes())
    (home / "link.bin").symlink_to(tmp_path / "shard.bin")
    with (
        opened(tfjs(home, *weights, paths=tuple(paths))) as (values, document),
        pytest.raises(ValuesError, match=words),
    ):
        list(
            values.blocks(
                next(tensor for tensor in document.tensors or () if tensor.path[-1] == "kernel")
            )
        )


def test_an_unknown_tensor_of_a_tensorflow_js_model_has_no_values(tmp_path: Path) -> None:
    with (
        opened(tfjs(tmp_path, KERNEL_ENTRY)) as (values, _),
        pytest.raises(ValuesError, match="no values"),
    ):
        list(values.blocks(Tensor(path=("x",), shape=(), dtype="float32")))


def test_numbers_in_tensorflow_js_models_are_ordered_as_numbers(tmp_path: Path) -> None:
    """
    Numbered variables in TensorFlow.js models of Keras 3 are sorted numerically, and names in the
    order of the manifest.
    """
    for names, ordered in (
        (("vars/10", "vars/2"), ["2", "10"]),
        (("d/kernel", "d/bias"), ["kernel", "bias"]),
    ):
        with opened(tfjs(tmp_path, *({**KERNEL_ENTRY, "name": name} for name in names))) as (
            values,
            document,
        ):
            assert [
                tensor.path[-1] for tensor in values.in_order(document.tensors or ())
            ] == ordered
