"""
Which loaders take a file, as far as its container and its config decide it: ``load_model(path, compile=False)`` under a default global policy.

Custom classes are taken to be at hand. What no row of :mod:`policytool.refusals` refuses may still fail for a reason that no row knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import capabilities
from policytool.model import Cause, Obstacle, Verdict
from policytool.opaque import OPAQUE_CLASSES
from policytool.refusals import LOADERS, REFUSALS, Evidence, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.document import Document
    from policytool.features import Features
    from policytool.provenance import Origin

_EVERYWHERE: Final = "float32"
"""What every loader builds everything in; models of it alone are judged without the data, which takes milliseconds to read."""

_CLASS: Final = {"OrthogonalInitializer": "Orthogonal"}
"""The name that Keras 3.0 to 3.6 write for a class that others call otherwise."""

UNTRIED: Final = frozenset({"keras1"})
"""Generations that no fixture stands for: of their files nothing is said."""


NOT_LOADED: Final = frozenset({"keras-metadata", "tfjs"})
"""Formats that no ``load_model`` takes: part of a model, or what a converter makes a model of."""


def verdicts(document: Document, origins: Sequence[Origin], features: Features) -> tuple[Verdict, ...]:
    """Return what each loader makes of the document, in the order of :data:`LOADERS`; nothing for generations whose files were not tried."""
    exported = document.format == "savedmodel" and not document.nodes  # a TF 1 export, from which no load_model makes a Keras model
    if exported or document.format in NOT_LOADED or any(origin.generation.id in UNTRIED for origin in origins):
        return ()
    evidence = Evidence(document=document, features=features, releases=frozenset(origin.release.id for origin in origins))
    showing = [row for row in REFUSALS if document.format in row.formats and row.shows(evidence)]
    return tuple(
        _verdict(loader, [*(_cause(row) for row in showing if _reaches(row, loader)), *_unbuildable(loader, document, features)]) for loader in LOADERS
    )


def _verdict(loader: str, causes: Sequence[Cause]) -> Verdict:
    return Verdict(loader=loader, reason=causes[0].reason if causes else None, causes=tuple(causes))


def _cause(row: Refusal) -> Cause:
    return Cause(kind=row.kind, reason=row.reason)


def _unbuildable(loader: str, document: Document, features: Features) -> Iterator[Cause]:
    """Yield what a loader cannot build in its dtype; a SavedModel's layers are not built anew from initialisers alone."""
    if document.format == "savedmodel":
        return
    for class_name, policy in sorted(found for found in features.layer_policies if found[1] != _EVERYWHERE and found[0] not in OPAQUE_CLASSES):
        if capabilities.unbuildable(loader, class_name, policy) is not None:
            yield Cause(kind=Obstacle.DTYPE, reason=f"it cannot build a {class_name} under {policy}", class_name=class_name)
    for initializer, policy in sorted(found for found in features.drawn if found[1] != _EVERYWHERE):
        dtype = "float32" if policy.startswith("mixed_") else policy
        if capabilities.undrawable(loader, _CLASS.get(initializer, initializer), dtype) is not None:
            yield Cause(kind=Obstacle.DTYPE, reason=f"its initialiser {initializer} makes no {dtype} variables", class_name=initializer)


def _reaches(row: Refusal, loader: str) -> bool:
    return LOADERS.index(row.first) <= LOADERS.index(loader) <= LOADERS.index(row.last)
