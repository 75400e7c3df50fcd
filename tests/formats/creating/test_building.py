"""Newly created files, compared with files of the same content that Keras wrote."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any, Final

import h5py
import pytest
from h5py import h5a, h5t
from msgspec.structs import replace

from policytool.formats import creating, format_detection
from policytool.formats.document import Tensor
from policytool.formats.edits import Content, Placement, StoredGroup
from policytool.formats.format_detection import open_values
from policytool.model import reading
from policytool.support.errors import ModelFileError
from tests.conftest import MIXED_H5, MIXED_JSON, MIXED_KERAS, MIXED_SAVEDMODEL, MIXED_TFJS, UNPACKED
from tests.helpers.changes import held
from tests.helpers.contents import copy_of, placed
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import h5_model, instance, sequential

if TYPE_CHECKING:
    from pathlib import Path

HDF5: Final = (
    "keras2.2.4/nested_models",
    "tf2.3/default_float32_compiled",
    "tf2.4/infer",
    "tf2.12/nested_models",
    "tf2.15/rnn",
    "tf_keras2.21/wrappers",
)
ARCHIVES: Final = (
    "tf2.12/default_float32",
    "tf2.15/default_float32_compiled",
    "keras3.0/per_layer",
    "keras3.15/global_bfloat16",
    "keras3.15/int8",
)
NO_TENSORS: Final = Content(container="h5", config=sequential(), keras_version="2.15.0")

Attributes = dict[str, tuple[Any, ...]]


def built(path: Path, target: Path, content: Content, **more: Any) -> Path:
    """Write a content with the values of a file."""
    return creating.build(
        path, format_detection.document(path, path.name), target, content, **more
    ).target


def described(file: h5py.File) -> dict[str, Any]:
    """
    Return the complete content of an HDF5 file: attributes with their types, datasets with their
    types, layouts and bytes.
    """
    found: dict[str, Any] = {"/": _attributes(file)}

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            stored = item.id.get_type()
            found[name] = (
                item.shape,
                stored.get_class(),
                stored.get_size(),
                item.chunks,
                item[()].tobytes(),
                _attributes(item),
            )
        else:
            found[name] = _attributes(item)

    file.visititems(look)
    return found


def _attributes(item: Any) -> Attributes:
    found: Attributes = {}
    for index in range(h5a.get_num_attrs(item.id)):
        attribute = h5a.open(item.id, index=index)
        kind = attribute.get_type()
        text = (
            (bool(kind.is_variable_str()), kind.get_cset())
            if kind.get_class() == h5t.STRING
            else ()
        )
        value = item.attrs[attribute.name.decode()]
        if attribute.name in {b"model_config", b"training_config"}:
            value = json.loads(value)
        is_root = attribute.name in {b"keras_version", b"backend"} and item.name == "/"
        if (
            attribute.shape and kind.get_class() == h5t.STRING
        ):  # of fixed length, or, with newer h5py, not
            text, value = (
                (),
                [name.decode() if isinstance(name, bytes) else name for name in value.tolist()],
            )
        found[attribute.name.decode()] = (
            kind.get_class(),
            () if is_root else text,
            value if attribute.shape == () else list(value),
        )
    return found


@pytest.mark.parametrize("name", HDF5)
def test_created_hdf5_file_equals_the_file_of_keras(name: str, tmp_path: Path) -> None:
    """
    A created HDF5 file has each attribute, group and dataset with the type that Keras 2 writes;
    texts at the root are ASCII.
    """
    path = FIXTURES / f"{name}.h5"
    new = built(path, tmp_path / "new.h5", copy_of(path)[1])
    with h5py.File(path) as one, h5py.File(new) as other:
        assert described(other) == described(one)
        kinds = {name: other.attrs.get_id(name).get_type() for name in other.attrs}
    assert kinds.keys() >= {"model_config", "backend"}
    assert all(
        kind.is_variable_str() and kind.get_cset() == h5t.CSET_ASCII for kind in kinds.values()
    )


@pytest.mark.parametrize("name", ARCHIVES)
def test_created_archive_equals_the_archive_of_keras(name: str, tmp_path: Path) -> None:
    """
    A created archive equals the archive of Keras: order of members, no compression, empty groups
    for layers without variables, and bfloat16 as two opaque bytes with its name.
    """
    path = FIXTURES / f"{name}.keras"
    new = built(path, tmp_path / "new.keras", copy_of(path)[1])
    with zipfile.ZipFile(path) as one, zipfile.ZipFile(new) as other:
        assert [_member(info) for info in other.infolist()] == [
            _member(info) for info in one.infolist()
        ]
        assert all(
            json.loads(other.read(part)) == json.loads(one.read(part))
            for part in ("config.json", "metadata.json")
        )
        with (
            h5py.File(io.BytesIO(one.read("model.weights.h5"))) as first,
            h5py.File(io.BytesIO(other.read("model.weights.h5"))) as second,
        ):
            assert described(second) == described(first)


def _member(info: zipfile.ZipInfo) -> tuple[object, ...]:
    return info.filename, info.compress_type, info.create_system, info.external_attr, info.flag_bits


@pytest.mark.parametrize(
    "path",
    [MIXED_H5, MIXED_KERAS, MIXED_JSON, *(FIXTURES / f"{name}.keras" for name in ARCHIVES)],
    ids=str,
)
def test_the_document_is_known_before(path: Path, tmp_path: Path) -> None:
    """
    The predicted document equals the result of reading the file, including observations, the order
    of variables, and releases.
    """
    content = copy_of(path)[1]
    new = built(path, tmp_path / f"new{path.suffix}", content)
    expected = creating.document(content, "new")
    assert format_detection.document(new, "new") == expected
    assert (
        reading.load_model(expected).model.loaders
        == reading.load_model(format_detection.document(new, "new")).model.loaders
    )


def test_the_same_input_makes_the_same_file(tmp_path: Path) -> None:
    """Creating a file twice from the same input gives identical bytes, without a timestamp."""
    for path in (MIXED_H5, MIXED_KERAS):
        content = copy_of(path)[1]
        assert (
            built(path, tmp_path / "one", content).read_bytes()
            == built(path, tmp_path / "other", content).read_bytes()
        )
        (tmp_path / "one").unlink()
        (tmp_path / "other").unlink()


def test_an_archive_has_a_date(tmp_path: Path) -> None:
    """Keras' KerasFileEditor reads it, or a constant date."""
    path = h5_model(tmp_path / "model.h5", sequential())
    for spelled, date in (
        ({}, "1980-01-01@00:00:00"),
        ({"date_saved": "2026-11-21@04:50:26"}, "2026-11-21@04:50:26"),
    ):
        new = built(
            path,
            tmp_path / f"{len(spelled)}.keras",
            replace(NO_TENSORS, container="keras", spelled=spelled),
        )
        with zipfile.ZipFile(new) as archive:
            assert json.loads(archive.read("metadata.json")) == {
                "keras_version": "2.15.0",
                "date_saved": date,
            }


@pytest.mark.parametrize(
    "source",
    [MIXED_H5, MIXED_KERAS, UNPACKED, MIXED_SAVEDMODEL, MIXED_TFJS],
    ids=lambda path: path.name,
)
@pytest.mark.parametrize("container", ["h5", "keras"])
def test_values_of_any_source(source: Path, container: str, tmp_path: Path) -> None:
    document = format_detection.document(source, source.name)
    stored = document.tensors or [
        node.variable for node in document.nodes.values() if node.variable is not None
    ]
    tensors = [tensor for tensor in stored if tensor.dtype == "float32"]
    placements = tuple(
        placed(tensor, path=("layers", str(number))) for number, tensor in enumerate(tensors)
    )
    new = built(
        source,
        tmp_path / "new",
        Content(
            container=container, config=sequential(), keras_version="2.15.0", placements=placements
        ),
    )
    result = format_detection.document(new, "new")
    with open_values(source, document) as before, open_values(new, result) as after:
        assert before is not None
        assert after is not None
        by_path = {tensor.path: tensor for tensor in result.tensors or ()}
        for tensor, placement in zip(tensors, placements, strict=True):
            bytes_ = [
                b"".join(block.tobytes() for block in values.blocks(one))
                for values, one in ((before, tensor), (after, by_path[placement.path]))
            ]
            assert bytes_[0] == bytes_[1]
            assert bytes_[0] or 0 in placement.shape
    assert tensors


def test_a_slash_in_a_name_makes_groups(tmp_path: Path) -> None:
    """The attribute keeps the name, as in Keras."""
    path = h5_model(tmp_path / "model.h5", sequential())
    tensor = Tensor(path=("dense_a", "dense_a", "kernel:0"), shape=(6, 2), dtype="float32")
    names = ("block/dense/kernel:0",)
    content = replace(
        NO_TENSORS,
        groups=(StoredGroup(path=("block/dense",), names=names),),
        placements=(placed(tensor, path=("block/dense", *names)),),
    )
    with h5py.File(built(path, tmp_path / "new.h5", content)) as file:
        assert file["model_weights"].attrs["layer_names"].tolist() == [b"block/dense"]
        group = file["model_weights"]["block/dense"]
        assert group[group.attrs["weight_names"][0]].shape == (6, 2)


@THOROUGH
def test_names_above_the_object_header_size_are_split(tmp_path: Path) -> None:
    """
    A list of names that exceeds an object header is split like in Keras: into equal parts in
    numbered attributes.
    """
    path = h5_model(tmp_path / "model.h5", sequential())
    groups = tuple(StoredGroup(path=(f"layer_{number:03}_{'x' * 550}",)) for number in range(300))
    new = built(path, tmp_path / "new.h5", replace(NO_TENSORS, groups=groups))
    with h5py.File(new) as file:
        pieces = sorted(file["model_weights"].attrs)
        assert pieces == [
            "backend",
            "keras_version",
            "layer_names0",
            "layer_names1",
            "layer_names2",
        ]
        actual = [
            name.decode()
            for number in range(3)
            for name in file["model_weights"].attrs[f"layer_names{number}"]
        ]
    assert actual == [group.path[0] for group in groups]


@THOROUGH
def test_large_and_foreign_texts(tmp_path: Path) -> None:
    """A config above 64 KiB is one attribute, text outside ASCII is escaped, and NaN is kept."""
    path = h5_model(tmp_path / "model.h5", sequential())
    config: Any = instance(
        "Sequential", name="mödel \ud800", layers=[], nan=float("nan"), words=["wörd"] * 200_000
    )
    new = built(path, tmp_path / "new.h5", replace(NO_TENSORS, config=config))
    with h5py.File(new) as file:
        text = file.attrs["model_config"]
    assert text.isascii()
    assert json.dumps(json.loads(text)) == json.dumps(config)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            replace(NO_TENSORS, container="savedmodel"),
            "savedmodel files cannot be created, only edited",
        ),
        (
            replace(
                NO_TENSORS,
                placements=(Placement(path=("a",), shape=(2,), dtype="bfloat16", fill=(1.0,)),),
            ),
            "no release can read this dtype from HDF5",
        ),
        (
            replace(NO_TENSORS, placements=(Placement(path=("a",), shape=(2,), dtype="float32"),)),
            "neither the source nor the conversion provides values",
        ),
        (
            replace(
                NO_TENSORS,
                placements=(Placement(path=("a",), shape=(2,), dtype="float32", fill=(1.0,) * 3),),
            ),
            "3 values do not match a shape with 2 elements",
        ),
        (
            replace(
                NO_TENSORS,
                placements=(Placement(path=("a",), shape=(2,), dtype="int32", fill=(1.5,)),),
            ),
            "int32 cannot represent some of its values",
        ),
        (
            replace(
                NO_TENSORS,
                placements=(Placement(path=("a",), shape=(2,), dtype="uint8", fill=(-1.0,)),),
            ),
            "uint8 cannot represent some of its values",
        ),
        (
            replace(
                NO_TENSORS,
                placements=(Placement(path=("a",), shape=(2,), dtype="string", fill=(1.0,)),),
            ),
            "cannot be stored as string",
        ),
        (
            replace(
                NO_TENSORS,
                placements=(Placement(path=("a",), shape=(), dtype="int32", fill=(1.0,)),) * 2,
            ),
            "two objects at a",
        ),
        (
            replace(
                NO_TENSORS,
                groups=(StoredGroup(path=("a", "b")),),
                placements=(Placement(path=("a",), shape=(), dtype="int32", fill=(1.0,)),),
            ),
            "two objects at a",
        ),
        (
            replace(NO_TENSORS, groups=(StoredGroup(path=("x" * 65_000,)),)),
            "too long for HDF5",
        ),
        (
            replace(
                NO_TENSORS,
                placements=(
                    Placement(
                        path=("a",),
                        shape=(2,),
                        dtype="float32",
                        source=Tensor(path=("no",), shape=(2,), dtype="float32"),
                    ),
                ),
            ),
            "no",
        ),
        (replace(NO_TENSORS, container="json", config=[]), "lacks class_name and config"),
    ],
)
def test_content_that_the_format_cannot_store_is_rejected(
    content: Content, says: str, tmp_path: Path
) -> None:
    path = h5_model(tmp_path / "model.h5", sequential())
    before = held(tmp_path)
    with pytest.raises(ModelFileError, match=says) as caught:
        built(path, tmp_path / "new", content)
    assert caught.value.code == "not-rewritable"
    assert held(tmp_path) == before
