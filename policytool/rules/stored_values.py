"""The stored values of a file, which are read block by block: their counts, and damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from policytool.formats import casting
from policytool.formats.document import DamagedValuesError, ValuesError
from policytool.formats.format_detection import open_values
from policytool.model.tree import NOT_WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.casting import Counts
    from policytool.formats.document import Document, Tensor, Values
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.files.remote_path import AnyPath


@dataclass(kw_only=True, slots=True)
class StoredValues:
    """What is known of the values of a file, by tensor path."""

    counts: dict[tuple[str, ...], Counts] = field(default_factory=dict)
    """The counts of the values of float variables."""

    unread: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Why the values of float variables could not be read."""

    damaged: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Why no release restores the values."""

    def add(self, values: Values, tensor: Tensor, narrow: str | None) -> None:
        """Read a float variable."""
        try:
            blocks = values.blocks(tensor)
            counted = (casting.count(block, tensor.dtype, narrow) for block in blocks)
            self.counts[tensor.path] = sum(counted, casting.Counts())
        except DamagedValuesError as error:
            self.damaged[tensor.path] = str(error)
        except ValuesError as error:
            self.unread[tensor.path] = str(error)

    def verify(self, values: Values, tensor: Tensor) -> None:
        """Read other values, which are not counted, for their checksum."""
        try:
            for _ in values.blocks(tensor):
                pass
        except DamagedValuesError as error:
            self.damaged[tensor.path] = str(error)
        except ValuesError:
            pass  # another kind of value, which no rule checks


def read_values(
    path: AnyPath,
    document: Document,
    loaded: LoadedModel | None,
    narrowed: Mapping[tuple[str, ...], str],
) -> StoredValues:
    """
    Return what is known of the values of a file.

    :param narrowed: the dtypes to which tensors are rounded, by path; other tensors are counted
        without rounding.
    :raises ModelFileError: if the values are truncated, or damaged at their start.
    """
    stored = StoredValues()
    with open_values(path, document) as values:
        if values is None:
            stored.counts |= {tensor.path: casting.Counts() for tensor in _floats(document, loaded)}
            return stored
        nodes = set()
        for tensor in _floats(document, loaded):
            nodes.add(tensor.node)
            stored.add(values, tensor, narrowed.get(tensor.path))
        for node, restored in document.restored.items():
            if restored is not None and node not in nodes:
                stored.verify(values, restored)
    return stored


def _floats(document: Document, loaded: LoadedModel | None) -> Iterator[Tensor]:
    """
    Yield the float tensors, including those of the optimizer. Tensors of metrics are left out,
    because they contain only the last values of the metrics. Only the layers of a SavedModel with
    Keras metadata list its tensors.
    """
    of_layers = loaded.placed.tensors if loaded is not None and loaded.is_saved_object else {}
    listed = (*(document.tensors or ()), *document.state)
    for tensor in chain(listed, *of_layers.values()):
        if tensor.dtype in casting.DTYPES and tensor.path[0] not in NOT_WEIGHTS - {"optimizer"}:
            yield tensor
