"""
What reports say of the comparison of predictions: a part of the first line for people, one object
in JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from policytool.commands.migrate import Status
from policytool.numerics.workers import shown_size
from policytool.releases.releases import library_and_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.commands.migrate import Migration
    from policytool.numerics.predictions import PredictionComparison

_LIBRARIES: Final = {"keras": "Keras", "tf": "TensorFlow", "tf_keras": "tf_keras"}


def verification_words(migration: Migration) -> list[str]:
    """Return the result of the comparison as a sentence part; nothing if none is expected."""
    comparison = migration.comparison
    if comparison is not None and migration.status is Status.WRITTEN:
        limit = (
            f" (memory limit {shown_size(migration.memory_limit)})"
            if migration.memory_limit is not None
            else ""
        )
        return [f"verified: {_agreement(comparison)}{limit}"]
    if migration.not_verified is not None:
        return [f"not verified: {migration.not_verified}"]
    return []


class Verified(NamedTuple):
    """Whether predictions were compared, or why not, for JSON."""

    outcome: str
    reason: str | None
    releases: list[str]
    samples: int
    memory_limit: int | None


def verified(migration: Migration) -> Verified | None:
    """Return the result of the comparison for JSON; None if nobody expects a comparison."""
    comparison = migration.comparison
    if comparison is None and migration.not_verified is None:
        return None
    missed = comparison.missed if comparison is not None else ()
    return Verified(
        outcome="not-verified" if comparison is None else "missed" if missed else "verified",
        reason=migration.not_verified or "; ".join(missed) or None,
        releases=_releases(comparison) if comparison is not None else [],
        samples=comparison.samples if comparison is not None else 0,
        memory_limit=migration.memory_limit,
    )


def _agreement(comparison: PredictionComparison) -> str:
    releases = _releases(comparison)
    both = len(releases) > 1
    rows = f"{comparison.samples} row{'' if comparison.samples == 1 else 's'}"
    who = " and ".join(releases)
    if comparison.tolerance and not comparison.keeps_dtypes:  # dtypes change on purpose
        return f"predictions of {who} agree within the tolerance for {rows}"
    verb, files = ("make", "") if both else ("makes", " with both files")
    return f"{who} {verb} the same predictions{files} for {rows}"


def _releases(comparison: PredictionComparison) -> list[str]:
    """Return the releases that ran, the source's first, each once."""
    sides = (comparison.versions, comparison.versions_after or comparison.versions)
    return list(dict.fromkeys(map(_release, sides)))


def _release(versions: Mapping[str, str]) -> str:
    library, version = library_and_version(versions)
    return f"{_LIBRARIES[library]} {version}"
