"""
policytool: audits and converts the dtype policies of saved Keras and TensorFlow models.

    >>> import policytool
    >>> model = policytool.inspect("model.h5")
    >>> [(layer.path, layer.compute_dtype) for layer in model.layers]

Nothing here imports TensorFlow or Keras, and nothing from the file is executed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from policytool.model import Model

__all__ = ["inspect"]


def inspect(path: str | os.PathLike[str]) -> Model:
    """
    Return the saved model at ``path``: HDF5, ``.keras``, SavedModel, architecture JSON, or weights alone.

    The values are those that ``policytool inspect`` renders, all of them frozen. Weights are not read, only their names, shapes and dtypes.

    :raises policytool.errors.ModelFileError: for what is no model that can be read, with a sentence and a stable ``code``.
    """
    from os import fspath

    from policytool.operations import inspection  # keeps `import policytool` free of everything

    return inspection.inspect(fspath(path))
