"""
Which fixtures are converted for which of the newest libraries, and what came of it:
``fixtures/conversions.py`` does it and judges.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.compat.cases import LIBRARIES
from tests.helpers.sampling import sampled
from tests.helpers.scripts import fixture_script

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

WORDS: Final = ("same", "near", "loads", "undecided", "refused", "failed")
"""How what came of a conversion begins; ``fixtures/conversions.py`` says what each means."""

_WIDTH: Final = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Converted:
    """What came of one fixture for one library."""

    name: str
    release: str
    format: str
    target: str
    outcome: str

    @property
    def word(self) -> str:
        """One of :data:`WORDS`."""
        return self.outcome.split()[0].rstrip(":")


def measured(python: Path, scratch: Path, *, everything: bool) -> tuple[Converted, ...]:
    """
    Return what came of the fixtures, each library with processes of its own beside the other's.

    :param everything: whether each fixture goes to both libraries; else a spread of them, from one
        library to the other
    """
    conversions = fixture_script("conversions")
    venvs = scratch / "venvs"
    venvs.mkdir()
    for library in LIBRARIES:
        (venvs / library).symlink_to(python.parent.parent, target_is_directory=True)
    known = conversions.fixtures(conversions.FORMATS)
    chosen = {
        library: known if everything else list(_spread(known, library, conversions.WITH_WEIGHTS))
        for library in LIBRARIES
    }

    def one(library: str) -> Mapping[str, str]:
        folder = scratch / library
        folder.mkdir()
        campaign = conversions.Campaign(chosen[library], venvs, folder)
        campaign.table = {
            name: campaign.table[name] for name in LIBRARIES
        }  # the newest of each library alone refer and load
        campaign.refer()
        found: Mapping[str, str] = campaign.target(library)
        return found

    with ThreadPoolExecutor(len(LIBRARIES)) as pool:
        outcomes = dict(zip(LIBRARIES, pool.map(one, LIBRARIES), strict=True))
    kinds = {fixture.name: fixture.kind for fixture in known}
    return tuple(
        Converted(
            name=name,
            release=name.partition("/")[0],
            format=kinds[name],
            target=library,
            outcome=outcome,
        )
        for library, found in outcomes.items()
        for name, outcome in found.items()
    )


def _spread(known: Sequence[Any], library: str, with_weights: Collection[str]) -> Iterator[Any]:
    """
    Yield files of the other library, so that each format, each release and each case of a sample
    occurs; those that can be called come first.
    """
    cases = sampled("converted cases", sorted({_case(fixture.name) for fixture in known}), share=3)
    seen = set[tuple[str, str]]()
    newest_first = reversed(known)
    for fixture in sorted(newest_first, key=lambda one: one.kind not in with_weights):
        release = fixture.name.partition("/")[0]
        if release.startswith("keras3.") == library.startswith(
            "keras3."
        ) and not release.startswith("keras2."):
            continue  # standalone Keras 2 is a library of its own
        expected = {("format", fixture.kind), ("release", release)}
        if _case(fixture.name) in cases:
            expected.add(("case", _case(fixture.name)))
        if not expected <= seen:
            seen |= expected
            yield fixture


def _case(name: str) -> str:
    return name.partition("/")[2].partition(".")[0]


def table(found: Iterable[Converted]) -> list[str]:
    """
    Return the lines of a table: how many files of each release and format came to what, for each
    library.
    """
    counts: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    for item in found:
        counts.setdefault((item.release, item.format), Counter())[item.target, item.word] += 1
    head = "".join(f"{word:>{_WIDTH}}" for _ in LIBRARIES for word in WORDS)
    lines = [
        f"{'':34}" + "".join(f"{library:^{_WIDTH * len(WORDS)}}" for library in LIBRARIES),
        f"{'':34}{head}",
    ]
    for (release, kind), row in counts.items():
        lines.append(
            f"{release:14}{kind:20}"
            + "".join(f"{row[library, word]:{_WIDTH}}" for library in LIBRARIES for word in WORDS)
        )
    return lines
