"""
Values that are written into a new file: unchanged, cast, multiplied or filled in, and always in
blocks.
"""

from __future__ import annotations

import itertools
import math
import resource
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import h5py
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policytool.formats import casting, creating, format_detection
from policytool.formats import placed_values as _values
from policytool.formats.document import Tensor
from policytool.formats.edits import Content, Placement, WriteOptions
from policytool.formats.format_detection import open_values
from policytool.formats.hdf5 import groups as _hdf5
from policytool.support.errors import ModelFileError
from tests.helpers.marks import SLOW, THOROUGH, examples
from tests.helpers.small_models import sequential

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DTYPES: Final = (
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
)
BITS: Final = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
"""What stands for dtypes that NumPy lacks."""


def stored_in(path: Path, arrays: Mapping[str, Any]) -> Path:
    """Write an HDF5 model with these variables below the group ``layer``."""
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = "{}"
        for name, array in arrays.items():
            file[f"model_weights/layer/{name}"] = array
    return path


def copied(
    source: Path, target: Path, *placements: Placement, container: str = "h5"
) -> dict[str, Any]:
    """Return the values of each variable in a created file as a flat array."""
    document = format_detection.document(source, "source")
    content = Content(
        container=container, config=sequential(), keras_version="3.15.0", placements=placements
    )
    new = creating.build(
        source, document, target, content, options=WriteOptions(overwrite=True)
    ).target
    result = format_detection.document(new, "new")
    # No list names the variables of these contents.
    assert replace(result, observations=()) == creating.document(content, "new")
    with open_values(new, result) as values:
        assert values is not None
        return {
            tensor.path[-1]: np.concatenate(
                [np.zeros(0), *values.blocks(tensor)][1:] or [np.zeros(0)]
            )
            for tensor in result.tensors or ()
        }


def tensor(name: str, array: Any, dtype: str | None = None) -> Tensor:
    """Return a tensor with the values of an array."""
    return Tensor(path=("layer", name), shape=array.shape, dtype=dtype or str(array.dtype))


@THOROUGH
@given(data=st.data(), container=st.sampled_from(["h5", "keras"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
def test_variables_of_any_dtype_are_written_unchanged(
    data: st.DataObject, container: str, tmp_path: Path
) -> None:
    """
    Variables of any shape and dtype are written unchanged, including NaN payloads, and in archives
    also dtypes that HDF5 lacks.
    """
    dtypes = data.draw(
        st.lists(st.sampled_from(DTYPES if container == "h5" else (*DTYPES, *BITS)), max_size=4)
    )
    arrays: dict[str, Any] = {}
    placements = []
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file.attrs["model_config"] = "{}"
        for number, dtype in enumerate(dtypes):
            array = data.draw(
                hnp.arrays(
                    BITS.get(dtype, dtype),
                    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
                )
            )
            one = tensor(f"v{number}", array, dtype)
            made = file.create_dataset(
                "/".join(("model_weights", *one.path)),
                data=array.view(f"V{array.itemsize}") if dtype in BITS else array,
            )
            if dtype in BITS:
                made.attrs["dtype"] = dtype
            arrays[one.path[-1]] = array
            placements.append(
                Placement(path=("new", *one.path), shape=array.shape, dtype=dtype, source=one)
            )
    result = copied(tmp_path / "source.h5", tmp_path / "new", *placements, container=container)
    assert {name: array.tobytes() for name, array in result.items() if array.size} == {
        name: array.tobytes() for name, array in arrays.items() if array.size
    }


@THOROUGH
@given(
    values=hnp.arrays("float32", hnp.array_shapes(min_dims=1, max_dims=3, max_side=5)),
    after=st.sampled_from(["float16", "float32", "float64"]),
    through=st.sampled_from([None, "bfloat16", "float16"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
def test_values_cast_in_blocks_equal_the_cast_of_the_whole_array(
    values: Any, after: str, through: str | None, tmp_path: Path
) -> None:
    source = stored_in(tmp_path / "source.h5", {"v": values})
    placement = Placement(
        path=("v",), shape=values.shape, dtype=after, through=through, source=tensor("v", values)
    )
    result = copied(source, tmp_path / "new", placement)
    expected, counts = casting.cast(values, "float32", after, through)
    assert result["v"].tobytes() == expected.tobytes()
    content = Content(container="h5", config={}, placements=(placement,))
    written = creating.build(
        source,
        format_detection.document(source, "x"),
        tmp_path / "new",
        content,
        options=WriteOptions(overwrite=True),
    )
    assert written.counts == ({("v",): counts} if after != "float32" or through else {})


def test_bfloat16_is_widened_for_hdf5(tmp_path: Path) -> None:
    """bfloat16 becomes float32 with the same values in HDF5; only an archive can store bfloat16."""
    bits = np.arange(2**16, dtype="uint16")
    source = tmp_path / "source.h5"
    with h5py.File(source, "w") as file:
        file.attrs["model_config"] = "{}"
        file.create_dataset("model_weights/layer/v", data=bits.view("V2"))
    placement = Placement(
        path=("v",), shape=bits.shape, dtype="float32", source=tensor("v", bits, "bfloat16")
    )
    assert (
        copied(source, tmp_path / "new", placement)["v"].tobytes()
        == (bits.astype("uint32") << 16).tobytes()
    )


@pytest.mark.parametrize("scale", [(1.2,), (1.0, 0.5, 1.2)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_multiplied_values_are_rounded_once(
    scale: tuple[float, ...], dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From float64 to the stored dtype; the factors follow the last axis across blocks."""
    monkeypatch.setattr("policytool.formats.hdf5.datasets.BLOCK", 40)
    values = np.random.default_rng(0).normal(size=(7, 5, 3)).astype(dtype)
    source = stored_in(tmp_path / "source.h5", {"v": values})
    placement = Placement(
        path=("v",), shape=values.shape, dtype=dtype, source=tensor("v", values), scale=scale
    )
    assert (
        copied(source, tmp_path / "new", placement)["v"].tobytes()
        == (values.astype("float64") * scale).astype(dtype).tobytes()
    )


def test_filled_values(tmp_path: Path) -> None:
    """A variable is filled with one value or with a list of values in the stored dtype."""
    source = stored_in(tmp_path / "source.h5", {})
    result = copied(
        source,
        tmp_path / "new",
        Placement(path=("one",), shape=(2, 3), dtype="float16", fill=(0.1,)),
        Placement(path=("each",), shape=(3,), dtype="int64", fill=(0.0, -7.0, 2.0)),
        Placement(path=("seed",), shape=(2,), dtype="uint32", fill=(0.0, 4294967295.0)),
        Placement(path=("truth",), shape=(), dtype="bool", fill=(1.0,)),
        Placement(path=("brain",), shape=(1,), dtype="bfloat16", fill=(1.5,)),
        Placement(path=("none",), shape=(0, 4), dtype="float32", fill=(1.5,)),
        container="keras",
    )
    assert result["one"].tolist() == [np.float16(0.1)] * 6
    assert result["each"].tolist() == [0, -7, 2]
    assert result["seed"].tolist() == [0, 4294967295]
    assert result["truth"].tolist() == [True]
    assert result["brain"].tobytes() == b"\xc0\x3f"
    assert result["none"].size == 0


def test_integers_are_cast_only_if_all_values_fit(tmp_path: Path) -> None:
    """Integers are cast from int64 to int32 or float32 only if each value fits exactly."""
    array = np.array([0, 3, 2**24 + 1])
    source = stored_in(tmp_path / "source.h5", {"v": array})
    narrow = Placement(path=("v",), shape=(3,), dtype="int32", source=tensor("v", array))
    assert copied(source, tmp_path / "new", narrow)["v"].tolist() == array.tolist()
    for dtype in ("float32", "uint8", "complex64"):
        with pytest.raises(ModelFileError, match="cannot be copied"):
            copied(
                source,
                tmp_path / "new",
                Placement(path=("v",), shape=(3,), dtype=dtype, source=tensor("v", array)),
            )


def test_another_number_of_values_is_rejected(tmp_path: Path) -> None:
    """A source with too few or too many values is an error."""
    array = np.zeros((2, 3), dtype="float32")
    source = stored_in(tmp_path / "source.h5", {"v": array})
    for shape in ((2, 2), (7,)):
        with pytest.raises(ModelFileError, match="but 6 values were provided"):
            copied(
                source,
                tmp_path / "new",
                Placement(path=("v",), shape=shape, dtype="float32", source=tensor("v", array)),
            )


@given(shape=hnp.array_shapes(min_dims=0, max_dims=4, max_side=5), data=st.data())
def test_boxes_cover_a_range_in_order(shape: tuple[int, ...], data: st.DataObject) -> None:
    """The boxes of a range contain each value once, in C order."""
    size = math.prod(shape)
    start = data.draw(st.integers(0, size - 1))
    count = data.draw(st.integers(0, size - start))
    numbers = np.arange(size).reshape(shape)
    found: list[int] = []
    for begin, box in _hdf5.boxes(shape, start, count):
        found += (
            numbers[
                tuple(slice(first, first + width) for first, width in zip(begin, box, strict=True))
            ]
            .ravel()
            .tolist()
        )
    assert found == list(range(start, start + count))


@given(
    data=st.binary(max_size=60),
    cuts=st.lists(st.integers(0, 60)),
    others=st.lists(st.integers(0, 60)),
    spoiled=st.integers(0, 59),
)
def test_digest_of_a_stream_does_not_depend_on_chunks(
    data: bytes, cuts: list[int], others: list[int], spoiled: int
) -> None:

    def pieces(of: bytes, at: list[int]) -> list[Any]:
        edges = [0, *sorted(min(cut, len(of)) for cut in at), len(of)]
        return [
            np.frombuffer(of[start:end], dtype="uint8") for start, end in itertools.pairwise(edges)
        ]

    assert _values.same_values(pieces(data, cuts), pieces(data, others))
    assert not _values.same_values(pieces(data, cuts), pieces(data + b"x", others))
    if spoiled < len(data):
        other = bytes([*data[:spoiled], data[spoiled] ^ 1, *data[spoiled + 1 :]])
        assert not _values.same_values(pieces(data, cuts), pieces(other, others))


@SLOW
@pytest.mark.parametrize("container", ["h5", "keras"])
@pytest.mark.parametrize(
    "more", [{}, {"dtype": "float16"}, {"scale": (1.2,)}], ids=["plain", "cast", "scaled"]
)
def test_large_tensor_is_written_in_blocks(
    container: str, more: dict[str, Any], tmp_path: Path
) -> None:
    """Writing a tensor of 128 MiB in blocks needs less than half of that memory."""
    shape = (2**12, 2**13)
    source = tmp_path / "source.h5"
    with h5py.File(source, "w") as file:
        file.attrs["model_config"] = "{}"
        made = file.create_dataset("model_weights/layer/v", shape, dtype="float32")
        for start in range(0, shape[0], 1024):
            made[start : start + 1024] = np.full((1024, shape[1]), start, dtype="float32")
    large = Tensor(path=("layer", "v"), shape=shape, dtype="float32")
    placement = Placement(
        **{"path": ("v",), "shape": shape, "dtype": "float32", "source": large, **more}
    )
    document = format_detection.document(source, "source")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    creating.build(
        source,
        document,
        tmp_path / "new",
        Content(container=container, config={}, placements=(placement,)),
    )
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 64 * 2**20
