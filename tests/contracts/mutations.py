"""
Reads damaged copies of a model, in a process of its own: ``python -m tests.contracts.mutations
SOURCE SEED COUNT FILE ...``.

A C library that crashes ends this process and not the tests. Each line on stdout is one mutation
that raised what it should not; the last line on stderr is the mutation that was being read.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from policytool.model import reading
from policytool.support.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterator


def damaged(data: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """
    Yield truncations of ``data`` at many lengths, then ``count`` copies with some bytes changed,
    the same ones for the same seed.
    """
    lengths = {
        0,
        1,
        4,
        7,
        8,
        9,
        100,
        512,
        2048,
        len(data) - 1,
        *(len(data) * part // 24 for part in range(24)),
    }
    for length in sorted(length for length in lengths if 0 <= length < len(data)):
        yield f"truncated to {length}", data[:length]
    generator = random.Random(seed)  # noqa: S311  # no secret
    for number in range(count):
        changed = bytearray(data)
        near = generator.choice(
            (len(data), min(len(data), 4096))
        )  # headers decide more than values do
        for _ in range(generator.choice((1, 1, 2, 8))):
            changed[generator.randrange(near)] = generator.choice(
                (0, 1, 0x7F, 0xFF, generator.randrange(256))
            )
        yield f"change {number}", bytes(changed)


def main(source: Path, seed: int, count: int, file: str) -> int:
    """Read every copy of which a file is damaged; return how many raised what they should not."""
    wrong = 0
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, source.name)
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            shutil.copy(source, copy)
        target = copy / file if file else copy
        for name, data in damaged(target.read_bytes(), seed, count):
            print(file, name, file=sys.stderr, flush=True)  # noqa: T201
            target.write_bytes(data)
            try:
                reading.read(copy, copy.name)
            except ModelFileError:
                continue
            except BaseException as error:  # noqa: BLE001  # all of them are what is looked for
                wrong += 1
                place = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{file} {name}: {type(error).__name__}: {error}"
                print(f"{what} at {place.filename}:{place.lineno}")  # noqa: T201
    return wrong


if __name__ == "__main__":
    source, seed, count, *files = sys.argv[1:]
    sys.exit(min(sum(main(Path(source), int(seed), int(count), file) for file in files), 100))
