"""Counts of the stored values of a file, which are read block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats import casting
from policytool.formats.document import ValuesError
from policytool.formats.format_detection import open_values
from policytool.model.tree import NOT_WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.casting import Counts
    from policytool.formats.document import Document, Tensor, Values
    from policytool.support.files.remote_path import AnyPath


def count_values(
    path: AnyPath, document: Document, narrowed: Mapping[tuple[str, ...], str]
) -> tuple[Mapping[tuple[str, ...], Counts], Mapping[tuple[str, ...], str]]:
    """
    Return the counts of the values of a file's float variables, and the reason for each variable
    that could not be read, both by tensor path.

    :param narrowed: the dtypes to which tensors are rounded, by path; other tensors are counted
        without rounding.
    :raises ModelFileError: if the values are truncated, or damaged at their start.
    """
    counts: dict[tuple[str, ...], Counts] = {}
    unread: dict[tuple[str, ...], str] = {}
    with open_values(path, document) as values:
        for tensor in _floats(document) if values is not None else ():
            try:
                counts[tensor.path] = (
                    _of(values, tensor, narrowed.get(tensor.path))
                    if values is not None
                    else casting.Counts()
                )
            except ValuesError as error:
                unread[tensor.path] = str(error)
    return counts, unread


def _floats(document: Document) -> Iterator[Tensor]:
    """
    Yield the float tensors, including those of the optimizer. Tensors of metrics are left out,
    because they contain only the last values of the metrics.
    """
    for tensor in (*(document.tensors or ()), *document.state):
        if tensor.dtype in casting.DTYPES and tensor.path[0] not in NOT_WEIGHTS - {"optimizer"}:
            yield tensor


def _of(values: Values, tensor: Tensor, narrow_dtype: str | None) -> Counts:
    """Return the counts of a tensor's values."""
    return sum(
        (casting.count(block, tensor.dtype, narrow_dtype) for block in values.blocks(tensor)),
        casting.Counts(),
    )
