"""
Checkpoints of real releases compared with the values that TensorFlow read, and written checkpoints
compared with their source.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.formats.checkpoint.bundle import (
    OBJECT_GRAPH_KEY,
    Bundle,
    BundleError,
    keys_of,
    open_bundle,
)
from policytool.formats.checkpoint.bundle import _index as ordered_code
from policytool.formats.checkpoint.bundle._values import CHUNK
from policytool.releases import dtypes
from tests.helpers import bundles
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

WRITTEN: Final = FIXTURES / "checkpoints"
RECORDED: Final[dict[str, dict[str, list[Any]]]] = json.loads(
    (WRITTEN / "tensors.json").read_text(encoding="utf-8")
)
SAVED_MODELS: Final = sorted(
    index.parents[1] for index in FIXTURES.glob("*/*/variables/variables.index")
)


def summary(bundle: Bundle) -> dict[str, list[Any]]:
    """Return a checkpoint's tensors in the format of the record."""
    found = {}
    for key, entry in bundle.entries.items():
        plain = (
            repr(list(bundle.strings(entry))).encode()
            if entry.dtype == "string"
            else b"".join(bundle.chunks(entry))
        )
        found[key] = [entry.dtype, list(entry.shape), hashlib.sha256(plain).hexdigest()]
    return found


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_tensors_equal_those_that_tensorflow_reads(name: str) -> None:
    """Also for sliced variables, strings, bfloat16 and empty tensors."""
    bundle = open_bundle(WRITTEN / name)
    recorded = {
        key: [dtype.replace("half", "float16"), *rest]
        for key, (dtype, *rest) in RECORDED[name].items()
    }
    assert summary(bundle) == recorded
    assert list(bundle.entries) == sorted(bundle.entries, key=str.encode)
    assert not list(bundle.lacking())


def test_records_have_every_kind_of_tensor() -> None:
    """The recorded checkpoints have tensors of each kind, not only plain float32."""
    entries = open_bundle(WRITTEN / "saver").entries
    assert [len(entries[f"encoder/{name}"].slices) for name in ("rows", "columns")] == [3, 2]
    assert entries["decoder/empty"].size == 0
    assert {entry.dtype for entry in entries.values()} == {"float16", "float32", "int64", "string"}
    assert {entry.dtype for entry in open_bundle(WRITTEN / "training").entries.values()} >= {
        "bfloat16",
        "int32",
        "string",
    }


@THOROUGH
@for_each("path", SAVED_MODELS, ids=lambda path: path.relative_to(FIXTURES).as_posix())
def test_variables_of_savedmodels_are_found_by_their_keys(path: Path) -> None:
    """
    Each variable of an object graph is found with the name, dtype and shape of the metadata graph.
    """
    bundle = open_bundle(path / "variables/variables")
    nodes, keys = bundles.keys_of_objects(path, bundle)
    graph = bundle.objects()
    assert graph is not None
    names = {
        attribute.key: attribute.full_name for node in graph.nodes for attribute in node.attributes
    }
    variables = {
        index: node.variable for index, node in enumerate(nodes) if node.HasField("variable")
    }
    assert set(keys) == set(variables)
    for index, variable in variables.items():
        entry = bundle.entries[keys[index]]
        assert names[keys[index]] == variable.name.decode()
        assert entry.dtype == dtypes.OF_TENSORFLOW_ENUM[variable.dtype]
        assert entry.dtype == "string" or list(entry.shape) == [
            dimension.size for dimension in variable.shape.dims
        ]
        assert b"".join(bundle.chunks(entry))


def test_checkpoint_of_tf1_has_no_objects() -> None:
    """A checkpoint of TF 1 has no object graph, and its keys are variable names."""
    bundle = open_bundle(WRITTEN / "saver")
    assert bundle.objects() is None
    assert keys_of(bundle, {0: [("encoder", 1)]}) == {}


TENSORS: Final = st.dictionaries(
    st.text(min_size=1, max_size=30).filter(
        lambda key: not key.startswith("\0") and key.isprintable()
    ),
    st.tuples(
        st.sampled_from(["float32", "bfloat16", "bool", "complex128"]),
        st.lists(st.integers(0, 4), max_size=3),
        st.randoms(use_true_random=False),
    ),
    max_size=12,
)


@THOROUGH
@given(tensors=TENSORS, per_block=st.integers(1, 5))
def test_written_tensors_are_read_unchanged(
    tensors: dict[str, tuple[str, list[int], Any]],
    per_block: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Any keys, shapes and values are read as they were written, for any size of blocks."""
    prefix = tmp_path_factory.mktemp("any") / "made"
    written = {}
    for key, (dtype, shape, random) in tensors.items():
        size = dtypes.itemsize(dtype)
        for length in shape:
            size *= length
        written[key] = (dtype, tuple(shape), random.randbytes(size))
    bundles.write(prefix, written, per_block)
    bundle = open_bundle(prefix)
    assert {
        key: (entry.dtype, entry.shape, b"".join(bundle.chunks(entry)))
        for key, entry in bundle.entries.items()
    } == written
    shutil.rmtree(prefix.parent)


def test_large_tensors_come_in_bounded_chunks(tmp_path: Path) -> None:
    """A large tensor is read in chunks of at most one MiB that add up to the tensor."""
    data = bytes(range(256)) * (CHUNK // 100)
    bundles.write(tmp_path / "large", {"a": ("uint8", (len(data),), data)})
    bundle = open_bundle(tmp_path / "large")
    chunks = list(bundle.chunks(bundle.entries["a"]))
    assert b"".join(chunks) == data
    assert {len(chunk) for chunk in chunks[:-1]} == {CHUNK}


@THOROUGH
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("inner", [3, CHUNK // 2 + 1])
def test_slices_along_any_axis_make_the_whole(axis: int, inner: int, tmp_path: Path) -> None:
    """
    The slices of a partitioned variable are joined in the order of the whole, also if a row is
    larger than a chunk.
    """
    shape = [2, 3, inner]
    data = bytes(index * 7 % 251 for index in range(6 * inner))
    lengths = [shape[axis] - 1, 1]
    pairs, values, start = [], b"", 0
    full = bundles.entry("uint8", shape, b"", checksum=0)
    for length in lengths:
        part = _slice(data, shape, axis, start, length)
        extents = [
            (start, length) if index == axis else (0, ordered_code.WHOLE) for index in range(3)
        ]
        message = full.slices.add()
        for first, size in extents:
            added = message.extents.add()
            if size != ordered_code.WHOLE:
                added.start, added.length = first, size
        part_shape = [length if index == axis else size for index, size in enumerate(shape)]
        pairs.append(
            (
                ordered_code.slice_key(b"v", extents),
                bundles.entry("uint8", part_shape, part, len(values)).SerializeToString(),
            )
        )
        values += part
        start += length
    (tmp_path / "sliced.data-00000-of-00001").write_bytes(values)
    bundles.write_index(
        tmp_path / "sliced", [[bundles.header(), *sorted(pairs), (b"v", full.SerializeToString())]]
    )
    bundle = open_bundle(tmp_path / "sliced")
    chunks = list(bundle.chunks(bundle.entries["v"]))
    assert b"".join(chunks) == data
    assert max(map(len, chunks)) <= CHUNK
    (tmp_path / "sliced.data-00000-of-00001").write_bytes(values[:-1] + bytes([values[-1] ^ 1]))
    with pytest.raises(BundleError, match="do not match their checksum"):
        list(bundle.chunks(bundle.entries["v"]))


def _slice(data: bytes, shape: list[int], axis: int, start: int, length: int) -> bytes:
    """Return the elements of a slice along one axis."""
    strides = [shape[1] * shape[2], shape[2], 1]
    return bytes(
        byte
        for index, byte in enumerate(data)
        if start <= index // strides[axis] % shape[axis] < start + length
    )


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_ordered_code_sorts_as_numbers_do(one: int, other: int) -> None:
    assert (ordered_code.encode_signed(one) < ordered_code.encode_signed(other)) == (one < other)


def test_partners_are_the_first_that_meet(tmp_path: Path) -> None:
    """
    A variable that several edges lead to has one key; edges that only one graph has, circles and
    missing nodes cause no error.
    """
    graph = [
        ([("a", 1), ("b", 2), ("only_here", 3), ("up", 0), ("gone", 99)], []),
        ([("v", 4)], []),
        ([("v", 4)], []),
        ([], [("x", "x")]),
        ([], [("v", "kept")]),
    ]
    bundles.write(
        tmp_path / "made",
        dict(
            [bundles.object_graph(graph), ("kept", ("uint8", (), b"1")), ("x", ("uint8", (), b"2"))]
        ),
    )
    bundle = open_bundle(tmp_path / "made")
    assert keys_of(
        bundle,
        {0: [("b", 5), ("a", 6), ("other", 7)], 5: [("v", 8)], 6: [("v", 8), ("root", 0)], 7: []},
    ) == {8: "kept"}
    assert OBJECT_GRAPH_KEY in bundle.entries


@pytest.mark.parametrize(
    ("shape", "parts", "axis"),
    [
        ((4, 3), [(4, 3)], 0),
        ((4, 3), [(4, 1), (4, 2)], 1),
        ((4, 3), [(2, 3), (4, 2)], None),
        ((), [()], None),
    ],
)
def test_a_variable_is_partitioned_along_one_axis(
    shape: tuple[int, ...], parts: list[tuple[int, ...]], axis: int | None
) -> None:
    """Parts that are shorter along several axes, and parts of a scalar, are errors."""
    slices: Any = [SimpleNamespace(entry=SimpleNamespace(shape=part)) for part in parts]
    if axis is None:
        with pytest.raises(ValueError, match="along several axes, or along none"):
            ordered_code.partitioned_axis(shape, slices)
    else:
        assert ordered_code.partitioned_axis(shape, slices) == axis
