"""
Measure `inspect` of large KerasHub presets on a server: ``python large_presets.py [--write FILE]``.

The weights are sparse files in 30 shards, on a server of the Hub's protocol on this machine, which
counts requests and the bytes that it sends. It needs the extra ``dev``.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))

import fsspec.config

import policytool
from tests.bench.sections import write_table
from tests.helpers.hub_server import hub_server
from tests.helpers.presets import backbone, decoder_groups, policy, split_weights, write_preset

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADING: Final = "## Large presets"
SHARDS: Final = 30
DECODERS: Final = ((20, 14_464), (40, 10_224), (80, 7_232))
"""The numbers of layers of the presets, and their widths: about 100 GB each."""

LARGE: Final = 2**18
"""The bytes from which an array is large: reading it costs more than another request."""

COLUMNS: Final = ("layers", "size", "arrays", "large arrays", "received", "requests")

ABOUT: Final = f"""\
`tests/bench/large_presets.py` writes this section: `inspect` of Llama presets in {SHARDS} shards,
as sparse files on a server on this machine. Large arrays have {LARGE // 1024} KiB or more. HDF5
stores the shape and the dtype of an array only in its header, next to its values, and the index of
the shards has neither. Servers such as S3 send one range per request, so the number of requests is
at least the number of large arrays, and does not depend on their size."""


def rows(root: Path) -> Iterator[tuple[str, ...]]:
    """Yield the lines of the table; all presets are on one server."""
    with (
        hub_server(root) as server,
        mock.patch.dict(fsspec.config.conf, {"hf": {"endpoint": server.url}}),
        mock.patch.dict(os.environ, {"HF_TOKEN": "token"}),
    ):
        for layers, width in DECODERS:
            preset = root / f"models/owner/llama{layers}/main"
            groups = decoder_groups(layers, width)
            write_preset(preset, backbone(policy("bfloat16")), {})
            split_weights(preset, groups, SHARDS)
            total = sum(path.stat().st_size for path in preset.iterdir())
            arrays = [array for _, *variables in groups.values() for array in variables]
            large = sum(2 * math.prod(shape) >= LARGE for *shape, _ in arrays)
            sent, known = server.sent, len(server.requests)
            policytool.inspect(f"hf://owner/llama{layers}")
            ranges = sum(request.is_large_file for request in server.requests[known:])
            yield (
                *(str(layers), f"{total / 1e9:.0f} GB", str(len(arrays)), str(large)),
                *(f"{(server.sent - sent) / 1e6:.1f} MB", str(ranges)),
            )


def main() -> None:
    """Print the section, or write it into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the section into this page"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_table(arguments.write, HEADING, COLUMNS, rows(Path(name)), ABOUT)


if __name__ == "__main__":
    main()
