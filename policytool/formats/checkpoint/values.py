"""The values of checkpoints alone."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from policytool.formats.checkpoint import read as checkpoint
from policytool.formats.checkpoint import tensors as _checkpoint
from policytool.formats.checkpoint.bundle import open_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.checkpoint.bundle import Bundle
    from policytool.formats.document import Document, Tensor
    from policytool.formats.stored_values import Array, Values


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """Return the values of a model; its files are opened when one of them is read."""
    del document, stack
    return CheckpointValues(probe)


class CheckpointValues:
    """The values of one checkpoint; it is opened when the first of them is asked for."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.stored_values.Values`."""
        with _checkpoint.reasons():
            yield from _checkpoint.blocks(self._bundle, tensor.key, tensor)

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors as they are: in the order of the object graph, where there is one."""
        return tensors

    @cached_property
    def _bundle(self) -> Bundle:
        return open_bundle(checkpoint.prefix(self._probe))
