"""The values that ``adapt`` found: a few, read with the document, as config in other releases."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from policytool.formats.stored_values import ValuesError
from policytool.support import limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.base import Format, Probe
    from policytool.formats.document import Document, Tensor
    from policytool.formats.stored_values import Values

_NAMES: Final = frozenset({"idf_weights", "summary"})
"""What a lookup holds its weights by, and a Discretization what it has seen."""

_FIRST: Final = "0"
_NUMBERED: Final = re.compile(r"(?:^|/)discretization(?:_\d+)?/vars/0(?::0)?$")
"""Where an archive has the only variable of a Discretization."""


def adapted_values(
    probe: Probe, file_format: Format, document: Document
) -> dict[Tensor, tuple[float, ...]]:
    """Return the readable values of the variables that ``adapt`` filled."""
    tensors = tuple(_adapted_tensors(document))
    if not tensors or file_format.open_values is None:
        return {}
    with ExitStack() as stack:
        values = file_format.open_values(probe, document, stack)
        read = {tensor: _numbers(values, tensor) for tensor in tensors}
    return {tensor: numbers for tensor, numbers in read.items() if numbers is not None}


def _adapted_tensors(document: Document) -> Iterator[Tensor]:
    for tensor in document.tensors or ():
        last = tensor.path[-1].removesuffix(":0").rpartition("/")[2]
        if last in _NAMES or (last == _FIRST and _NUMBERED.search("/".join(tensor.path))):
            yield tensor
    for node in document.nodes.values():
        for name, number in node.children:
            child = document.nodes.get(number)
            if name in _NAMES and child is not None and child.variable is not None:
                yield child.variable


def _numbers(values: Values, tensor: Tensor) -> tuple[float, ...] | None:
    numbers: list[float] = []
    try:
        for block in values.blocks(tensor):
            numbers += block.astype("float64").tolist()
            if limits.JSON_BYTES.exceeded_message(block.itemsize * len(numbers)):
                return None
    except ValuesError:  # who needs them says that they are not there
        return None
    return tuple(numbers)
