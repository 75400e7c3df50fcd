"""``.keras`` archives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.format import Format
from policytool.formats.keras_archive import read

if TYPE_CHECKING:
    from policytool.formats.creating.base import Creator
    from policytool.formats.rewriting.base import Rewriter
    from policytool.formats.stored_values.base import OpenValues


def _rewriter() -> Rewriter:
    from policytool.formats.keras_archive import rewrite

    return rewrite.REWRITER


def _creator() -> Creator:
    from policytool.formats.keras_archive import create

    return create.CREATOR


def _values() -> OpenValues:
    from policytool.formats.keras_archive import values

    return values.open_values


FORMAT: Final = Format(
    name="keras",
    document_format="keras",
    title=".keras",
    suffixes=(".keras",),
    recognise=read.recognise,
    read=read.read,
    rewriter=_rewriter,
    creator=_creator,
    values=_values,
)
