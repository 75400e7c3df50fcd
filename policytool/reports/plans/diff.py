"""
The changes of a migration: tables of the page of ``migrate``, and the configs before and after as a
unified diff.

A migration has a row for all layers with the same change and reason. A conversion has the changes
of each layer, and the state of tests of such conversions. The diff is indented so that each value
has a line. The edits determine the differences, so that no comparison is needed: printing the diff
of a config of 60,000 lines takes at most as long as printing the config.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from policytool.formats import TITLES
from policytool.formats.discovery import display_path
from policytool.formats.edits import EditKind
from policytool.releases import generations, keras_objects
from policytool.releases.behaviour import Proof, measured_releases
from policytool.releases.generations import GENERATIONS
from policytool.releases.policy import Policy
from policytool.releases.releases import family_of, release_name
from policytool.reports.layout import clean
from policytool.reports.page import Cell, Column, Fact, Item, Listing, Row, Section, Table, Tone
from policytool.reports.reporter import Reporter
from policytool.reports.words import loader_ranges, loss_scale_words, many, reason_words
from policytool.support.errors import SpellingError
from policytool.support.grouping import group_pairs
from policytool.support.text.jsontext import ABSENT, place
from policytool.support.text.phrases import join_and_count, join_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from policytool.commands.migrate import Migration
    from policytool.formats.edits import Edit, Placement
    from policytool.migration.plan import Conversion
    from policytool.reports.layout import View
    from policytool.reports.plans.fields import Migrations
    from policytool.support.text.jsontext import Absent, Json

_COLUMNS: Final = (
    Column(title="change", minimum=16),
    Column(title="layers", minimum=6),
    Column(title="names", priority=1, minimum=16, is_name=True, is_beneath=True),
    Column(title="reason", priority=2, minimum=24, is_beneath=True),
)
_OPTIMIZER: Final = "optimizer"
_MODEL: Final = "the model"
_TONES: Final = {EditKind.NUMERICS: Tone.MIXED, EditKind.TRAINING: Tone.CAUTION}

_ORDER: Final = (Tone.MIXED, Tone.DIM, Tone.CAUTION, Tone.GOOD)
"""Changes of policies first, then the layers that keep their policy, training, and formats."""

_NAMED: Final = 3
"""The maximum number of layers named for a change; HTML opens the others."""

_RowChange = tuple[str, str, Tone]
"""The values before and after, the reason, and a tone."""


def changes_table(migration: Migration) -> Table | None:
    """
    Return the table of the layers that change, the layers that were kept unchanged, and the
    optimizer; None if it would be empty.

    A SavedModel stores a policy in several places, and TF 2.5 stores the optimizer in two files;
    equal changes are one row.
    """
    edited = {edit.path for edit in migration.plan.edits}
    places_by_change = group_pairs(
        [
            *((_edit_change(edit), _place(edit)) for edit in migration.plan.edits),
            *(
                ((f"{kept.policy}, unchanged", kept.reason, Tone.DIM), kept.path)
                for kept in migration.plan.kept
                if kept.path not in edited
            ),
        ]
    )
    names_by_change = {
        change: tuple(dict.fromkeys(places)) for change, places in places_by_change.items()
    }
    rows = tuple(
        Row(
            cells=(
                Cell(text=change, tone=tone),
                Cell(text="" if _OPTIMIZER in names else f"{len(names):,}"),
                Cell(text=join_and_count(names, _NAMED), names=names),
                Cell(text=reason_words(reason, len(names))),
            )
        )
        for (change, reason, tone), names in sorted(
            names_by_change.items(), key=lambda item: (_ORDER.index(item[0][-1]), -len(item[1]))
        )
    )
    return Table(columns=_COLUMNS, rows=rows) if rows else None


def policy_changes(migration: Migration) -> dict[str, int]:
    """Return the changes of policies, ``float32 → float16``, with their numbers of layers."""
    layers_by_change = group_pairs(
        (_change_words(edit), _place(edit))
        for edit in migration.plan.edits
        if edit.kind is EditKind.NUMERICS
    )
    return {change: len(set(layers)) for change, layers in layers_by_change.items()}


def _edit_change(edit: Edit) -> _RowChange:
    return _change_words(edit), edit.reason, _TONES.get(edit.kind, Tone.GOOD)


def _change_words(edit: Edit) -> str:
    """Return the values before and after; with the classes of policies if their names are equal."""
    before, after = (_words(edit, value, has_class=False) for value in (edit.before, edit.after))
    if before == after:
        before, after = _words(edit, edit.before), _words(edit, edit.after)
    return f"{before} → {after}" if before != after else f"{before}, in another format"


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
    edits = group_pairs((_place(edit), edit) for edit in plan.edits)
    casts = group_pairs((cast.path or _OPTIMIZER, cast) for cast in plan.casts)
    texts = group_pairs(
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


def _words(edit: Edit, value: Json | Absent, *, has_class: bool = True) -> str:
    """
    Return a short text for a JSON value: a policy by its class and name, an optimizer by its class.

    :param has_class: whether the text for a policy starts with its class
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
            return (
                (f"{class_name} " if has_class else "")
                + parsed.name
                + (f", loss scale {scale}" if scale else "")
            )
        inner = config.get("inner_optimizer", config.get("optimizer"))
        inner_class = keras_objects.class_of(inner) if isinstance(inner, dict) else inner
        return f"{class_name}({inner_class})" if inner_class else class_name
    return value if isinstance(value, str) else repr(value)


def conversion_changes(conversion: Conversion, *, each: bool) -> Section | None:
    """
    Return the changes of a conversion, each with its layers; None if nothing changes.

    :param each: whether to list each argument that is omitted because the target has its value
    """
    items = [
        Item(text=text, names=tuple(layers), most=_NAMED)
        for text, layers in group_pairs(
            (change.text, change.path or _MODEL)
            for change in conversion.changes
            if each or change.omitted is None
        ).items()
    ]
    omitted = tuple(
        dict.fromkeys(change.omitted for change in conversion.changes if change.omitted)
    )
    if omitted and not each:
        target = release_name(conversion.target)
        text = f"arguments are omitted because {target} always uses their values"
        items.append(Item(text=text, names=omitted, most=_NAMED))
    return Section(title="changes", blocks=(Listing(items=tuple(items)),)) if items else None


def conversion_facts(
    conversion: Conversion, matching: Sequence[str], *, is_verified: bool
) -> Iterator[Fact]:
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
    proven_classes = sorted({name for name, proof in conversion.proofs if proof is Proof.PROVEN})
    if proven_classes and not is_verified:
        text = f"classes measured before, with identical results: {join_first(proven_classes, 8)}"
        yield Fact(label="tested", text=text)
    if conversion.unmeasured and not is_verified:
        text = f"no measurement covers {_unmeasured_words(conversion.unmeasured)}"
        yield Fact(label="untested", text=text, tone=Tone.CAUTION)
    if matching:
        measured = measured_releases(family_of(conversion.target))
        yield Fact(label="same in", text=loader_ranges(matching, measured))


def _unmeasured_words(names: Sequence[str]) -> str:
    """Return names of layer classes, with custom classes as a group."""
    prefix = "the custom class "
    custom = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    if len(custom) < _FEWEST_CUSTOM:
        return join_first(names, 8)
    others = [name for name in names if not name.startswith(prefix)]
    return join_first([*others, f"the custom classes {join_first(custom, 8)}"], 8)


_FEWEST_CUSTOM: Final = 2


def stored_values_words(conversion: Conversion) -> str:
    """
    Return the effect on stored values: the number of unchanged variables, and the changes of the
    others.
    """
    placements = (*conversion.content.placements, *conversion.content.state)
    change_counts = Counter(_value_change(placement) for placement in placements)
    unchanged_count, new_count = change_counts.pop("", 0), change_counts.pop(_NEW, 0)
    if not placements:
        return ""
    total = len(placements) - new_count
    words = (
        f"{unchanged_count} of {total} stored variables are unchanged"
        if change_counts
        else "all stored values are unchanged"
    )
    changes = [f"{count} {change}" for change, count in change_counts.items()]
    if new_count:
        first = next(item for item in placements if _value_change(item) == _NEW)
        changes.append(f"{many(new_count, 'new variable')}, such as {'/'.join(first.path)}")
    return "; ".join([words, ", ".join(changes)] if changes else [words])


_NEW: Final = "new"
"""What is said of variables that the source does not store."""


def _value_change(placement: Placement) -> str:
    """Return the change of a variable's values; empty if they are equal to those of the source."""
    if placement.source is None:
        made_of = placement.made_of
        return _NEW if made_of is None else "joined" if len(made_of.parts) > 1 else "rearranged"
    if placement.scale is not None:
        return "multiplied"
    before, after = placement.source.dtype, placement.through or placement.dtype
    if before == after == placement.dtype:
        return ""
    return f"from {before} to {after}" + (
        f", stored as {placement.dtype}" if placement.dtype != after else ""
    )


_CONTEXT: Final = 3
"""Lines shown around a change, as in ``diff -u``."""

_MARK: Final = "\x00policytool:"
_STYLES: Final = {"+": "good", "-": "bad", "@": "mixed"}


class _Change(Struct, frozen=True, kw_only=True):
    """Consecutive lines that are equal in both texts, or that one edit changes."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    same: bool


def render(migrations: Migrations, view: View) -> str:
    """Return the diffs of all files."""
    lines = [line for migration in migrations.migrations for line in _file_diff(migration)]
    return "".join(f"{view.paint(clean(line), _STYLES.get(line[:1], ''))}\n" for line in lines)


def _file_diff(migration: Migration) -> Iterator[str]:
    target = display_path(migration.target) if migration.target else migration.plan.path
    if migration.plan.conversion is not None:
        if migration.plan.refusals:
            return
        yield from _conversion_diff(migration, migration.plan.conversion, target)
        return
    for part, value in migration.parts.items():
        edits = [edit for edit in migration.plan.edits if edit.address.part == part]
        if edits:
            yield f"--- {migration.plan.path} {part}"
            yield f"+++ {target} {part}"
            yield from _hunks(_changes(value, edits))


def _conversion_diff(migration: Migration, conversion: Conversion, target: str) -> Iterator[str]:
    """Yield the lines of the diff between the configs of both files."""
    for part, value in migration.parts.items():
        before, after = (
            json.dumps(config, indent=2, ensure_ascii=False).splitlines()
            for config in (value, conversion.content.config)
        )
        yield from difflib.unified_diff(
            before,
            after,
            f"{migration.plan.path} {part}",
            f"{target} {part}",
            n=_CONTEXT,
            lineterm="",
        )


def _changes(value: Json, edits: list[Edit]) -> list[_Change]:
    """Return a config as groups of unchanged and of changed lines."""
    marked = copy.deepcopy(value)
    for position, edit in enumerate(edits):
        holder, key = place(marked, edit.address.pointer)
        holder[key] = f"{_MARK}{position}"
    runs: list[_Change] = []
    unchanged_lines: list[str] = []
    escaped = json.dumps(_MARK)[1:-1]
    for line in json.dumps(marked, indent=2, ensure_ascii=False).splitlines():
        head, mark, tail = line.partition(f'"{escaped}')
        if not mark:
            unchanged_lines.append(line)
            continue
        number, _, comma = tail.partition('"')
        edit = edits[int(number)]
        if (
            edit.before is ABSENT and unchanged_lines and not comma
        ):  # the key before it gets a comma
            last = unchanged_lines.pop()
            runs.append(
                _Change(before=tuple(unchanged_lines), after=tuple(unchanged_lines), same=True)
            )
            runs.append(
                _Change(
                    before=(last.removesuffix(","),),
                    after=(last, *_lines(head, edit.after, comma)),
                    same=False,
                )
            )
        else:
            runs.append(
                _Change(before=tuple(unchanged_lines), after=tuple(unchanged_lines), same=True)
            )
            runs += _line_changes(_lines(head, edit.before, comma), _lines(head, edit.after, comma))
        unchanged_lines = []
    return [*runs, _Change(before=tuple(unchanged_lines), after=tuple(unchanged_lines), same=True)]


def _line_changes(before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[_Change]:
    """Yield the equal and the different lines of one edit."""
    for tag, i, j, k, l in difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        yield _Change(before=before[i:j], after=after[k:l], same=tag == "equal")


def _lines(head: str, value: Json | Absent, comma: str) -> tuple[str, ...]:
    if value is ABSENT:
        return ()
    indent = " " * (len(head) - len(head.lstrip()))
    first, *further_lines = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    lines = [head + first, *(indent + line for line in further_lines)]
    return (*lines[:-1], lines[-1] + comma)


def _hunks(changes: list[_Change]) -> Iterator[str]:
    """Yield the hunks of a unified diff; changes that are closer than two contexts share one."""
    old = new = 1
    hunk: list[str] = []
    start = (1, 1)
    for position, change in enumerate(changes):
        if not change.same:
            hunk += [f"-{line}" for line in change.before] + [f"+{line}" for line in change.after]
        else:
            lines, is_last = change.before, position == len(changes) - 1
            if hunk and (is_last or len(lines) > 2 * _CONTEXT):
                yield from _hunk(start, [*hunk, *(f" {line}" for line in lines[:_CONTEXT])])
                hunk = []
            if hunk:
                hunk += [f" {line}" for line in lines]
            elif not is_last:
                context = lines[-_CONTEXT:]
                start = (old + len(lines) - len(context), new + len(lines) - len(context))
                hunk = [f" {line}" for line in context]
        old, new = old + len(change.before), new + len(change.after)


def _hunk(start: tuple[int, int], lines: list[str]) -> Iterator[str]:
    removed = sum(line[0] in " -" for line in lines)
    added = sum(line[0] in " +" for line in lines)
    yield f"@@ -{start[0]},{removed} +{start[1]},{added} @@"
    yield from lines


REPORTER: Final = Reporter(name="diff", render=render)
