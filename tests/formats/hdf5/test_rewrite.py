"""
Rewritten HDF5 files: texts keep their type, no old text is left, and other data stay unchanged.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

import h5py
import ml_dtypes
import numpy as np
import pytest
from h5py import h5a, h5s, h5t
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from policytool.formats import casting, rewriting
from policytool.formats.edits import WriteOptions
from policytool.formats.hdf5 import rewrite as comparing
from policytool.formats.hdf5 import storage
from policytool.formats.hdf5.rebuild import Rebuild
from policytool.formats.hdf5.rewrite import texts
from policytool.formats.rewriting import Changes
from policytool.formats.writing import WriteError
from policytool.support.errors import ModelFileError
from tests.helpers.changes import cast, casts, document_of, dtype_edit, edit
from tests.helpers.marks import THOROUGH, examples
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled
from tests.helpers.small_models import dense, h5_model, sequential

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

DTYPE: Final = "/config/layers/0/config/dtype"
KERNEL: Final = ("dense_a", "dense_a", "kernel:0")
CONFIG: Final = json.dumps(sequential())


def rewrite(path: Path, changes: Changes) -> Path:
    """Write a changed copy next to a model."""
    target = path.with_name("new.h5")
    return rewriting.write(
        path, target, changes, document_format="h5", options=WriteOptions(overwrite=True)
    ).target


def _edited() -> Changes:
    return Changes(edits=(edit("model_config", DTYPE, "float32", "a dtype of another length"),))


def _cast() -> Changes:
    return Changes(edits=_edited().edits, casts=(cast(KERNEL, "float32", "float16"),))


BOTH: Final = pytest.mark.parametrize("changes", [_edited(), _cast()], ids=["edit", "cast"])


def _kind(path: Path, name: str = "model_config") -> tuple[object, ...]:
    with h5py.File(path) as file:
        kind = h5a.open(file.id, name.encode()).get_type()
        return kind.is_variable_str(), kind.get_cset(), kind.get_strpad()


def _typed(path: Path, name: bytes, text: bytes, kind: h5t.TypeID) -> None:
    """Write a text attribute of the specified type."""
    with h5py.File(path, "r+") as file:
        if h5a.exists(file.id, name):
            h5a.delete(file.id, name)
        attribute = h5a.create(file.id, name, kind, h5s.create(h5s.SCALAR))
        if kind.is_variable_str():
            value = np.empty((), dtype=attribute.dtype)
            value[()] = text
            attribute.write(value)
        else:
            size = kind.get_size()
            padding = b" " if kind.get_strpad() == h5t.STR_SPACEPAD else b"\0"
            attribute.write(np.array(text.ljust(size, padding), dtype=f"V{size}"), mtype=kind)


def _string(size: int | None, cset: int, padding: int) -> h5t.TypeID:
    kind = h5t.C_S1.copy()
    kind.set_size(h5t.VARIABLE if size is None else size)
    kind.set_cset(cset)
    kind.set_strpad(padding)
    return kind


KINDS: Final = {
    f"{'variable' if size is None else 'fixed'}-{'utf8' if cset else 'ascii'}-{padding}": (
        size,
        cset,
        padding,
    )
    for size in (None, 1000)
    for cset in (h5t.CSET_ASCII, h5t.CSET_UTF8)
    for padding in (h5t.STR_NULLTERM, h5t.STR_NULLPAD, h5t.STR_SPACEPAD)
}


@BOTH
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_changed_texts_keep_the_string_type(
    kind: tuple[int | None, int, int], changes: Changes, tmp_path: Path
) -> None:
    """TF 2.3 and 2.4 call ``decode`` on the value, which would fail for UTF-8."""
    path = h5_model(tmp_path / "model.h5", sequential())
    _typed(path, b"model_config", CONFIG.encode(), _string(*kind))
    before = _kind(path)
    new = rewrite(path, changes)
    assert _kind(new) == before
    assert _stored_texts(new)["model_config"] == CONFIG.replace(
        '"float32"', '"a dtype of another length"'
    )


@BOTH
@pytest.mark.parametrize("cset", [h5t.CSET_ASCII, h5t.CSET_UTF8])
def test_changed_texts_keep_bytes_outside_ascii(
    cset: int, changes: Changes, tmp_path: Path
) -> None:
    path = h5_model(tmp_path / "model.h5", sequential())
    config = json.dumps(sequential(dense(other="é ü 層")), ensure_ascii=False)
    _typed(path, b"model_config", config.encode(), _string(None, cset, h5t.STR_NULLTERM))
    new = rewrite(path, changes)
    assert _stored_texts(new)["model_config"] == config.replace(
        '"float32"', '"a dtype of another length"'
    )
    assert _kind(new) == _kind(path)


@THOROUGH
@pytest.mark.parametrize(
    "release", ["tf1.15", "tf2.1", "tf2.3", "tf2.4", "tf2.9", "tf2.15", "keras3.3", "keras3.15"]
)
def test_texts_of_every_release_keep_the_string_type(release: str, tmp_path: Path) -> None:
    """Both texts of a compiled model keep their type, for a sample of each release's files."""
    files = sorted((FIXTURES / release).glob("*.h5"))
    for path in sampled(f"texts of {release}", files, share=10):
        document = document_of(path)
        edited = dtype_edit(document)
        if edited is None:
            continue
        edits = [edited]
        if document.training_part:
            training: Any = document.parts[document.training_part]
            edits.append(edit(document.training_part, "/loss", training["loss"], "another loss"))
        new = rewriting.write(
            path,
            tmp_path / "new.h5",
            Changes(edits=tuple(edits)),
            document_format="h5",
            options=WriteOptions(overwrite=True),
        ).target
        for each in edits:
            assert _kind(new, each.address.part) == _kind(path, each.address.part)
        _assert_forgotten(path, new)


def _stored_texts(path: Path) -> Mapping[str, str]:
    """Return the stored bytes of the configs."""
    with storage.reading(path) as opened:
        return texts(opened)


def _assert_forgotten(old: Path, new: Path) -> None:
    """Check that the file contains no 64 bytes of an old text that are not in the new text."""
    raw, before, after = new.read_bytes(), _stored_texts(old), _stored_texts(new)
    kept = "\0".join(after.values()).encode()
    for text in before.values():
        data = text.encode()
        windows = {data[start : start + 64] for start in range(max(1, len(data) - 63))}
        assert not [window for window in windows if window not in kept and window in raw]


def _large_config(layers: int) -> str:
    return json.dumps(
        sequential(*(dense(f"dense_{index}", padding="x" * 500) for index in range(layers)))
    )


@THOROUGH
@BOTH
@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("layers", [1, 20, 200, 1500])
@pytest.mark.parametrize("fixed", [False, True])
def test_nothing_of_an_old_text_is_left(
    layers: int,
    libver: str,
    fixed: bool,  # noqa: FBT001
    changes: Changes,
    tmp_path: Path,
) -> None:
    """
    No part of an old text is left in global heaps, object headers, or the storage of attributes
    above 64 kB.
    """
    secret = "".join(f"{index:07d}" for index in range(20))
    hidden = _large_config(layers).replace("xxxxx", secret[:100] + "yyy", 1)
    if fixed and len(hidden) > 64_000 and libver == "earliest":
        pytest.skip("HDF5 1.6 has no place for it")
    path = tmp_path / "model.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.attrs["model_config"] = np.bytes_(hidden) if fixed else hidden
        file.attrs["keras_version"] = "2.4.0"
        file["model_weights/dense_a/dense_a/kernel:0"] = np.ones((6, 2), dtype="float32")
        if not fixed:
            file.attrs["training_config"] = _large_config(layers)
    padding_before = json.loads(hidden)["config"]["layers"][0]["config"]["padding"]
    edits = (
        *changes.edits,
        edit("model_config", "/config/layers/0/config/padding", padding_before, "short"),
    )
    new = rewrite(path, Changes(edits=edits, casts=changes.casts))
    assert secret.encode()[:64] in path.read_bytes()
    assert secret.encode()[:64] not in new.read_bytes()
    if layers <= 200:  # it takes long
        _assert_forgotten(path, new)


@BOTH
@pytest.mark.parametrize(
    "libver", ["earliest", ("v108", "v108"), ("v110", "v110"), "latest"], ids=str
)
@pytest.mark.parametrize("block", [0, 512, 2048])
def test_rewritten_files_keep_the_version_and_user_block(
    libver: Any, block: int, changes: Changes, tmp_path: Path
) -> None:
    path = tmp_path / "model.h5"
    with h5py.File(path, "w", libver=libver, userblock_size=block) as file:
        file.attrs["model_config"] = CONFIG
        file["model_weights/dense_a/dense_a/kernel:0"] = np.arange(12, dtype="float32").reshape(
            6, 2
        )
        file["model_weights/dense_a/dense_a/other"] = np.arange(1000)
        file.create_dataset(
            "model_weights/chunked", data=np.arange(100), chunks=(7,), compression="gzip"
        )
    with path.open("r+b") as stream:
        stream.write(b"someone else's"[: block or 0])
    new = rewrite(path, changes)
    head = new.read_bytes()
    assert head[:block] == path.read_bytes()[:block]
    assert head[block + 8] == path.read_bytes()[block + 8]


def _rich(path: Path) -> Path:
    """Write a model that also uses the features of HDF5 that Keras does not use."""
    h5_model(path, sequential())
    values = np.random.default_rng(0).normal(size=(300, 50)).astype("float32")
    with h5py.File(path, "r+") as file:
        group = file["model_weights/dense_a"]
        group.attrs["weight_names"] = np.array([b"dense_a/kernel:0", b"dense_a/bias:0"])
        group.attrs["texts"] = np.array(["a", "", "é"], dtype=h5py.string_dtype())
        group.attrs["empty"] = h5py.Empty("float32")
        group.attrs["nothing"] = np.array([])
        group.attrs["flag"] = True
        group.attrs["nan"] = np.float32("nan")
        group.attrs["ragged"] = np.array(
            [np.arange(2), np.arange(3)], dtype=h5py.vlen_dtype("int32")
        )
        group["compressed"] = values
        group.create_dataset(
            "gzip",
            data=values,
            chunks=(64, 16),
            compression="gzip",
            shuffle=True,
            fletcher32=True,
            maxshape=(None, 50),
        )
        group["gzip"].attrs["note"] = "kept"
        group.create_dataset("partly", (100, 100), "float32", chunks=(10, 10), fillvalue=7)[
            5:15, 5:15
        ] = 1
        group.create_dataset("unwritten", (10, 10), "float32", fillvalue=3)
        group["hard"] = group["gzip"]
        group["soft"] = h5py.SoftLink("/model_weights/dense_a/gzip")
        group["gone"] = h5py.SoftLink("/nowhere")
        group["elsewhere"] = h5py.ExternalLink("other.h5", "/path")
        group["names"] = np.array(["x", "yy"], dtype=h5py.string_dtype())
        group["ragged"] = np.array([np.arange(2), np.arange(3)], dtype=h5py.vlen_dtype("int32"))
        group["scalar"] = np.float32(1.5)
        group["pair"] = np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
        group["big_endian"] = values.astype(">f4")
        group["empty"] = h5py.Empty("float32")
        group["zero"] = np.zeros((0, 3), "float32")
        group["type"] = np.dtype("float32")
        group["up"] = file["model_weights"]
        file.create_group("ordered", track_order=True)
        for name in "zyx":
            file["ordered"].create_group(name)
    return path


RICH: Final = (
    ("dense_a", "gzip"),
    ("dense_a", "partly"),
    ("dense_a", "unwritten"),
    ("dense_a", "scalar"),
    ("dense_a", "zero"),
    ("dense_a", "big_endian"),
)


def test_links_chunks_filters_and_attributes_are_unchanged(tmp_path: Path) -> None:
    """
    Links, chunks, filters, fill values and attributes of all types are unchanged, as compared by
    the writer and again with h5py.
    """
    path = _rich(tmp_path / "model.h5")
    new = rewrite(
        path,
        Changes(
            edits=_edited().edits,
            casts=tuple(cast(tensor, "float32", "float16") for tensor in RICH),
        ),
    )
    with h5py.File(path) as old, h5py.File(new) as file:
        group, before = file["model_weights/dense_a"], old["model_weights/dense_a"]
        assert set(group) == set(before)
        assert group["hard"] == group["gzip"]
        assert group["up"] == file["model_weights"]
        assert group.get("soft", getlink=True).path == "/model_weights/dense_a/gzip"
        assert group.get("elsewhere", getlink=True).filename == "other.h5"
        assert list(file["ordered"]) == ["z", "y", "x"]
        assert (
            group["gzip"].chunks,
            group["gzip"].compression,
            group["gzip"].shuffle,
            group["gzip"].fletcher32,
        ) == ((64, 16), "gzip", True, True)
        assert group["gzip"].maxshape == (None, 50)
        assert dict(group["gzip"].attrs) == {"note": "kept"}
        for tensor in RICH:
            values = before[tensor[-1]]
            assert group[tensor[-1]].dtype == "float16"
            assert np.array_equal(group[tensor[-1]][()], values[()].astype("float16"))
        assert group["compressed"].dtype == "float32"
        assert np.isnan(group.attrs["nan"])
        assert group.attrs["flag"].dtype == bool


def test_edits_leave_the_rest_of_the_file_in_place(tmp_path: Path) -> None:
    """Without casts, the new file equals the old file except for the changed attribute."""
    path = _rich(tmp_path / "model.h5")
    new = rewrite(path, _edited())
    first, second = path.read_bytes(), new.read_bytes()
    with h5py.File(path) as old, h5py.File(new) as file:
        for name in ("compressed", "big_endian"):
            offset = old[f"model_weights/dense_a/{name}"].id.get_offset()
            assert offset == file[f"model_weights/dense_a/{name}"].id.get_offset()
            assert first[offset : offset + 60_000] == second[offset : offset + 60_000]


def test_references_are_not_moved_to_a_new_file(tmp_path: Path) -> None:
    """The references would be invalid in a new file."""
    path = h5_model(tmp_path / "model.h5", sequential())
    with h5py.File(path, "r+") as file:
        file["model_weights"].attrs["reference"] = file["model_weights"].ref
    rewrite(path, _edited())
    with pytest.raises(ModelFileError) as caught:
        rewrite(path, _cast())
    assert caught.value.code == "not-rewritable"


def test_bfloat16_is_not_written_to_hdf5_models(tmp_path: Path) -> None:
    """bfloat16 is not written into HDF5 models, because no release of Keras reads it from them."""
    path = h5_model(tmp_path / "model.h5", sequential())
    with pytest.raises(ModelFileError) as caught:
        rewrite(path, Changes(casts=(cast(KERNEL, "float32", "bfloat16"),)))
    assert caught.value.code == "not-rewritable"


def test_casts_in_the_optimizer_group_count_for_the_optimizer(tmp_path: Path) -> None:
    path = h5_model(tmp_path / "model.h5", sequential())
    with h5py.File(path, "r+") as file:
        file["optimizer_weights/m"] = np.ones(3, "float32")
    state = cast(("optimizer_weights", "m"), "float32", "float16")
    state = type(state)(
        tensor=state.tensor, path=None, before=state.before, after=state.after, reason=""
    )
    written = rewriting.write(
        path, tmp_path / "new.h5", Changes(casts=(state,)), document_format="h5"
    )
    with h5py.File(written.target) as file:
        assert file["optimizer_weights/m"].dtype == "float16"
    assert written.counts == {state.tensor: casting.Counts(values=3)}


@pytest.mark.parametrize("stored", ["opaque", "named", "float"])
def test_bfloat16_is_widened_from_every_stored_form(stored: str, tmp_path: Path) -> None:
    """
    bfloat16 is converted to float32 for each stored form: two opaque bytes with or without a name,
    and a float type of HDF5.
    """
    path = h5_model(tmp_path / "model.h5", sequential(), weights=False)
    values = np.array([1.0, -2.5, 1e-40, np.inf], dtype=ml_dtypes.bfloat16)
    with h5py.File(path, "r+") as file:
        group = file.create_group("model_weights/dense_a/dense_a")
        if stored == "float":
            kind = h5t.IEEE_F16LE.copy()
            kind.set_fields(15, 7, 8, 0, 7)
            kind.set_ebias(127)
            result = h5py.h5d.create(group.id, b"kernel:0", kind, h5s.create_simple((4,)))
            result.write(h5s.ALL, h5s.ALL, values.view("V2"), mtype=kind)
        else:
            group["kernel:0"] = values.view("V2")
            if stored == "named":
                group["kernel:0"].attrs["dtype"] = "bfloat16"
    assert [tensor.dtype for tensor in document_of(path).tensors or ()] == ["bfloat16"]
    new = rewrite(path, Changes(casts=(cast(KERNEL, "bfloat16", "float32"),)))
    with h5py.File(new) as file:
        dataset = file["model_weights/dense_a/dense_a/kernel:0"]
        assert dataset.dtype == "float32"
        assert dataset[()].tobytes() == values.astype("float32").tobytes()
        assert "dtype" not in dataset.attrs


@THOROUGH
@given(
    values=npst.arrays(
        st.sampled_from(["float16", "float32", "float64"]),
        npst.array_shapes(max_dims=3, min_side=0, max_side=7),
    ),
    after=st.sampled_from(["float16", "float32", "float64"]),
    through=st.sampled_from([None, "bfloat16", "float16"]),
    chunked=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
def test_cast_tensors_hold_the_cast_values(
    values: Any,
    after: str,
    through: str | None,
    chunked: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = CONFIG
        layout: dict[str, Any] = (
            {"chunks": tuple(min(2, size) for size in values.shape), "compression": "gzip"}
            if chunked and values.size
            else {}
        )
        file.create_dataset("model_weights/w", data=values, **layout)
    result = cast(("w",), str(values.dtype), after, through)
    written = rewriting.write(
        path,
        tmp_path / "new.h5",
        Changes(casts=(result,)),
        document_format="h5",
        options=WriteOptions(overwrite=True),
    )
    expected, counts = casting.cast(values, str(values.dtype), after, through)
    with h5py.File(written.target) as file:
        assert file["model_weights/w"][()].tobytes() == expected.tobytes()
    assert written.counts == rewriting.measure(path, "h5", (result,)) == {("w",): counts}


def test_tensors_of_many_blocks_are_cast_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If blocks end within a row, at a chunk, and at the end."""
    monkeypatch.setattr("policytool.formats.hdf5.rebuild.BLOCK", 8 * 40)
    path = h5_model(tmp_path / "model.h5", sequential())
    values = np.random.default_rng(0).normal(size=(7, 11, 13)).astype("float32")
    with h5py.File(path, "r+") as file:
        file["model_weights/plain"] = values
        file.create_dataset("model_weights/chunked", data=values, chunks=(3, 2, 5))
    new = rewrite(
        path,
        Changes(
            casts=(cast(("plain",), "float32", "float16"), cast(("chunked",), "float32", "float64"))
        ),
    )
    with h5py.File(new) as file:
        assert np.array_equal(file["model_weights/plain"], values.astype("float16"))
        assert np.array_equal(file["model_weights/chunked"], values.astype("float64"))


DIFFERENCES: Final[dict[str, Any]] = {
    "value": lambda file: file["model_weights/dense_a/compressed"].write_direct(
        np.zeros((300, 50), "float32")
    ),
    "chunk": lambda file: file["model_weights/dense_a/gzip"].write_direct(
        np.zeros((300, 50), "float32")
    ),
    "text": lambda file: file["model_weights/dense_a/names"].__setitem__(0, "z"),
    "attribute": lambda file: file["model_weights/dense_a"].attrs.__setitem__("flag", False),
    "attribute type": lambda file: file["model_weights/dense_a"].attrs.__setitem__(
        "nan", np.float64("nan")
    ),
    "attribute gone": lambda file: file["model_weights/dense_a"].attrs.__delitem__("flag"),
    "attribute new": lambda file: file.attrs.__setitem__("new", 1),
    "dataset gone": lambda file: file["model_weights/dense_a"].__delitem__("scalar"),
    "dataset new": lambda file: file.__setitem__("new", 1),
    "soft link": lambda file: (
        file["model_weights/dense_a"].__delitem__("soft"),
        file["model_weights/dense_a"].__setitem__("soft", h5py.SoftLink("/x")),
    ),
    "hard link": lambda file: (
        file["model_weights/dense_a"].__delitem__("hard"),
        file.copy("model_weights/dense_a/gzip", "model_weights/dense_a/hard"),
    ),
    "unwritten": lambda file: file["model_weights/dense_a/unwritten"].__setitem__((0, 0), 4),
    "part of a chunk": lambda file: file["model_weights/dense_a/partly"].__setitem__((50, 50), 7),
}


@pytest.mark.parametrize("spoil", DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_difference_anywhere_is_found(
    spoil: Callable[[h5py.File], object], tmp_path: Path
) -> None:
    """The comparison of two files finds a difference at any place."""
    path = _rich(tmp_path / "model.h5")
    other = tmp_path / "other.h5"
    other.write_bytes(path.read_bytes())
    with storage.reading(path) as one, storage.reading(other) as two:
        comparing.compare(one, two, Rebuild())
    with h5py.File(other, "r+") as file:
        spoil(file)
    with (
        storage.reading(path) as one,
        storage.reading(other) as two,
        pytest.raises(WriteError, match="differs"),
    ):
        comparing.compare(one, two, Rebuild())


def test_values_in_other_files_are_not_opened(tmp_path: Path) -> None:
    """
    External storage and virtual datasets stay unchanged and cannot be cast, because their values
    are in other files.
    """
    path = h5_model(tmp_path / "model.h5", sequential())
    with h5py.File(path, "r+") as file:
        file.create_dataset(
            "model_weights/outside", (4,), "float32", external=[("/nonexistent/values", 0, 16)]
        )
        layout = h5py.VirtualLayout((4,), "float32")
        layout[:] = h5py.VirtualSource("/nonexistent/file.h5", "x", (4,))
        file.create_virtual_dataset("model_weights/virtual", layout)
    rewrite(path, _edited())
    for name in ("outside", "virtual"):
        with pytest.raises(ModelFileError) as caught:
            rewrite(path, Changes(casts=(cast((name,), "float32", "float16"),)))
        assert caught.value.code == "not-rewritable"


def test_a_fixture_is_the_same_twice(tmp_path: Path) -> None:
    """Rewriting a fixture twice gives identical files."""
    path = FIXTURES / "tf2.3/global_mixed_float16.h5"
    changes = Changes(casts=casts(document_of(path)))
    first = rewriting.write(path, tmp_path / "one.h5", changes, document_format="h5").target
    second = rewriting.write(path, tmp_path / "other.h5", changes, document_format="h5").target
    assert first.read_bytes() == second.read_bytes()
    assert h5py.File(io.BytesIO(first.read_bytes())).attrs["backend"] == "tensorflow"


@pytest.mark.parametrize("block", [0, 512, 2048])
@pytest.mark.parametrize(
    "layout",
    [{}, {"chunks": (100,)}, {"chunks": (300,), "compression": "gzip"}],
    ids=["contiguous", "chunked", "compressed"],
)
def test_the_last_byte_counts_behind_a_user_block(
    block: int, layout: dict[str, Any], tmp_path: Path
) -> None:
    """For offsets from the start of the file and from the end of the user block."""
    path, other = tmp_path / "model.h5", tmp_path / "other.h5"
    values = np.arange(1000, dtype="float32")
    with h5py.File(path, "w", userblock_size=block) as file:
        file.create_dataset("x", data=values, **layout)
        file["end"] = np.zeros(10_000)
    other.write_bytes(path.read_bytes())
    values[-1] += 1
    with h5py.File(other, "r+") as file:
        file["x"][...] = values
    with storage.reading(path) as one, storage.reading(path) as two:
        comparing.compare(one, two, Rebuild())
    with (
        storage.reading(path) as one,
        storage.reading(other) as two,
        pytest.raises(WriteError, match="x differs"),
    ):
        comparing.compare(one, two, Rebuild())
