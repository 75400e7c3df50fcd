"""What the values that a file stores are, read block by block."""

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
    Return what the float variables of a file are, and why some could not be read; both by a
    tensor's path.

    :param narrowed: the dtypes that tensors are rounded to, by their paths; the others are looked
        at as they are.
    :raises ModelFileError: where the values are truncated or damaged where they begin.
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
    Yield the tensors of floats, the optimizer's too; those of metrics hold what a metric was last.
    """
    for tensor in (*(document.tensors or ()), *document.state):
        if tensor.dtype in casting.DTYPES and tensor.path[0] not in NOT_WEIGHTS - {"optimizer"}:
            yield tensor


def _of(values: Values, tensor: Tensor, narrow: str | None) -> Counts:
    return sum(
        (casting.count(block, tensor.dtype, narrow) for block in values.blocks(tensor)),
        casting.Counts(),
    )
