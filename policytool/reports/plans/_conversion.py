"""
What the reports of a conversion for people say: what is written otherwise, layer by layer, and how
sure it is to compute the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.formats import TITLES
from policytool.releases.behaviour import Proof
from policytool.releases.layer_changes import measured_releases
from policytool.releases.releases import family_of
from policytool.reports._words import loader_ranges
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.new_model import Placement
    from policytool.migration.plan import Conversion

_SHOWN: Final = 3


def rows(conversion: Conversion) -> list[tuple[str, str]]:
    """
    Return what is written otherwise and where, each once: the layers that it is done to, the first
    of many, and a sentence part.
    """
    found: dict[str, list[str]] = {}
    for change in conversion.changes:
        found.setdefault(change.text, []).append(change.path or "the model")
    return [(_list_layers(layers), text) for text, layers in found.items()]


def _list_layers(layers: list[str]) -> str:
    more = len(layers) - _SHOWN
    return ", ".join(layers) if more <= 1 else f"{', '.join(layers[:_SHOWN])} and {more:,} more"


def facts(conversion: Conversion) -> Iterator[tuple[str, str, str]]:
    """Yield labels, sentences and styles."""
    content = conversion.content
    variables = f" with {len(content.placements):,} variables" if content.placements else ""
    state = f" and {len(content.state)} of the optimizer" if content.state else ""
    yield (
        "converted",
        (
            f"for {conversion.target}, as "
            f"{TITLES.get(content.container, content.container)}{variables}{state}"
        ),
        "good",
    )
    for proof, words in _PROOFS.items():
        classes = sorted({name for name, found in conversion.proofs if found is proof})
        if classes:
            yield proof.value, words.format(join_first(classes, 8)), _STYLES[proof]
    if conversion.agreeing:
        among = measured_releases(family_of(conversion.target))
        yield "same in", loader_ranges(conversion.agreeing, among), ""


def stored_values_words(conversion: Conversion) -> str:
    """
    Return what becomes of the stored values: how many variables keep theirs bit for bit, and what
    is done to the others.
    """
    every = (*conversion.content.placements, *conversion.content.state)
    ways = Counter(_way(placement) for placement in every)
    same = ways.pop("", 0)
    if not every:
        return ""
    if not ways:
        return "every stored value stays bit for bit"
    return (
        f"{same} of {len(every)} stay bit for bit; "
        f"{', '.join(f'{count} {way}' for way, count in ways.items())}"
    )


def _way(placement: Placement) -> str:
    """Return what is done to a variable's values; nothing where they are the source's."""
    if placement.source is None:
        made_of = placement.made_of
        return "new" if made_of is None else "joined" if len(made_of.parts) > 1 else "rearranged"
    if placement.scale is not None:
        return "multiplied"
    before, after = placement.source.dtype, placement.through or placement.dtype
    if before == after == placement.dtype:
        return ""
    return f"from {before} to {after}" + (
        f", stored as {placement.dtype}" if placement.dtype != after else ""
    )


_PROOFS: Final = {
    Proof.PROVEN: "{}: such layers were converted, run in both libraries, and gave the same",
    Proof.UNTESTED: "no measurement covers {} with these options",
}

_STYLES: Final = {Proof.PROVEN: "", Proof.UNTESTED: "half"}
