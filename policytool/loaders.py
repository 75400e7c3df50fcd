"""
Which loaders take a file, as far as its container and its config decide it: ``load_model(path, compile=False)`` under a default global policy.

Custom classes are taken to be at hand. What no row of :mod:`policytool.refusals` refuses may still fail for a reason that no row knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model import Verdict
from policytool.refusals import LOADERS, REFUSALS, Evidence, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.document import Document
    from policytool.features import Features
    from policytool.provenance import Origin

UNTRIED: Final = frozenset({"keras1"})
"""Generations that no fixture stands for: of their files nothing is said."""

_NAMES: Final = {
    loader: loader.replace("tf_keras", "tf_keras ").replace("keras3", "Keras 3").replace("tf2", "TF 2").replace("tf1", "TF 1") for loader in LOADERS
}


def verdicts(document: Document, origins: Sequence[Origin], features: Features) -> tuple[Verdict, ...]:
    """Return what each loader makes of the document, in the order of :data:`LOADERS`; nothing for generations whose files were not tried."""
    if any(origin.generation.id in UNTRIED for origin in origins):
        return ()
    evidence = Evidence(document=document, features=features, releases=frozenset(origin.release.id for origin in origins))
    showing = [row for row in REFUSALS if document.format in row.formats and row.shows(evidence)]
    return tuple(Verdict(loader=loader, reason=next((row.reason for row in showing if _reaches(row, loader)), None)) for loader in LOADERS)


def described(found: Sequence[Verdict]) -> list[tuple[str, str]]:
    """Return a label and a text for the loaders that take the file, and for each reason why others refuse it."""
    if not found:
        return []
    taking = [verdict.loader for verdict in found if verdict.reason is None]
    reasons = dict.fromkeys(verdict.reason for verdict in found if verdict.reason)
    return [
        ("loads in", _ranges(taking) or "none of the loaders that were tried"),
        *(("refused by", f"{_ranges([verdict.loader for verdict in found if verdict.reason == reason])}: {reason}") for reason in reasons),
    ]


def _reaches(row: Refusal, loader: str) -> bool:
    return LOADERS.index(row.first) <= LOADERS.index(loader) <= LOADERS.index(row.last)


def _ranges(loaders: Sequence[str]) -> str:
    """Return loaders in words, neighbours of one family joined: ``TF 2.4 to 2.15, tf_keras 2.21``."""
    parts: list[list[str]] = []
    for loader in loaders:
        last = parts[-1][-1] if parts else None
        if last and LOADERS.index(loader) == LOADERS.index(last) + 1 and _family(loader) == _family(last):
            parts[-1].append(loader)
        else:
            parts.append([loader])
    return ", ".join(_NAMES[part[0]] + (f" to {part[-1].removeprefix(_family(part[-1]))}" if len(part) > 1 else "") for part in parts)


def _family(loader: str) -> str:
    return loader.rstrip("0123456789.")
