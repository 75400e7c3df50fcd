"""
The changes on the page of ``migrate``.

A migration has a row for all layers with the same change and reason. A conversion has the changes
of each layer, and the state of tests of such conversions.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from policytool.formats import TITLES
from policytool.formats.edits import EditKind
from policytool.releases import generations, keras_objects
from policytool.releases.behaviour import Proof, measured_releases
from policytool.releases.generations import GENERATIONS
from policytool.releases.policy import Policy
from policytool.releases.releases import family_of
from policytool.reports.page import Cell, Column, Fact, Item, Listing, Row, Section, Table, Tone
from policytool.reports.words import loader_ranges, loss_scale_words, many
from policytool.support.errors import SpellingError
from policytool.support.grouping import grouped
from policytool.support.text.jsontext import ABSENT
from policytool.support.text.phrases import join_and_count, join_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from policytool.commands.migrate import Migration
    from policytool.formats.edits import Edit, Placement
    from policytool.migration.plan import Conversion
    from policytool.support.text.jsontext import Absent, Json


_COLUMNS: Final = (
    Column(title="layer", minimum=16, is_name=True),
    Column(title="before", minimum=13),
    Column(title="after", minimum=13),
    Column(title="reason", priority=1, minimum=24, is_beneath=True),
)
_UNCHANGED: Final = "unchanged"
_OPTIMIZER: Final = "optimizer"
_MODEL: Final = "the model"
_TONES: Final = {EditKind.NUMERICS: Tone.MIXED, EditKind.TRAINING: Tone.CAUTION}

_Change = tuple[str, str, str, Tone]
"""The value before, the value after, the reason, and a tone."""


def changes_table(migration: Migration, most: int | None) -> Table | None:
    """
    Return the table of the layers that change, the layers that were kept unchanged, and the
    optimizer; None if it would be empty.

    A SavedModel stores a policy in several places, and TF 2.5 stores the optimizer in two files;
    equal changes are one row.

    :param most: the maximum number of layers named for a change; None for all
    """
    edited = {edit.path for edit in migration.plan.edits}
    names_by_change = grouped(
        [
            *((_edit_change(edit), _place(edit)) for edit in migration.plan.edits),
            *(
                ((kept.policy, _UNCHANGED, kept.reason, Tone.DIM), kept.path)
                for kept in migration.plan.kept
                if kept.path not in edited
            ),
        ]
    )
    rows = tuple(
        Row(
            cells=(
                Cell(text=join_and_count(tuple(dict.fromkeys(names)), most)),
                Cell(text=before, tone=Tone.DIM),
                Cell(text=after, tone=tone),
                Cell(text=reason),
            )
        )
        for (before, after, reason, tone), names in names_by_change.items()
    )
    return Table(columns=_COLUMNS, rows=rows) if rows else None


def _edit_change(edit: Edit) -> _Change:
    tone = _TONES.get(edit.kind, Tone.GOOD)
    return _words(edit, edit.before), _words(edit, edit.after), edit.reason, tone


class LayerChange(NamedTuple):
    """The changes of a layer, with all reasons."""

    path: str
    before: str
    after: str
    reason: str
    edits: int
    """The number of changed config values."""

    casts: int
    """The number of stored variables that get another dtype."""


def layer_changes(migration: Migration) -> list[LayerChange]:
    """Return a row for each layer that changes, and one for the optimizer if it does."""
    plan = migration.plan
    edits = grouped((_place(edit), edit) for edit in plan.edits)
    casts = grouped((cast.path or _OPTIMIZER, cast) for cast in plan.casts)
    texts = grouped(
        (change.path or _MODEL, change.text)
        for change in (plan.conversion.changes if plan.conversion is not None else ())
    )
    return [
        LayerChange(
            path=path,
            before=_join(_words(edit, edit.before) for edit in edits.get(path, ())),
            after=_join(_words(edit, edit.after) for edit in edits.get(path, ())),
            reason=_join(
                (
                    *(edit.reason for edit in edits.get(path, ())),
                    *texts.get(path, ()),
                    *(cast.reason for cast in casts.get(path, ())),
                )
            ),
            edits=len(edits.get(path, ())),
            casts=len(casts.get(path, ())),
        )
        for path in dict.fromkeys((*edits, *texts, *casts))
    ]


def _join(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _place(edit: Edit) -> str:
    """Return the layer that an edit changes, or the place of the edit."""
    if edit.path is not None:
        return edit.path
    is_optimizer = (
        edit.kind in {EditKind.TRAINING, EditKind.FORMAT} and _OPTIMIZER in edit.address.pointer
    )
    return _OPTIMIZER if is_optimizer else edit.address.pointer


def _words(edit: Edit, value: Json | Absent) -> str:
    """
    Return a short text for a JSON value: a policy by its class and name, an optimizer by its class.
    """
    if value is ABSENT:
        return "not set" if edit.address.pointer.endswith("/dtype") else "nothing"
    if (serialized := keras_objects.read(value)) is not None:
        class_name, config = serialized.class_name, serialized.arguments
        for generation in reversed(GENERATIONS):
            try:
                parsed = generations.parse(value, generation)
            except SpellingError:
                break
            scale = (
                loss_scale_words(parsed.effective_loss_scale)
                if isinstance(parsed, Policy) and "loss_scale" in config
                else ""
            )
            return f"{class_name} {parsed.name}" + (f", loss scale {scale}" if scale else "")
        inner = config.get("inner_optimizer", config.get("optimizer"))
        within = keras_objects.class_of(inner) if isinstance(inner, dict) else inner
        return f"{class_name}({within})" if within else class_name
    return value if isinstance(value, str) else repr(value)


def changes(conversion: Conversion, most: int | None) -> Section | None:
    """
    Return the changes of a conversion, each with its layers; None if nothing changes.

    :param most: the maximum number of layers named for a change; None for all
    """
    layers_by_change = grouped(
        (change.text, change.path or _MODEL) for change in conversion.changes
    )
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


def facts(conversion: Conversion, matching: Sequence[str], *, is_verified: bool) -> Iterator[Fact]:
    """
    Yield the content of the new file, and how well such conversions are tested.

    :param matching: the releases that load the new file and make the target's predictions with it
    :param is_verified: whether predictions of both files were compared and are the same
    """
    content = conversion.content
    container = TITLES.get(content.container, content.container)
    variables = f" with {many(len(content.placements), 'variable')}" if content.placements else ""
    state = f" and {many(len(content.state), 'optimizer variable')}" if content.state else ""
    yield Fact(label="format", text=f"{container}{variables}{state}")
    proven = sorted({name for name, proof in conversion.proofs if proof is Proof.PROVEN})
    if proven:
        text = f"{join_first(proven, 8)}: predictions of both libraries were identical"
        yield Fact(label="tested", text=text)
    if conversion.unmeasured and not is_verified:
        text = f"no measurement covers {join_first(conversion.unmeasured, 8)}"
        yield Fact(label="untested", text=text, tone=Tone.CAUTION)
    if matching:
        among = measured_releases(family_of(conversion.target))
        yield Fact(label="same in", text=loader_ranges(matching, among))


def stored_values_words(conversion: Conversion) -> str:
    """
    Return the effect on stored values: the number of unchanged variables, and the changes of the
    others.
    """
    every = (*conversion.content.placements, *conversion.content.state)
    ways = Counter(_value_change(placement) for placement in every)
    same = ways.pop("", 0)
    if not every:
        return ""
    if not ways:
        return "all stored values are unchanged"
    return (
        f"{same} of {len(every)} variables are unchanged; "
        f"{', '.join(f'{count} {way}' for way, count in ways.items())}"
    )


def _value_change(placement: Placement) -> str:
    """Return the change of a variable's values; empty if they are equal to those of the source."""
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
