"""The numbers of a run of both models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import tensor_errors

if TYPE_CHECKING:
    from typing import Any, Sequence

    from .output_changes import OutputChanges


class Measured:
    """
    The numbers of one run: a row for each comparison, one for each histogram, and how the values of
    each output of the model changed.
    """

    def __init__(self, vectors: Any, histograms: Any, changes: Sequence[OutputChanges]) -> None:
        self.vectors = vectors
        self.histograms = histograms
        self.changes = changes

    def merged(self, other: Measured) -> Measured:
        """Return the numbers over the examples of both; the changes are already of both."""
        return Measured(
            np.stack([tensor_errors.merge(*pair) for pair in zip(self.vectors, other.vectors)]),
            self.histograms + other.histograms,
            self.changes,
        )
