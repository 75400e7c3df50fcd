"""Damaged, foreign and malicious checkpoints are read correctly or are an error with a code."""

from __future__ import annotations

import os
import random
import shutil
import tracemalloc
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.formats.checkpoint.bundle import BundleError, open_bundle
from policytool.formats.checkpoint.bundle import _index as ordered_code
from policytool.support import limits
from tests.formats.checkpoint.bundle.test_reading import SAVED_MODELS, WRITTEN, summary
from tests.helpers import bundles
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from policytool.formats.checkpoint.bundle import Bundle
    from tests.conftest import Bounded

ENTRY: Final = (b"v", bundles.entry("uint8", (4,), b"abcd").SerializeToString())

pytestmark = THOROUGH


def reading(prefix: Path) -> Any:
    """Return the content of a checkpoint, or the code of the error."""
    try:
        bundle = open_bundle(prefix)
        return dict(bundle.entries), bundle.objects(), summary(bundle)
    except BundleError as error:
        assert error.message == str(error)
        return error.code


@pytest.fixture(params=["saver", "training"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the prefix of a copy of a real checkpoint."""
    for file in WRITTEN.glob(f"{request.param}.*"):
        shutil.copy(file, tmp_path)
    return tmp_path / str(request.param)


def test_truncated_indexes_are_rejected(copied: Path) -> None:
    """A truncated index is an error; every third length is tried."""
    index = copied.with_name(f"{copied.name}.index")
    data = index.read_bytes()
    for length in range(0, len(data), 3):
        index.write_bytes(data[:length])
        assert reading(copied) == ("truncated" if length else "empty")


def test_flipped_bytes_are_found_or_harmless(copied: Path) -> None:
    """A changed byte of an index is detected by a checksum or has no effect."""
    index = copied.with_name(f"{copied.name}.index")
    data = index.read_bytes()
    whole = reading(copied)
    generator = random.Random(1)  # noqa: S311  # no secret
    harmless = 0
    for place in range(0, len(data), 2):
        changed = bytearray(data)
        changed[place] ^= generator.randrange(1, 256)
        index.write_bytes(changed)
        result = reading(copied)
        harmless += result == whole
        assert result == whole or isinstance(result, str), place
    assert harmless < 40, "the footer's padding and the empty block are all that does not count"


def test_flipped_bytes_of_values_are_found(copied: Path) -> None:
    """A changed byte of a tensor is detected by its checksum."""
    shard = copied.with_name(f"{copied.name}.data-00000-of-00001")
    data = shard.read_bytes()
    for place in range(0, len(data), 7):
        shard.write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
        assert reading(copied) == "checkpoint-damaged", place


@given(data=st.data())
def test_any_bytes_in_a_valid_table_are_read_or_rejected(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Arbitrary keys and values with correct checksums are read or are an error with a code."""
    prefix = tmp_path_factory.mktemp("any") / "made"
    real = (WRITTEN / "saver.index").read_bytes()
    keys = data.draw(st.lists(st.binary(max_size=12) | st.just(b"") | st.just(b"v"), max_size=4))
    values = (
        st.binary(max_size=40)
        | st.just(ENTRY[1])
        | st.just(bundles.header()[1])
        | st.integers(0, len(real) - 50).map(lambda at: real[at : at + 40])
    )
    bundles.write_index(prefix, [[(key, data.draw(values)) for key in keys]])
    reading(prefix)
    shutil.rmtree(prefix.parent)


def _made(change: Callable[[Any], None]) -> bytes:
    message = bundles.entry("uint8", (4,), b"abcd")
    change(message)
    return bytes(message.SerializeToString())


def _sliced(*extents: tuple[int, int], shape: tuple[int, ...] = (4,)) -> list[tuple[bytes, bytes]]:
    """Return a variable in slices along its first axis, and the slices."""
    full = bundles.entry("uint8", shape, b"", checksum=0)
    pairs, place = [], 0
    for start, length in extents:
        extent = full.slices.add().extents.add()
        extent.start, extent.length = start, length
        pairs.append(
            (
                ordered_code.slice_key(b"v", [(start, length)]),
                bundles.entry("uint8", (length,), b"x" * length, place).SerializeToString(),
            )
        )
        place += length
    return [*sorted(pairs), (b"v", full.SerializeToString())]


FORGED: Final[dict[str, tuple[list[tuple[bytes, bytes]], str, str]]] = {
    "no header": ([ENTRY], "checkpoint-damaged", "no header"),
    "header is no message": ([(b"", b"\xff")], "checkpoint-damaged", "damaged"),
    "big endian": ([bundles.header(endianness=1)], "checkpoint-unsupported", "big-endian"),
    "newer version": ([bundles.header(min_consumer=2)], "checkpoint-unsupported", "version 2"),
    "no files": ([bundles.header(shards=0)], "checkpoint-damaged", "0 data files"),
    "too many files": ([bundles.header(shards=100_000)], "checkpoint-limit", "100000 files"),
    "file of another number": (
        [bundles.header(), (b"v", _made(lambda entry: setattr(entry, "shard", 1)))],
        "checkpoint-damaged",
        "refers to data file 1, but the number of data files is 1",
    ),
    "negative file": (
        [bundles.header(), (b"v", _made(lambda entry: setattr(entry, "shard", -1)))],
        "checkpoint-damaged",
        "negative",
    ),
    "negative offset": (
        [bundles.header(), (b"v", _made(lambda entry: setattr(entry, "offset", -1)))],
        "checkpoint-damaged",
        "negative",
    ),
    "negative dimension": (
        [bundles.header(), (b"v", _made(lambda entry: setattr(entry.shape.dims[0], "size", -4)))],
        "checkpoint-damaged",
        "negative",
    ),
    "size is not the shape's": (
        [bundles.header(), (b"v", _made(lambda entry: setattr(entry, "size", 5)))],
        "checkpoint-damaged",
        "5 bytes",
    ),
    "rank": (
        [bundles.header(), (b"v", bundles.entry("uint8", [1] * 255, b"a").SerializeToString())],
        "checkpoint-limit",
        "254",
    ),
    "no rank": (
        [bundles.header(), (b"v", _made(lambda entry: setattr(entry.shape, "unknown_rank", True)))],
        "checkpoint-damaged",
        "no shape",
    ),
    "key twice": ([bundles.header(), ENTRY, ENTRY], "checkpoint-damaged", "keys are not sorted"),
    "keys out of order": (
        [bundles.header(), (b"w", ENTRY[1]), ENTRY],
        "checkpoint-damaged",
        "keys are not sorted",
    ),
    "tensors in one place": (
        [bundles.header(), ENTRY, (b"w", ENTRY[1])],
        "checkpoint-damaged",
        "overlap",
    ),
    "key is no text": ([bundles.header(), (b"\xff", ENTRY[1])], "checkpoint-damaged", "utf-8"),
    "entry is no message": (
        [bundles.header(), (b"v", b"\xff\xff")],
        "checkpoint-damaged",
        "not a protobuf message",
    ),
    "slice is missing": (
        [bundles.header(), *_sliced((0, 2), (2, 2))[1:]],
        "checkpoint-damaged",
        "slices are missing",
    ),
    "slices leave a gap": (
        [bundles.header(), *_sliced((0, 1), (2, 2))],
        "checkpoint-damaged",
        "do not form a tensor",
    ),
    "slices do not reach the end": (
        [bundles.header(), *_sliced((0, 1), (1, 2))],
        "checkpoint-damaged",
        "do not cover",
    ),
    "slices overlap": (
        [bundles.header(), *_sliced((0, 3), (2, 2))],
        "checkpoint-damaged",
        "do not form a tensor",
    ),
    "slice of another rank": (
        [bundles.header(), *_sliced((0, 4), shape=(4, 1))],
        "checkpoint-damaged",
        "dimensions",
    ),
    "slices of a scalar": (
        [bundles.header(), *_sliced((0, 4), shape=())],
        "checkpoint-damaged",
        "dimensions",
    ),
}
"""Pairs of an index, the code, and words of the sentence."""


@pytest.mark.parametrize("name", sorted(FORGED))
def test_forged_indexes_are_rejected(name: str, tmp_path: Path) -> None:
    """Each kind of malformed index is an error with its own code and the name of the file."""
    pairs, code, words = FORGED[name]
    bundles.write_index(tmp_path / "made", [pairs])
    with pytest.raises(BundleError, match=words) as raised:
        open_bundle(tmp_path / "made")
    assert raised.value.code == code
    assert "made.index" in raised.value.message


def test_compressed_blocks_are_rejected(tmp_path: Path) -> None:
    bundles.write_index(tmp_path / "made", [[bundles.header()]], compression=1)
    with pytest.raises(BundleError, match="Snappy"):
        open_bundle(tmp_path / "made")


def test_block_listed_many_times_is_rejected(tmp_path: Path) -> None:
    """A small file could otherwise be read forever."""
    data = bundles.block([bundles.header()])
    handle = bundles.varint(0) + bundles.varint(len(data) - 5)
    (tmp_path / "made.index").write_bytes(
        bundles.finished(data, [(b"%05d" % index, handle) for index in range(1000)])
    )
    with pytest.raises(BundleError, match="overlap"):
        open_bundle(tmp_path / "made")


@pytest.mark.parametrize("length", [40_000, 70_000])
def test_keys_that_prefix_compression_multiplies_are_bounded(
    length: int, tmp_path: Path, bounded: Bounded
) -> None:
    """
    An index of a few hundred kB whose prefix-compressed keys expand to a GB is an error before the
    keys are expanded.
    """
    bounded("checkpoint-index-bytes", 8 * 2**20)
    pairs = [bundles.header(), *((b"k" * length + b"%06d" % index, b"") for index in range(300))]
    data = bundles.block(pairs, restart_every=10**9)
    assert len(data) < 2**20
    (tmp_path / "made.index").write_bytes(
        bundles.finished(data, [(b"z", bundles.varint(0) + bundles.varint(len(data) - 5))])
    )
    tracemalloc.start()
    assert reading(tmp_path / "made") in {"checkpoint-limit", "checkpoint-damaged"}
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()


def test_keys_of_empty_blocks_are_bounded(tmp_path: Path, bounded: Bounded) -> None:
    bounded("checkpoint-index-bytes", 2**20)
    data = bundles.block([bundles.header()])
    handles = [(b"", bundles.varint(0) + bundles.varint(len(data) - 5))]
    for number in range(100):
        empty = bundles.block([])
        handles.append(
            (
                b"k" * 40_000 + b"%06d" % number,
                bundles.varint(len(data)) + bundles.varint(len(empty) - 5),
            )
        )
        data += empty
    (tmp_path / "made.index").write_bytes(bundles.finished(data, handles))
    assert reading(tmp_path / "made") == "checkpoint-limit"


def test_number_of_tensors_is_bounded(tmp_path: Path, bounded: Bounded) -> None:
    """The number of tensors in an index is limited, because each needs an object."""
    bounded("checkpoint-entries", 1)
    bundles.write_index(tmp_path / "made", [[bundles.header(), ENTRY]])
    assert reading(tmp_path / "made") == "checkpoint-limit"


def test_index_above_the_size_limit_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "made.index").open("wb") as stream:
        stream.truncate(limits.CHECKPOINT_INDEX_BYTES.value + 1)
    assert reading(tmp_path / "made") == "checkpoint-limit"


def opened(
    directory: Path, tensors: dict[str, tuple[str, Sequence[int], bytes]] | None = None
) -> Bundle:
    """Return a small checkpoint that was written and opened."""
    bundles.write(directory / "made", tensors or {"v": ("uint8", (4,), b"abcd")})
    return open_bundle(directory / "made")


def test_shards_are_looked_for_beside_the_index(tmp_path: Path) -> None:
    """When the checkpoint is opened, without reading values, and when values are read."""
    bundle = opened(tmp_path)
    shard = tmp_path / "made.data-00000-of-00001"
    shard.unlink()
    assert [error.code for error in bundle.lacking()] == ["checkpoint-incomplete"]
    with pytest.raises(BundleError, match=r"made\.data-00000-of-00001 is missing"):
        list(bundle.chunks(bundle.entries["v"]))


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"abc", "truncated"),
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "truncated"),
        (b"ABCD", None),
    ],
)
def test_short_shards_are_reported(content: bytes, code: str | None, tmp_path: Path) -> None:
    """A shard that is too short is reported as truncated or as the remains of a failed download."""
    bundle = opened(tmp_path)
    (tmp_path / "made.data-00000-of-00001").write_bytes(content)
    expected = ["lfs-pointer"] if content.startswith(b"version") else [code] if code else []
    if content.startswith(b"version"):
        bundle = opened(tmp_path, {"v": ("uint8", (1000,), b"a" * 1000)})
        (tmp_path / "made.data-00000-of-00001").write_bytes(content)
    assert [error.code for error in bundle.lacking()] == expected
    with pytest.raises(BundleError):
        list(bundle.chunks(bundle.entries["v"]))


@pytest.mark.parametrize("inside", [True, False])
def test_links_are_followed_only_within_the_directory(inside: bool, tmp_path: Path) -> None:  # noqa: FBT001
    (tmp_path / "here").mkdir()
    bundle = opened(tmp_path / "here")
    shard = tmp_path / "here/made.data-00000-of-00001"
    target = tmp_path / ("here/real" if inside else "real")
    shard.rename(target)
    shard.symlink_to(target)
    if inside:
        assert b"".join(bundle.chunks(bundle.entries["v"])) == b"abcd"
    else:
        with pytest.raises(BundleError, match="link to a file outside its directory"):
            list(bundle.chunks(bundle.entries["v"]))


def test_a_pipe_in_place_of_a_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe in place of a file is an error, because reading it would not end."""
    bundle = opened(tmp_path)
    for name in ("made.data-00000-of-00001", "pipe.index"):
        (tmp_path / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name)
    assert [error.code for error in bundle.lacking()] == ["checkpoint-incomplete"]
    with pytest.raises(BundleError, match="not a file"):
        open_bundle(tmp_path / "pipe")


def test_values_of_the_dtype_variant_are_rejected(tmp_path: Path) -> None:
    """Tensors of the dtype variant are an error, because only a program can read their values."""
    bundle = opened(tmp_path, {"v": ("variant", (), b"abcd")})
    with pytest.raises(BundleError, match="variant"):
        list(bundle.chunks(bundle.entries["v"]))
    with pytest.raises(BundleError, match="partitioned or is not a string tensor"):
        bundle.strings(bundle.entries["v"])


def test_object_graph_above_the_limits_is_rejected(tmp_path: Path) -> None:
    """They are checked before the objects are created."""
    bundle = opened(tmp_path, dict([bundles.object_graph([([("a", 1)], []), ([], [])])]))
    assert bundle.objects() is not None
    for name in ("checkpoint-graph-bytes", "object-nodes"):
        with (
            limits.override({name: 1}),
            pytest.raises(
                BundleError,
                match=f"its object graph has .*, above the {name} limit of 1.*; raise the limit "
                f"with --limit {name}=",
            ),
        ):
            bundle.objects()


def test_missing_index_is_an_error(tmp_path: Path) -> None:
    assert reading(tmp_path / "nothing") == "not-found"


def test_real_indexes_take_little_memory() -> None:
    """Reading a real index needs memory of at most tens of times its size."""
    prefix = SAVED_MODELS[0] / "variables/variables"
    open_bundle(prefix)
    tracemalloc.start()
    open_bundle(prefix)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
