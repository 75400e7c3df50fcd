"""
The values of stored variables, read block by block.

A document knows the names, shapes and dtypes of a file's variables; here are the numbers. No link
and no external storage is followed, and no more than a block of a tensor is held at once. Each
format's own part is found through :data:`policytool.formats.FORMATS`, by
:func:`policytool.formats.format_detection.open_values`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from policytool.support.errors import PolicytoolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack

    import numpy as np
    import numpy.typing as npt

    from policytool.formats.base import Probe
    from policytool.formats.document import Document, Tensor

    Array = npt.NDArray[Any]
    DType = np.dtype[Any]
    OpenValues = Callable[[Probe, Document, ExitStack], "Values"]
    """Opens the values of a document's variables; the stack closes what it opened."""


BLOCK: Final = 4 * 2**20
"""The most bytes of a tensor that are held at once, but for chunks, which no release writes."""


class ValuesError(PolicytoolError):
    """Values that cannot be read; the message is a reason that follows ``not compared:``."""


class Values(Protocol):
    """The values of one file's variables."""

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """
        Yield a tensor's values in C order, as flat arrays in the machine's byte order.

        bfloat16 comes as ``ml_dtypes`` has it, floats of eight bits as their bits.

        :raises ValuesError: for values that are not in the file, or of a kind that is not read.
        """

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """
        Return one layer's tensors in the layer's own order, as far as the file tells it: as they
        are, in the order of the document, where nothing else is said.
        """
        return tensors


def by_number(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """
    Return tensors by their paths, whose last parts are numbers in Keras 3's files; ``10`` comes
    behind ``9``.
    """
    return tuple(sorted(tensors, key=_numbers))


def _numbers(tensor: Tensor) -> tuple[tuple[str, ...], int]:
    last = tensor.path[-1]
    return tensor.path[:-1], int(last) if last.isdigit() and len(last) < 10 else 0  # noqa: PLR2004  # longer ones are no numbers of Keras


__all__ = ["BLOCK", "Values", "ValuesError"]
