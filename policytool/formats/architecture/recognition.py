"""Which files are architecture JSON."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import TYPE_CHECKING

from policytool.formats.sharded_weights import recognition as sharded_weights
from policytool.formats.tfjs import recognition as tfjs

if TYPE_CHECKING:
    from policytool.formats.base import Probe


def recognise(probe: Probe) -> bool:
    """
    Return whether the file begins like a JSON object, and not like one that other formats know.
    """
    begins = probe.head.removeprefix(BOM_UTF8).lstrip().startswith(b"{")
    return begins and not sharded_weights.recognise(probe) and not tfjs.recognise(probe)
