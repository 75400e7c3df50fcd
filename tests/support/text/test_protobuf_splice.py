"""Protobuf's wire format: what is replaced, what stays, and what is no message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.support import limits, steps
from policytool.support.errors import ModelFileError
from policytool.support.text import protobuf_splice
from policytool.support.text.protobuf_splice import Span, Splice, WireError, encode_varint
from tests.helpers.marks import THOROUGH

Tree = list["tuple[int, bytes | int | Tree]"]


def delimited(number: int, value: bytes) -> bytes:
    """Return a length-delimited field."""
    return encode_varint(number << 3 | 2) + encode_varint(len(value)) + value


def serialised(tree: Tree) -> bytes:
    """Return a message of fields: bytes, numbers, and messages."""
    return b"".join(
        encode_varint(number << 3) + encode_varint(value)
        if isinstance(value, int)
        else delimited(number, value if isinstance(value, bytes) else serialised(value))
        for number, value in tree
    )


def applied(data: bytes, splices: list[Splice]) -> bytes:
    """Return the bytes with all splices made."""
    found, position = b"", 0
    for splice in splices:
        assert position <= splice.start <= splice.end
        found += data[position : splice.start] + splice.new
        position = splice.end
    return found + data[position:]


LENGTHS = st.sampled_from([0, 1, 2, 60, 120, 126, 127, 128, 129, 16380, 16383, 16384, 16390])


@given(old=LENGTHS, new=LENGTHS, before=LENGTHS, after=LENGTHS, second=LENGTHS)
def test_replaced_value_updates_the_enclosing_lengths(
    old: int, new: int, before: int, after: int, second: int
) -> None:
    """The result equals the serialized message with the other value, for any size of lengths."""

    def message(inner: bytes, other: bytes) -> bytes:
        return serialised(
            [
                (1, 7),
                (
                    2,
                    [
                        (9, b"x" * before),
                        (7, [(1, [(3, inner), (5, 300)]), (1, [(3, other)]), (4, b"y" * after)]),
                    ],
                ),
                (15, b"end"),
            ]
        )

    data = message(b"o" * old, b"other")
    graph = next(protobuf_splice.spans(data, 2))
    objects = protobuf_splice.single_span(data, 7, graph)
    assert objects is not None
    one, two = protobuf_splice.spans(data, 1, objects)
    leaves = [protobuf_splice.single_span(data, 3, node) for node in (one, two)]
    assert leaves[0] is not None
    assert leaves[1] is not None
    changes: dict[tuple[Span, ...], bytes] = {
        (graph, objects, one, leaves[0]): b"n" * new,
        (graph, objects, two, leaves[1]): b"m" * second,
    }
    assert applied(data, protobuf_splice.splices(changes)) == message(b"n" * new, b"m" * second)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_message_or_an_error(data: bytes) -> None:
    """Fields are inside the message, one after the other."""
    try:
        actual = list(protobuf_splice.fields(data))
    except WireError:
        return
    position = 0
    for field in actual:
        if field.span is not None:
            assert position <= field.span.length < field.span.start <= field.span.end <= len(data)
            position = field.span.end


@THOROUGH
@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_varints_are_read_unchanged(number: int) -> None:
    (field,) = protobuf_splice.fields(encode_varint(1 << 3) + encode_varint(number))
    assert field.value == number


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x0a\x05abc", "longer than the message"),
        (b"\x08", "ends within a number"),
        (b"\x08" + b"\xff" * 11, "more than 10 bytes"),
        (b"\x0b", "unknown kind 3"),
        (b"\x00\x01", "without a number"),
        (b"\x09abc", "longer than the message"),
    ],
)
def test_each_kind_of_damage_has_a_message(data: bytes, words: str) -> None:
    """Each kind of damage has its sentence."""
    with pytest.raises(WireError, match=words):
        list(protobuf_splice.fields(data))


def test_repeated_value_is_not_replaced() -> None:
    """A parser would merge both occurrences."""
    data = delimited(7, b"a") + delimited(7, b"b")
    assert [data[span.start : span.end] for span in protobuf_splice.spans(data, 7)] == [b"a", b"b"]
    with pytest.raises(WireError, match="occurs 2 times"):
        protobuf_splice.single_span(data, 7)
    with pytest.raises(WireError, match="is a number"):
        list(protobuf_splice.spans(b"\x38\x01", 7))
    assert protobuf_splice.single_span(data, 6) is None


def test_fixed_numbers_are_passed_over() -> None:
    """Fields of four and eight bytes have no length."""
    data = (
        encode_varint(1 << 3 | 5)
        + b"abcd"
        + encode_varint(2 << 3 | 1)
        + b"abcdefgh"
        + delimited(3, b"x")
    )
    assert [field.number for field in protobuf_splice.fields(data)] == [1, 2, 3]
    assert protobuf_splice.single_span(data, 3) == Span(len(data) - 2, len(data) - 1, len(data))


def test_empty_change_gives_no_splice() -> None:
    """A value of the same length does not change the lengths."""
    data = delimited(2, delimited(3, b"abc"))
    outer = next(protobuf_splice.spans(data, 2))
    inner = protobuf_splice.single_span(data, 3, outer)
    assert inner is not None
    assert protobuf_splice.splices({}) == []
    assert protobuf_splice.splices({(outer, inner): b"xyz"}) == [
        Splice(inner.start, inner.end, b"xyz")
    ]


def test_fields_spend_steps() -> None:
    """A message of two million unknown fields once took a second per megabyte."""
    with limits.override({"file-steps": 5_000}), steps.budget("a.pb"):
        assert sum(1 for _ in protobuf_splice.fields(b"\x38\x00" * 4_000)) == 4_000
        with pytest.raises(ModelFileError, match="file-steps limit of 5000"):
            list(protobuf_splice.spans(b"\x38\x00" * 1_000_000, 1))
