"""Architecture JSON."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format
from policytool.formats.sharded_weights import recognise as is_shard_map
from policytool.formats.tfjs import recognise as is_tfjs_model

if TYPE_CHECKING:
    from policytool.formats.base import Probe


def recognise(probe: Probe) -> bool:
    """
    Return whether the file begins like a JSON object, and not like one that other formats know.
    """
    begins = probe.head.removeprefix(BOM_UTF8).lstrip().startswith(b"{")
    return begins and not is_shard_map(probe) and not is_tfjs_model(probe)


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    rewriter_maker=f"{__name__}.rewrite:rewriter",
    creator_maker=f"{__name__}.create:creator",
    document_format="json",
    title="architecture JSON",
    suffixes=(".json",),
    recognise=recognise,
)
