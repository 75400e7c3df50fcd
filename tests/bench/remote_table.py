"""
Count requests for models on a server: ``python remote_table.py [--write docs/how-to/remote.md]``.

Sparse models of 5 GB in the layouts of Keras are inspected through an S3 client, from a server on
this machine. It needs the extra ``dev``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))

import policytool
from policytool.support.files import remote_stream
from policytool.support.files.remote_stream import NEAR
from tests.bench.sections import write_section
from tests.helpers.large_models import LargeModel, write_archive, write_keras2, write_keras3
from tests.helpers.range_server import range_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Writer = Callable[[Path, LargeModel], None]

HEADING: Final = "## Requests and bytes"
KIB: Final = 2**10
GIB: Final = 2**30
MEGABYTE: Final = 10**6
ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
LAYOUTS: Final[tuple[tuple[str, Writer], ...]] = (
    ("HDF5 of TF 2.15", write_keras2),
    ("HDF5 of Keras 3", write_keras3),
    ("`.keras`", write_archive),
)
MODELS: Final = (
    LargeModel(layers=150, matrix=(9000, 974), vectors=9),
    LargeModel(layers=300, matrix=(4500, 974), vectors=4),
    LargeModel(layers=250, matrix=(1700, 974), vectors=1, optimizer=True),
    LargeModel(layers=750, matrix=(1700, 974), vectors=1),
)

ABOUT: Final = f"""\
HDF5 writes metadata between the values, so that a large model has a cluster of metadata after each
large array. policytool learns from the first clusters of a file how many bytes the next ones need,
and sends about one request for each cluster. The table counts clusters that are more than
{NEAR // KIB} KiB apart; usually, megabytes of values separate them. S3 returns one range for
each request, so a model with 750 clusters cannot be read with 400 requests.

`audit --weights` and `diff` without `--no-values` read the values, and so nearly the whole file.
"""
NOTE: Final = """\
`tests/bench/remote_table.py` writes this section. The files are sparse, and written with h5py in
the order in which Keras writes them.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What one file needs."""

    layout: str
    model: LargeModel
    size: int
    clusters: int
    requests: int
    transferred: int

    def cells(self) -> str:
        """Return the line of the table."""
        model = self.model
        state = ", each with 2 arrays of the optimizer" if model.optimizer else ""
        vectors = f"{model.vectors} vector{'s' if model.vectors > 1 else ''}"
        return (
            f"| {self.layout} | {self.size / GIB:.1f} GiB | {model.layers} matrices, each followed "
            f"by {vectors}{state} | {self.clusters} | {self.requests} | "
            f"{self.transferred / MEGABYTE:.1f} MB |"
        )


def clusters(reads: Iterable[tuple[int, int]]) -> int:
    """Return how many groups of places, far from each other, were read."""
    count, end = 0, -NEAR - 1
    for start, stop in sorted(reads):
        count += start > end + NEAR
        end = max(end, stop)
    return count


def measure(folder: Path) -> Iterator[Row]:
    """Yield the rows."""
    reads: list[tuple[int, int]] = []
    read = remote_stream.RemoteStream.pread

    def recording(stream: remote_stream.RemoteStream, count: int, offset: int) -> bytes:
        data = read(stream, count, offset)
        reads.append((offset, offset + len(data)))
        return data

    (folder / "bucket").mkdir()
    with (
        range_server(folder) as server,
        mock.patch.dict(os.environ, {**ENVIRONMENT, "AWS_ENDPOINT_URL": server.url}),
        mock.patch.object(remote_stream.RemoteStream, "pread", recording),
    ):
        for model in MODELS:
            for layout, write in LAYOUTS:
                path = folder / "bucket/model"
                write(path, model)
                reads.clear()
                server.requests.clear()
                server.sent = 0
                policytool.inspect("s3://bucket/model")
                yield Row(
                    layout=layout,
                    model=model,
                    size=path.stat().st_size,
                    clusters=clusters(reads),
                    requests=len(server.requests),
                    transferred=server.sent,
                )
                path.unlink()


def section(rows: Sequence[Row]) -> str:
    """Return the section of the page."""
    lines = [
        HEADING,
        "",
        ABOUT,
        "| file on a local S3 server | size | arrays | clusters | requests | transferred |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
        *(row.cells() for row in rows),
        "",
        NOTE,
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the section of this page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="policytool-bench-") as name:
        text = section(list(measure(Path(name))))
    sys.stdout.write(text)
    if arguments.write:
        write_section(arguments.write, HEADING, text)


if __name__ == "__main__":
    main()
