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
from policytool.reports.page import Fact, Item, Listing, Section, Tone
from policytool.support.shorten import join_and_count, join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.formats.edits import Placement
    from policytool.migration.plan import Conversion


def changes(conversion: Conversion, most: int | None) -> Section | None:
    """
    Return the changes of a conversion, each once with its layers; None if nothing changes.

    :param most: how many layers are named of each change; None for all
    """
    layers_by_change: dict[str, list[str]] = {}
    for change in conversion.changes:
        layers_by_change.setdefault(change.text, []).append(change.path or "the model")
    if not layers_by_change:
        return None
    return Section(
        title="changes",
        blocks=(
            Listing(
                items=tuple(
                    Item(text=text, names=join_and_count(layers, most))
                    for text, layers in layers_by_change.items()
                )
            ),
        ),
    )


def facts(conversion: Conversion, matching: Sequence[str]) -> Iterator[Fact]:
    """
    Yield the content of the new file, and how well such conversions are tested.

    :param matching: the releases that load the new file and make the target's predictions with it
    """
    content = conversion.content
    container = TITLES.get(content.container, content.container)
    variables = f" with {_many(len(content.placements), 'variable')}" if content.placements else ""
    state = f" and {_many(len(content.state), 'optimizer variable')}" if content.state else ""
    yield Fact(label="format", text=f"{container}{variables}{state}")
    for proof, (label, words, tone) in _PROOFS.items():
        classes = sorted({name for name, class_proof in conversion.proofs if class_proof is proof})
        if classes:
            yield Fact(label=label, text=words.format(join_first(classes, 8)), tone=tone)
    if matching:
        among = measured_releases(family_of(conversion.target))
        yield Fact(label="same in", text=loader_ranges(matching, among))


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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
        return "all stored values are unchanged"
    return (
        f"{same} of {len(every)} variables are unchanged; "
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
    Proof.PROVEN: ("tested", "{}: predictions of both libraries were identical", Tone.PLAIN),
    Proof.UNTESTED: ("untested", "no measurement covers {} with these options", Tone.CAUTION),
}
"""Label, sentence and tone."""
