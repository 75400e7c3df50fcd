"""Labels in a file of NumPy's, by the names of the model's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..library import Refused
from . import array_files

if TYPE_CHECKING:
    from typing import Any, Sequence

LABELS_CODE = "labels-file"

_SHOWN = 10
"""How many names a sentence lists."""


def read_labels(path: str) -> dict[str, Any]:
    """
    Return the arrays of a file by name.

    :raises Refused: if it cannot be read, or holds anything but arrays of numbers or strings.
    """
    try:
        return array_files.arrays_of(path)
    except Refused as error:
        raise Refused(LABELS_CODE, str(error)) from error


def by_output(labels: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """
    Return the labels of outputs, in the order of the outputs; not all of them need labels.

    :raises Refused: if an array has another name than an output, or if there is none.
    """
    labels = array_files.with_names(labels, names)
    unknown = sorted(set(labels) - set(names))
    if unknown or not labels:
        named = ", ".join(name or "an array without a name" for name in unknown[:_SHOWN])
        text = "the labels contain {}, but the model has the outputs {}"
        raise Refused(LABELS_CODE, text.format(named or "no array", ", ".join(names[:_SHOWN])))
    flat = [name for name in names if name in labels and not labels[name].shape]
    if flat:
        raise Refused(LABELS_CODE, "the labels of output {} have no rows".format(flat[0]))
    return {name: labels[name] for name in names if name in labels}
