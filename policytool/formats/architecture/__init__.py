"""Architecture JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.architecture import read
from policytool.formats.format import Format

if TYPE_CHECKING:
    from policytool.formats.creating.base import Creator
    from policytool.formats.rewriting.base import Rewriter


def _rewriter() -> Rewriter:
    from policytool.formats.architecture import rewrite

    return rewrite.REWRITER


def _creator() -> Creator:
    from policytool.formats.architecture import create

    return create.CREATOR


FORMAT: Final = Format(
    name="json",
    document_format="json",
    title="architecture JSON",
    suffixes=(".json",),
    recognise=read.recognise,
    read=read.read,
    rewriter=_rewriter,
    creator=_creator,
)
