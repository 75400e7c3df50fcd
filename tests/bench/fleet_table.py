"""
Measure audits of many models: ``python fleet_table.py [--models DIR] [--runs N] [--write FILE]``.

10,000 small models, in equal numbers of HDF5, `.keras`, SavedModel and architecture JSON, are
audited by one and by two processes, a tenth of them for the memory, in four shards, and again with
a cache. 1,000 are audited in a bucket of an S3 server on this machine, behind a proxy that counts
bytes. It needs the extra ``dev``.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench import run as bench
from tests.bench.sections import write_section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEADING: Final = "## Many models"
MANY: Final = 10_000
FEW: Final = 1_000
SHARDS: Final = 4
BUCKET: Final = "models"
MEGABYTE: Final = 10**6
BLOCK: Final = 2**16
AUDIT: Final = (bench.POLICYTOOL, "audit", "--fail-on", "never", "--format", "jsonl")

ABOUT: Final = """\
`tests/bench/fleet_table.py` writes this section. The models are copies of eight fixtures, in equal
numbers: HDF5 files, `.keras` files, SavedModels and architectures in JSON, written by TF 2.1 to
2.15 and Keras 3.15. All runs print JSON Lines. Runs with one and with two processes alternate, and
the ratio is the median of the pairs. Memory is the peak memory of the largest process. The S3
server is that of moto, on the same machine; a proxy counts the bytes that it sends, with all
headers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    result: str


class CountingProxy:
    """A proxy on this machine that forwards connections to a port, and counts their bytes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received = 0
        """Bytes that the server sent."""

        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._port))
            for one, other, counts in ((client, server, False), (server, client, True)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(
                    target=self._forward, args=(one, other, counts), daemon=True
                ).start()

    def _forward(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:  # noqa: FBT001  # a thread's argument
        with contextlib.suppress(OSError):  # either side has closed the connection
            while block := source.recv(BLOCK):
                self.received += len(block) if counts else 0
                sink.sendall(block)
            sink.shutdown(socket.SHUT_WR)


def local(folder: Path, tenth: Path, runs: int) -> Iterator[Row]:
    """Yield the rows on models of this machine."""
    bench.run((*AUDIT, str(folder), "--jobs", "2"))  # not counted: page cache
    result = bench.alternate(
        (*AUDIT, str(folder), "--jobs", "1"), (*AUDIT, str(folder), "--jobs", "2"), runs
    )
    rate = MANY / statistics.median(name.seconds for name in result.ours)
    yield Row(
        what=f"`audit` of {MANY:,} models, `--jobs 1`",
        result=f"{bench.seconds(result.baseline)}, {bench.peak(result.baseline):.0f} MiB",
    )
    yield Row(
        what=f"`audit` of {MANY:,} models, `--jobs 2`",
        result=f"{bench.seconds(result.ours)}, {bench.peak(result.ours):.0f} MiB, {rate:,.0f} "
        "models "
        f"per second; {result.ratio:.2f} of the time of `--jobs 1`",
    )
    few = bench.run((*AUDIT, str(tenth), "--jobs", "2"))
    yield Row(
        what=f"`audit` of {FEW:,} models, `--jobs 2`",
        result=f"{few.seconds:.2f} s, {few.peak / bench.MIB:.0f} MiB",
    )


def output(*arguments: str, environment: dict[str, str] | None = None) -> bytes:
    """Return what a command prints."""
    done = subprocess.run(
        arguments,
        stdout=subprocess.PIPE,
        check=True,
        env={**bench.ENVIRONMENT, **(environment or {})},
    )
    return done.stdout


def shards(folder: Path, scratch: Path) -> Row:
    """Return the row on shards, whose reports are joined."""
    whole = output(*AUDIT, str(folder))
    parts = [scratch / f"part-{index}.jsonl" for index in range(1, SHARDS + 1)]
    for index, part in enumerate(parts, 1):
        part.write_bytes(output(*AUDIT, str(folder), "--shard", f"{index}/{SHARDS}"))
    start = time.perf_counter()
    merged = output(bench.POLICYTOOL, "merge", *map(str, parts))
    seconds = time.perf_counter() - start
    if merged != whole:
        sys.exit("the merged report differs from that of one run")
    return Row(
        what=f"`merge` of the reports of {SHARDS} shards of {MANY:,} models",
        result=f"{seconds:.2f} s, {len(whole) / MEGABYTE:.1f} MB, the same bytes as one run",
    )


def cached(folder: Path, scratch: Path) -> Row:
    """Return the row on a second run with a cache."""
    command = (*AUDIT, str(folder), "--cache", str(scratch / "cache"))
    first, second = bench.run(command), bench.run(command)
    return Row(
        what=f"second `audit` of {MANY:,} unchanged models with `--cache`",
        result=f"{second.seconds:.2f} s; {second.seconds / first.seconds:.2f} of the time of the "
        "first",
    )


def remote(folder: Path, scratch: Path) -> Iterator[Row]:
    """Yield the rows on a bucket: an audit, and the next one with a cache."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    os.environ.update(environment)
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}")
    client.create_bucket(Bucket=BUCKET)
    size = 0
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            client.upload_file(str(file), BUCKET, file.relative_to(folder).as_posix())
            size += file.stat().st_size
    proxy = CountingProxy(port)
    environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.port}"
    cache = ("--cache", str(scratch / "remote-cache"))
    for what in ("`audit`", "second `audit` with `--cache`"):
        before = proxy.received
        start = time.perf_counter()
        output(*AUDIT, f"s3://{BUCKET}/", *cache, environment=environment)
        seconds = time.perf_counter() - start
        received = (proxy.received - before) / FEW / 1000
        yield Row(
            what=f"{what} of {FEW:,} models in a bucket on this machine",
            result=f"{seconds:.1f} s; {received:.1f} kB received for each model, which has "
            f"{size / FEW / 1000:.1f} kB",
        )
    server.stop()


def section(rows: Sequence[Row]) -> str:
    """Return the section of the page."""
    lines = [
        HEADING,
        "",
        "| what | result |",
        "| --- | --- |",
        *(f"| {row.what} | {row.result} |" for row in rows),
        "",
        f"- {os.cpu_count()} cores, {bench.processor()}",
        "",
        ABOUT,
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, default=bench.MODELS, metavar="DIR")
    parser.add_argument("--runs", type=int, default=3, metavar="N")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the section of this page")
    arguments = parser.parse_args()
    folder = bench.make_models(arguments.models / "fleet", MANY)
    tenth = bench.make_models(arguments.models / "fleet-tenth", FEW)
    with tempfile.TemporaryDirectory(prefix="policytool-bench-") as name:
        scratch = Path(name)
        rows = [
            *local(folder, tenth, arguments.runs),
            shards(folder, scratch),
            cached(folder, scratch),
            *remote(tenth, scratch),
        ]
    sys.stdout.write(section(rows))
    if arguments.write:
        write_section(arguments.write, HEADING, section(rows))


if __name__ == "__main__":
    main()
