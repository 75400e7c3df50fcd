"""
What of a model file runs code of the file's own, or leads out of the file, when a library loads the model, or calls it.

A Lambda holds Python's byte code. Ops of TensorFlow that Keras 2 wrapped as layers are named in the config and looked up when it is read, those that touch
files among them. A SavedModel's graph may hold ops that read and write files, or call Python. What there is of each, :mod:`policytool.hazards` knows. HDF5
leads to other files, and claims memory, by what readers observe and do not follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import hazards
from policytool.hazards import LAMBDA, PRINTING, Harm
from policytool.planning.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.document import Document
    from policytool.reading import Analysis

_REFUSED: Final = frozenset({*hazards.OUTSIDE, "unstored-values", "escaping-member", "duplicate-member", "duplicate-key"})
"""What readers observe that makes a loader open other files, ask for memory without bound, or read something else than was looked at."""

_SHOWN: Final = 120
"""Characters of a name that a message shows."""


def told(analysis: Analysis) -> Iterator[str]:
    """Yield, for each thing that would run, be opened or be asked for, which layer, part or op it is and what it does, as a part of a sentence."""
    subject = Subject(analysis)
    for hazard in subject.hazards:
        site = analysis.placed.sites[hazard.site] if hazard.site is not None else None
        # of custom code nothing runs where it is not at hand; but a Lambda finds its function in whatever module is loaded
        if hazard.harm is not Harm.CUSTOM or (site is not None and site.class_name == LAMBDA):
            yield f"{'a config' if hazard.site is None else analysis.model.layers[hazard.site].path} {hazard.what}"
    for site in subject.sites:
        if (name := hazards.leading_out(site)) is not None:
            yield f"the layer name {name[:_SHOWN]!r} is a path that leads out of where a loader keeps its files"
    yield from of_file(analysis.document)


def refusal(found: Iterator[str]) -> str | None:
    """Return, for the first of what would run, why a file is not given to TensorFlow; None where there is nothing."""
    first = next(found, None)
    return None if first is None else f"{first}: TensorFlow would do what the file says; --trust allows it, for files whose origin you know"


def of_file(document: Document) -> Iterator[str]:
    """Yield the same of the ops of a SavedModel's graph and of what its reader saw, which is all that there is to a file without Keras metadata."""
    for name in sorted(document.ops - {PRINTING}):
        if hazards.op(name) is not None:
            yield f"its graph has the op {name}"
    yield from (observation.message for observation in document.observations if observation.code in _REFUSED)
