"""
Which loaders take a file, as far as its container and its config decide it: ``load_model(path, compile=False)`` under a default global policy.

Custom classes are taken to be at hand. What no row of :mod:`policytool.refusals` refuses may still fail for a reason that no row knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import capabilities
from policytool.model import Verdict
from policytool.opaque import OPAQUE_CLASSES
from policytool.refusals import LOADERS, REFUSALS, Evidence, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.document import Document
    from policytool.features import Features
    from policytool.provenance import Origin

_EVERYWHERE: Final = "float32"
"""What every loader builds everything in; models of it alone are judged without the data, which takes milliseconds to read."""

_CLASS: Final = {"OrthogonalInitializer": "Orthogonal"}
"""The name that Keras 3.0 to 3.6 write for a class that others call otherwise."""

UNTRIED: Final = frozenset({"keras1"})
"""Generations that no fixture stands for: of their files nothing is said."""


PARTIAL: Final = frozenset({"keras-metadata"})
"""Formats of files that are part of a model, which nothing loads alone."""


def verdicts(document: Document, origins: Sequence[Origin], features: Features) -> tuple[Verdict, ...]:
    """Return what each loader makes of the document, in the order of :data:`LOADERS`; nothing for generations whose files were not tried."""
    if any(origin.generation.id in UNTRIED for origin in origins) or document.format in PARTIAL:
        return ()
    evidence = Evidence(document=document, features=features, releases=frozenset(origin.release.id for origin in origins))
    showing = [row for row in REFUSALS if document.format in row.formats and row.shows(evidence)]
    return tuple(
        Verdict(loader=loader, reason=next((row.reason for row in showing if _reaches(row, loader)), None) or _unbuildable(loader, document, features))
        for loader in LOADERS
    )


def _unbuildable(loader: str, document: Document, features: Features) -> str | None:
    """Return which layer a loader cannot build in its dtype; a SavedModel's are not built anew from initialisers alone."""
    if document.format == "savedmodel":
        return None
    for class_name, policy in sorted(found for found in features.layer_policies if found[1] != _EVERYWHERE and found[0] not in OPAQUE_CLASSES):
        if capabilities.unbuildable(loader, class_name, policy) is not None:
            return f"it cannot build a {class_name} under {policy}"
    for initializer, policy in sorted(found for found in features.drawn if found[1] != _EVERYWHERE):
        dtype = "float32" if policy.startswith("mixed_") else policy
        if capabilities.undrawable(loader, _CLASS.get(initializer, initializer), dtype) is not None:
            return f"its initialiser {initializer} makes no {dtype} variables"
    return None


def _reaches(row: Refusal, loader: str) -> bool:
    return LOADERS.index(row.first) <= LOADERS.index(loader) <= LOADERS.index(row.last)
