"""
Replaces values in a large protobuf message without parsing it: finds fields in the wire format, and
updates the lengths of the messages around a new value.

Parsing and serializing a message could change the order of its fields, and lose fields that its
schema does not declare. A :class:`Span` is a length-delimited field. A chain of spans, from the
outermost to the innermost, is the address of a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DELIMITED: Final = 2
FIXED: Final = {1: 8, 5: 4}
"""The sizes in bytes of fields of fixed size, by wire type."""

VARINT: Final = 0
MORE: Final = 0x80
_LONGEST_VARINT: Final = 10
_BITS: Final = 7
_TAG_BITS: Final = 3
_WALK: Final = "protobuf fields"
_BULK: Final = 1_000
"""Number of fields whose steps are counted together."""


class WireError(ValueError):
    """Bytes that are not a protobuf message."""


class Span(Struct, frozen=True, order=True):
    """
    A length-delimited field: the positions of its length, of the start of its value, and of its
    end.
    """

    length: int
    start: int
    end: int


class Field(Struct, frozen=True, kw_only=True):
    """One field of a message."""

    number: int
    span: Span | None
    """The span of the value if it is length-delimited; None for a number."""

    value: int = 0
    """The value of a varint."""


class Splice(Struct, frozen=True, order=True):
    """Bytes that replace a range of a file."""

    start: int
    end: int
    new: bytes


def fields(data: bytes | memoryview, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """
    Yield the fields of the message between two positions, in the order of the file.

    :raises WireError: if the bytes are not a message that ends at ``end``.
    :raises ModelFileError: if the steps of the current file exceed their limit.
    """
    stop = len(data) if end is None else end
    position = start
    unspent = 0
    while position < stop:
        unspent += 1
        if unspent == _BULK:
            spend(unspent, walk=_WALK)
            unspent = 0
        tag, position = read_varint(data, position, stop)
        number, kind = tag >> _TAG_BITS, tag & ((1 << _TAG_BITS) - 1)
        if not number:
            raise WireError(f"a field without a number at byte {position}")
        if kind == VARINT:
            value, position = read_varint(data, position, stop)
            yield Field(number=number, span=None, value=value)
            continue
        length = position
        if kind == DELIMITED:
            size, position = read_varint(data, position, stop)
        elif kind in FIXED:
            size = FIXED[kind]
        else:
            raise WireError(f"a field of the unknown kind {kind} at byte {position}")
        if size > stop - position:
            raise WireError(f"a field at byte {position} is longer than the message around it")
        yield Field(
            number=number,
            span=Span(length, position, position + size) if kind == DELIMITED else None,
        )
        position += size
    spend(unspent, walk=_WALK)


def spans(data: bytes | memoryview, number: int, within: Span | None = None) -> Iterator[Span]:
    """
    Yield the span of each value of a field.

    :param number: the number of the field
    :param within: the nested message that contains the field; None for the whole message
    :raises WireError: if the bytes are not a message, or if a value is not length-delimited.
    """
    start, end = (within.start, within.end) if within is not None else (0, len(data))
    for field in fields(data, start, end):
        if field.number == number:
            if field.span is None:
                raise WireError(f"field {number} is a number; expected a message or text")
            yield field.span


def single_span(data: bytes | memoryview, number: int, within: Span | None = None) -> Span | None:
    """
    Return the span of the value of a field that may occur once; None if the field is missing.

    :raises WireError: if the field occurs several times, which a parser would merge.
    """
    occurrences = list(spans(data, number, within))
    if len(occurrences) > 1:
        raise WireError(f"field {number} occurs {len(occurrences)} times but can only be set once")
    return occurrences[0] if occurrences else None


def splices(changes: Mapping[tuple[Span, ...], bytes]) -> list[Splice]:
    """
    Return the splices that replace the last value of each chain and update the lengths of the
    fields around it; sorted, without overlap.
    """
    growth_by_span: dict[Span, int] = {}
    replacements = []
    for chain, new in changes.items():
        *_, last = chain
        replacements.append(Splice(last.start, last.end, new))
        growth_by_span[last] = len(new) - (last.end - last.start)
    for depth in range(max((len(chain) for chain in changes), default=0) - 1, 0, -1):
        for inner, outer in {
            (chain[depth], chain[depth - 1]) for chain in changes if depth < len(chain)
        }:
            growth_by_span[outer] = (
                growth_by_span.get(outer, 0)
                + growth_by_span[inner]
                + _length_growth(inner, growth_by_span[inner])
            )
    replacements += [
        Splice(span.length, span.start, encode_varint(span.end - span.start + growth))
        for span, growth in growth_by_span.items()
        if growth
    ]
    return sorted(replacements)


def encode_varint(value: int) -> bytes:
    """Return a number as a varint."""
    encoded = bytearray()
    while value >= MORE:
        encoded.append(value & (MORE - 1) | MORE)
        value >>= _BITS
    return bytes((*encoded, value))


def _length_growth(span: Span, growth: int) -> int:
    """Return by how many bytes the encoded length grows if the value grows by ``growth`` bytes."""
    return (
        len(encode_varint(span.end - span.start + growth)) - (span.start - span.length)
        if growth
        else 0
    )


def read_varint(data: bytes | memoryview, position: int, stop: int) -> tuple[int, int]:
    """
    Return the number at a position, and the position after it.

    :raises WireError: if the number does not end before ``stop``, or is longer than 64 bits.
    """
    value = 0
    for step in range(_LONGEST_VARINT):
        if position + step >= stop:
            raise WireError(f"the data ends within a number at byte {position}")
        byte = data[position + step]
        value |= (byte & (MORE - 1)) << (_BITS * step)
        if byte < MORE:
            return value, position + step + 1
    raise WireError(f"a number with more than {_LONGEST_VARINT} bytes at byte {position}")
