"""HDF5: whole models, and files of weights alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.format import Format
from policytool.formats.hdf5 import read

if TYPE_CHECKING:
    from policytool.formats.creating.base import Creator
    from policytool.formats.rewriting.base import Rewriter
    from policytool.formats.stored_values.base import OpenValues


def _rewriter() -> Rewriter:
    from policytool.formats.hdf5 import rewrite

    return rewrite.REWRITER


def _creator() -> Creator:
    from policytool.formats.hdf5 import create

    return create.CREATOR


def _values() -> OpenValues:
    from policytool.formats.hdf5 import values

    return values.open_values


FORMAT: Final = Format(
    name="h5",
    document_format="h5",
    title="HDF5",
    suffixes=(".h5", ".hdf5"),
    recognise=read.recognise,
    read=read.read,
    rewriter=_rewriter,
    creator=_creator,
    values=_values,
)
