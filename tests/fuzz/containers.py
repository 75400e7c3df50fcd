"""
Changes to bytes, and to what holds configs: zip archives, protobuf messages, tables of checkpoints,
HDF5 files, TOML.
"""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from typing import TYPE_CHECKING, Final

from policytool.formats.checkpoint.bundle import _index
from policytool.support.errors import BundleError
from tests.fuzz import trees, words
from tests.helpers import bundles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

_BYTES: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x20, 0x0A)
_INTEGERS: Final = (
    0,
    1,
    0x7FFFFFFF,
    0xFFFFFFFF,
    0x80000000,
    0xFFFFFFFFFFFFFFFF,
    0x7FFFFFFFFFFFFFFF,
    0x10000,
    255,
)


def damaged(rng: Random, data: bytes, most: int = 4) -> bytes:
    """Return bytes with some changes that know nothing of what they are."""
    made = bytearray(data)
    for _ in range(rng.randint(1, most)):
        size = len(made)
        at = rng.randrange(size) if size else 0
        if rng.random() < 0.3:  # headers decide more than values do
            at = min(at, rng.randrange(512))
        match rng.randrange(8) if size else 4:
            case 0:
                made[at] ^= 1 << rng.randrange(8)
            case 1:
                made[at] = rng.choice(_BYTES)
            case 2:
                width = rng.choice((1, 2, 4, 8))
                made[at : at + width] = (rng.choice(_INTEGERS) & (1 << 8 * width) - 1).to_bytes(
                    width, rng.choice(("little", "big"))
                )
            case 3:
                del made[at : at + rng.choice((1, 1, 4, 64, size))]
            case 4:
                made[at:at] = rng.choice(
                    (
                        b"\0",
                        b"\xff" * 8,
                        rng.randbytes(rng.choice((1, 4, 32))),
                        rng.choice(words.KEYS).encode(),
                    )
                )
            case 5:
                source = rng.randrange(size)
                part = bytes(made[source : source + rng.choice((1, 8, 64, 512))])
                made[at : at + (len(part) if rng.random() < 0.7 else 0)] = part
            case 6:
                made[at] = rng.randrange(256)
            case _:
                length = rng.choice((2, 8, 32))
                made[at : at + length] = rng.randbytes(length)
    return bytes(made[: 2**20])


def archive(rng: Random, members: Mapping[str, bytes]) -> bytes:
    """
    Return a zip archive of these members, some changed, doubled, renamed or left out, and now and
    then its own fields damaged.
    """
    held = list(members.items())
    for _ in range(rng.randint(0, 3)):
        index = rng.randrange(len(held)) if held else 0
        match rng.randrange(6) if held else 5:
            case 0:
                name, data = held[index]
                held[index] = name, damaged(rng, data)
            case 1:
                held.append(held[index])
            case 2:
                held[index] = _name(rng), held[index][1]
            case 3:
                held.pop(index)
            case 4:
                name, data = held[index]
                held[index] = name, trees.bytes_of(rng, data) if name.endswith(".json") else data
            case _:
                held.append((_name(rng), rng.choice((b"", b"x", bytes(1000)))))
    result = _zipped(rng, held)
    return result if rng.random() < 0.5 else _damaged_fields(rng, result)


def _name(rng: Random) -> str:
    odd = (
        "../x",
        "/etc/x",
        "a\\b",
        "config.json",
        "model.weights.h5",
        "metadata.json",
        "assets/",
        "assets/layers/a/v.txt",
        "model.weights.json",
        "x" * 300,
    )
    return rng.choice(
        (*odd, *(text.encode("utf-8", "replace").decode() for text in words.TEXTS if text))
    )


def _zipped(rng: Random, held: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as made:
        warnings.simplefilter("ignore")  # about names that stand twice
        for name, data in held:
            info = zipfile.ZipInfo(name.replace("\0", "0"))
            info.compress_type = (
                rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
                if rng.random() < 0.2
                else zipfile.ZIP_STORED
            )
            try:
                made.writestr(info, data)
            except (UnicodeEncodeError, ValueError):
                continue
    return buffer.getvalue()


def _damaged_fields(rng: Random, data: bytes) -> bytes:
    """Change bytes within the headers of members and of the archive."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        mark = rng.choice((b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"))
        places = (
            [at for at in range(len(made)) if made.startswith(mark, at)]
            if len(made) < 2**12
            else [made.find(mark), made.rfind(mark)]
        )
        place = rng.choice(places or [0])
        if place >= 0:
            at = place + 4 + rng.randrange(42)
            width = rng.choice((1, 2, 4))
            made[at : at + width] = (
                rng.choice((*_INTEGERS, rng.randrange(2**32))) & (1 << 8 * width) - 1
            ).to_bytes(width, "little")
    return bytes(made)


def message(rng: Random, data: bytes, depth: int = 0) -> bytes:
    """
    Return a protobuf message with one change somewhere in it; the lengths around it are right
    again.
    """
    fields = _fields(data)
    if not fields or (depth and rng.random() < 0.05):
        return trees.bytes_of(rng, data) if data[:1] == b"{" else damaged(rng, data, 2)
    index = rng.randrange(len(fields))
    number, kind, value = fields[index]
    how = rng.random()
    if kind == _DELIMITED and how < 0.7 and depth < 12 and isinstance(value, bytes):
        if value[:1] == b"{":
            fields[index] = number, kind, trees.bytes_of(rng, value)
        else:
            fields[index] = (
                number,
                kind,
                message(rng, value, depth + 1) if _fields(value) else _other(rng, value, fields),
            )
    elif how < 0.8:
        fields.insert(index, rng.choice(fields))
    elif how < 0.87:
        del fields[index]
    elif isinstance(value, int):
        fields[index] = (
            number,
            kind,
            rng.choice(
                (0, 1, rng.randrange(64), value + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
            ),
        )
    else:
        fields[index] = (
            rng.choice((number, rng.randint(1, 20))),
            kind,
            rng.choice(fields)[2] if rng.random() < 0.5 else value,
        )
    return b"".join(_encoded(field) for field in fields)


_DELIMITED: Final = 2
_WIDTHS: Final = {1: 8, 5: 4}

Field = tuple[int, int, int | bytes]


def _other(rng: Random, value: bytes, fields: list[Field]) -> bytes:
    """Return another text in a text's place: one that stands beside it, or one that is damaged."""
    beside = [other for _, _, other in fields if isinstance(other, bytes)]
    return rng.choice(
        (
            damaged(rng, value, 1),
            rng.choice(beside),
            rng.choice(words.TEXTS).encode("utf-8", "surrogatepass"),
            b"a/" * 150,
        )
    )


def _fields(data: bytes) -> list[Field]:
    """Return the fields of a message; none for what is no message."""
    actual: list[Field] = []
    at = 0
    try:
        while at < len(data):
            tag, at = _number(data, at)
            number, kind = tag >> 3, tag & 7
            value: int | bytes
            if not number:
                return []
            if kind == 0:
                value, at = _number(data, at)
            elif kind in {_DELIMITED, *_WIDTHS}:
                size = _WIDTHS.get(kind, 0)
                if kind == _DELIMITED:
                    size, at = _number(data, at)
                if at + size > len(data):
                    return []
                value, at = data[at : at + size], at + size
            else:
                return []
            actual.append((number, kind, value))
    except IndexError:
        return []
    return actual


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
    raise IndexError


def _encoded(field: Field) -> bytes:
    number, kind, value = field
    if isinstance(value, int):
        return bundles.varint(number << 3) + bundles.varint(value & 2**64 - 1)
    kind = kind if kind in _WIDTHS and len(value) == _WIDTHS[kind] else _DELIMITED
    return (
        bundles.varint(number << 3 | kind)
        + (bundles.varint(len(value)) if kind == _DELIMITED else b"")
        + value
    )


def table(rng: Random, data: bytes) -> bytes:
    """
    Return a checkpoint's index with entries changed, its checksums right again; or, now and then,
    damaged blindly.
    """
    try:
        pairs = list(_index.read_table(data, ""))
    except BundleError:
        pairs = []
    if not pairs or rng.random() < 0.2:
        return damaged(rng, data)
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(pairs))
        key, value = pairs[index]
        match rng.randrange(6):
            case 0:
                pairs[index] = (
                    damaged(rng, key, 1)
                    if key
                    else rng.choice(words.TEXTS).encode("utf-8", "surrogatepass"),
                    value,
                )
            case 1:
                pairs[index] = key, rng.choice(pairs)[1]
            case 2:
                pairs.append(
                    (key + rng.choice((b"/x", b"\0", b"/.ATTRIBUTES/VARIABLE_VALUE")), value)
                )
            case 3 if len(pairs) > 1:
                pairs.pop(index)
            case _:
                pairs[index] = key, message(rng, value)
    if rng.random() < 0.9:
        pairs = sorted(dict(pairs).items())
    size = rng.choice((1, 3, 100))
    return bundles.table([pairs[start : start + size] for start in range(0, len(pairs), size)])


def toml(rng: Random, lines: list[str]) -> bytes:
    """Return settings of some of these lines, with keys and values changed."""
    created: list[str] = []
    for line in rng.sample(lines, rng.randint(1, min(6, len(lines)))):
        key, _, value = line.partition(" = ")
        how = rng.random()
        if how < 0.3:
            value = _toml_value(rng)
        elif how < 0.4:
            key = f'"{_escaped(rng.choice(words.TEXTS))}"'
        elif how < 0.5:
            value = f"[{value}, {_toml_value(rng)}]"
        created.append(f"{key} = {value}")
    data = "\n".join(created).encode("utf-8", "replace")
    return data if rng.random() < 0.8 else damaged(rng, data, 2)


def _toml_value(rng: Random) -> str:
    numbers = (
        "0",
        "-1",
        "1e400",
        "inf",
        "nan",
        "true",
        "9223372036854775807",
        "1979-05-27T07:32:00Z",
        "1979-05-27",
        "[]",
        "{}",
        '{"a" = 1}',
        "[[1]]",
        "[{}]",
    )
    return rng.choice(
        (
            rng.choice(numbers),
            f'"{_escaped(rng.choice(words.TEXTS))}"',
            f'["{_escaped(rng.choice(words.TEXTS))}"]',
        )
    )


def _escaped(text: str) -> str:
    return "".join(
        char if char.isalnum() and char.isascii() else f"\\U{ord(char):08X}"
        for char in text
        if not 0xD800 <= ord(char) <= 0xDFFF
    )


def yaml(rng: Random, data: bytes) -> bytes:
    """Return YAML with lines moved, indented otherwise, and tags, anchors and aliases put in."""
    lines = data.decode("utf-8", "replace").split("\n")
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(lines))
        match rng.randrange(7):
            case 0:
                lines[at] = " " * rng.randrange(9) + lines[at].lstrip()
            case 1:
                lines.insert(at, rng.choice(lines))
            case 2:
                del lines[at : at + rng.choice((1, 1, 5))]
            case 3:
                head, colon, rest = lines[at].partition(": ")
                lines[at] = f"{head}{colon}{rng.choice(_MARKS)} {rest}"
            case 4:
                head, colon, _ = lines[at].partition(": ")
                lines[at] = f"{head}{colon}{rng.choice(_MARKS)}"
            case 5:
                lines[at] = rng.choice(words.TEXTS).encode("utf-8", "replace").decode() + lines[at]
            case _:
                lines[at] = f"? {lines[at]}"
        lines = lines or [""]
    result = "\n".join(lines).encode()
    return result if rng.random() < 0.8 else damaged(rng, result, 2)


_MARKS: Final = (
    *(
        "&a",
        "*a",
        "&a [*a, *a]",
        "!!python/tuple",
        "!!python/object/apply:os.system [x]",
        "!!binary",
        "!!set",
        "!!timestamp",
        "!!float",
        "!!int",
        "!!str",
        "!x",
    ),
    *(
        "<<: *a",
        "0o17",
        "0x1F",
        "1:30",
        "1_000",
        ".inf",
        ".nan",
        "2001-12-14",
        "~",
        "|",
        ">-",
        "{a: [1, {b: c}]}",
        "'",
        '"\\x00"',
        "%TAG",
        "---",
        "...",
        "\t",
    ),
)


def shifted(rng: Random, data: bytes) -> bytes:
    """
    Return an HDF5 file with a user block before it, which moves every address, or with one integer
    of eight bytes in it made another address of it.
    """
    if rng.random() < 0.1 or len(data) < 64:
        return bytes(rng.choice((512, 1024, 513))) + data
    result = bytearray(data)
    at, source = (rng.randrange(0, len(result) - 8, 8) for _ in range(2))
    (address,) = struct.unpack_from("<Q", result, source)
    struct.pack_into(
        "<Q", result, at, address if address < len(result) else rng.randrange(len(result))
    )
    return bytes(result)
