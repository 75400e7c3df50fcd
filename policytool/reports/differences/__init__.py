"""
The reports of ``diff``: a page for people, and JSON.

The page reports in one line how much differs, then the compared files, and then the differences of
each layer.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.comparison.result import (
    NO_VALUES,
    POLICIES,
    Aspect,
    ComparisonVerdict,
    Pairing,
    Presence,
)
from policytool.formats import TITLES
from policytool.releases import keras_objects, lambda_code
from policytool.releases.policy import Dynamic, Fixed
from policytool.reports.differences.fields import REPORT, Differences
from policytool.reports.page import (
    Block,
    Cell,
    Column,
    Fact,
    Facts,
    Figures,
    Graph,
    Notes,
    Page,
    Row,
    Sentence,
    Table,
    Tone,
    Verdict,
)
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.words import failure_facts, generation_words, loss_scale_words, many
from policytool.support.grouping import group_pairs
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.comparison.result import (
        Comparison,
        LayerPair,
        Section,
        Side,
        ValueChange,
        ValueComparison,
        VariablePair,
    )
    from policytool.model.model import Layer, Variable
    from policytool.reports.layer_graph import LayerMark
    from policytool.reports.layout import View
    from policytool.support.text.jsontext import Absent, Json

    Cells = tuple[Cell, Cell, Cell]
    """The subject, and its values in A and in B."""


_PAIRED: Final = {Pairing.POSITION: "position", Pairing.MOVED: "name and shapes"}
"""The description of paired layers with different paths."""

_ALIKE: Final = 3
"""The minimum number of layers with equal differences that are reported as one."""

_MANY: Final = 10
"""The minimum number of variables of a layer in one model only that are reported as one."""

FORMAT_ONLY_MARK: Final = "~ "
"""The mark of a key that is written differently and has the same meaning."""

_COUNTED: Final = (
    ("layer only in A", "layers only in A"),
    ("layer only in B", "layers only in B"),
    ("policy", "policies"),
    ("class", "classes"),
    ("name or position", "names or positions"),
    ("different input", "different inputs"),
    ("config key", "config keys"),
    ("traced dtype", "traced dtypes"),
)
"""The singular and plural of counted differences."""

_CONFIG: Final = 6
_GROUPS: Final = {
    Aspect.CLASS: 3,
    Aspect.NAME: 4,
    Aspect.PLACE: 4,
    Aspect.ORDER: 4,
    Aspect.SHARED: 4,
    Aspect.WIRING: 5,
    Aspect.CONFIG: _CONFIG,
    Aspect.TRACED: 7,
    **dict.fromkeys(POLICIES, 2),
}


def summary(comparison: Comparison) -> str:
    """Return the amount of differences in one line, with the models only if nothing differs."""
    sides = f"{comparison.a.path} and {comparison.b.path} do not differ: "
    return ("" if comparison.differs else sides) + headline(comparison)


def headline(comparison: Comparison) -> str:
    """
    Return the amount of differences in one line, or the amount of compared values if nothing
    differs.
    """
    differing = sum(layer.differs for layer in comparison.layers)
    total = len(comparison.layers)
    parts = []
    if not comparison.differs:
        parts.append(many(total, "layer"))
    else:
        counts = Counter(group for layer in comparison.layers for group in _difference_kinds(layer))
        verb = "differs" if differing == 1 else "differ"
        count_words = ", ".join(
            f"{counts[group]:,} {_COUNTED[group][counts[group] != 1]}"
            for group in range(len(_COUNTED))
            if counts[group]
        )
        parts.append(
            f"{differing:,} of {many(total, 'layer')} "
            f"{verb}{': ' if count_words else ''}{count_words}"
        )
    parts += _about_variables(comparison.variables)
    if comparison.optimizer is not None and comparison.optimizer.differs:
        parts.append("the optimizer differs")
    signatures = sum(section.differs for section in comparison.signatures)
    if signatures:
        parts.append(f"{many(signatures, 'signature')} differ{'s' if signatures == 1 else ''}")
    return "; ".join(parts)


def equal_in_meaning(comparison: Comparison) -> str | None:
    """Return the number of values that are written differently and mean the same; None if zero."""
    count = comparison.spellings
    if not count:
        return None
    words = (
        "values are written differently but have"
        if count > 1
        else "value is written differently but has"
    )
    return f"{count:,} {words} the same meaning; --all lists {'them' if count > 1 else 'it'}"


def _about_variables(variables: Sequence[VariablePair]) -> Iterator[str]:
    """Yield remarks on stored values, except variables that one of the formats cannot contain."""
    compared = [
        variable for variable in variables if variable.presence is Presence.BOTH or variable.differs
    ]
    if not compared:
        return
    differing = [variable for variable in compared if variable.differs]
    unread = sum(variable.values.verdict is ComparisonVerdict.NOT_COMPARED for variable in compared)
    if differing:
        yield (
            f"{len(differing):,} of {many(len(compared), 'variable')} "
            f"differ{'s' if len(differing) == 1 else ''}"
        )
    elif not unread:
        yield (
            "the only variable is byte-identical"
            if len(compared) == 1
            else f"{_every(len(compared))} variables are byte-identical"
        )
    if unread == len(compared):
        yield (
            f"the values of {_every(unread)} variables were not compared"
            if unread > 1
            else "the values of 1 variable were not compared"
        )
    elif unread:
        yield f"the values of {many(unread, 'variable')} were not compared"


def _difference_kinds(layer: LayerPair) -> list[int]:
    """Return the kinds of differences of a layer, each once, except the keys of its config."""
    if layer.presence is not Presence.BOTH:
        return [0 if layer.presence is Presence.A else 1] if layer.differs else []
    groups = [_GROUPS[change.aspect] for change in layer.differences if change.aspect in _GROUPS]
    return [*({*groups} - {_CONFIG}), *(group for group in groups if group == _CONFIG)]


def _every(count: int) -> str:
    return "both" if count == 2 else f"all {count:,}"  # noqa: PLR2004


def about(side: Side) -> str:
    """Return a description of a file in one line."""
    written = (
        f"Keras {side.writer.keras}"
        if side.writer.keras
        else f"TensorFlow {side.writer.tensorflow}"
        if side.writer.tensorflow
        else ""
    )
    facts = [
        side.path,
        TITLES.get(side.format, side.format),
        generation_words(side.generation),
        *([f"written by {written}"] if written else []),
    ]
    return " · ".join(facts)


def entries(comparison: Comparison, *, everything: bool) -> Iterator[tuple[str, tuple[Cells, ...]]]:
    """Yield each listed layer or other section, with its rows."""
    for layer in comparison.layers:
        if layer.differs or everything:
            yield layer.path, tuple(_layer(layer, everything=everything))
    if comparison.optimizer is not None and (comparison.optimizer.differs or everything):
        yield "optimizer", tuple(_section(comparison.optimizer, everything=everything))
    for section in comparison.signatures:
        if section.differs or everything:
            yield f"signature {section.name}", tuple(_section(section, everything=everything))


def rows_of(
    named_cells: Sequence[tuple[str, tuple[Cells, ...]]], *, everything: bool
) -> Iterator[Row]:
    """
    Yield the rows of each entry. If many entries have the same differences, only the first has
    rows, and the number of the others follows.
    """
    names_by_rows = group_pairs((rows, name) for name, rows in named_cells)
    for name, rows in named_cells:
        names = names_by_rows[rows]
        is_repeated = len(names) >= _ALIKE and not everything
        if is_repeated and name != names[0]:
            continue
        yield from _entry_rows(name, rows)
        if is_repeated:
            text = f"  and {len(names) - 1:,} more with the same differences"
            blank = Cell(text="")
            yield Row(
                cells=(Cell(text=text, tone=Tone.DIM, is_code=False), blank, blank, blank),
                is_spanning=True,
                folded=tuple(row for other in names[1:] for row in _entry_rows(other, rows)),
            )


def _entry_rows(name: str, rows: tuple[Cells, ...]) -> Iterator[Row]:
    for number, cells in enumerate(rows):
        yield Row(cells=(Cell(text=name if number == 0 else "", is_code=True), *cells))


def _layer(layer: LayerPair, *, everything: bool) -> Iterator[Cells]:
    """Yield the rows of a layer."""
    if layer.presence is not Presence.BOTH:
        variables_text = f", {many(len(layer.variables), 'variable')}" if layer.variables else ""
        description = f"{layer.class_name or 'no class'}{variables_text}"
        in_a = layer.presence is Presence.A
        side = layer.presence.value.upper()
        presence_words = f"only in {side}" if layer.listed else f"listed only in {side}"
        yield (
            Cell(text=presence_words),
            Cell(text=description if in_a else "", tone=Tone.BAD),
            Cell(text="" if in_a else description, tone=Tone.GOOD),
        )
        return
    changes: Sequence[ValueChange] = layer.changes
    if layer.paired in {Pairing.POSITION, Pairing.MOVED}:
        yield (
            Cell(text=f"path (matched by {_PAIRED[layer.paired]})"),
            Cell(text=layer.a or "", tone=Tone.DIM),
            Cell(text=layer.b or ""),
        )
        changes = [
            change for change in changes if change.aspect not in {Aspect.NAME, Aspect.PLACE}
        ]  # the row above has both paths
    yield from _change_rows(changes, everything=everything)
    yield from _variables(layer.variables, everything=everything)
    if everything and not layer.differs and not layer.variables and not layer.changes:
        yield Cell(text="equal", tone=Tone.DIM), Cell(text=""), Cell(text="")


def _section(section: Section, *, everything: bool) -> Iterator[Cells]:
    """Yield the rows of the optimizer or of a signature."""
    if section.presence is not Presence.BOTH:
        in_a = section.presence is Presence.A
        yield (
            Cell(text=f"only in {section.presence.value.upper()}"),
            Cell(text="" if not in_a else "yes", tone=Tone.BAD),
            Cell(text="" if in_a else "yes", tone=Tone.GOOD),
        )
        return
    yield from _change_rows(section.changes, everything=everything)
    yield from _variables(section.variables, everything=everything)
    if everything and not section.differs and not section.variables and not section.changes:
        yield Cell(text="equal", tone=Tone.DIM), Cell(text=""), Cell(text="")


def _change_rows(changes: Sequence[ValueChange], *, everything: bool) -> Iterator[Cells]:
    """
    Yield a row for each change; dtypes that follow from another policy are listed only on request.
    """
    has_policy = any(
        change.aspect is Aspect.POLICY and not change.is_format_only for change in changes
    )
    for change in changes:
        follows_policy = change.aspect in {Aspect.COMPUTE, Aspect.VARIABLE} and has_policy
        if everything or not (change.is_format_only or follows_policy):
            aspect_words = _WHAT.get(change.aspect, change.aspect.value.replace("-", " "))
            change_name = (
                f"{aspect_words} {change.key}".strip()
                if change.key and change.aspect is not Aspect.POLICY
                else aspect_words
            )
            tone = (
                Tone.DIM
                if change.is_format_only
                else Tone.MIXED
                if change.aspect in POLICIES
                else Tone.PLAIN
            )
            a, b = (_words(value, change.aspect) for value in (change.a, change.b))
            if a == b:  # the same number, rounded to float32 or not
                a, b = (
                    json.dumps(value, ensure_ascii=False) if value is not ABSENT else "not set"
                    for value in (change.a, change.b)
                )
            yield (
                Cell(text=f"{FORMAT_ONLY_MARK if change.is_format_only else ''}{change_name}"),
                Cell(text=a, is_code=_is_json(a), tone=Tone.DIM),
                Cell(text=b, is_code=_is_json(b), tone=tone),
            )


_WHAT: Final = {
    Aspect.CONFIG: "",
    Aspect.WIRING: "inputs",
    Aspect.ORDER: "position",
    Aspect.SHARED: "shared paths",
    Aspect.SIGNATURE: "",
}


def _variables(variables: Iterable[VariablePair], *, everything: bool) -> Iterator[Cells]:
    listed = [variable for variable in variables if variable.differs or everything]
    by_presence = group_pairs((variable.presence, variable) for variable in listed)
    for variable in listed:
        alike = by_presence[variable.presence]
        is_joined = (
            variable.presence is not Presence.BOTH and len(alike) >= _MANY and not everything
        )
        if not is_joined:
            yield (
                Cell(text=variable.name),
                Cell(text=_variable_words(variable.a), tone=Tone.DIM),
                _values_cell(variable),
            )
        elif variable is alike[0]:
            in_a = variable.presence is Presence.A
            names = tuple(variable.name for variable in alike)
            yield (
                Cell(text=many(len(alike), "variable"), names=names),
                Cell(text="in A" if in_a else "not in A", tone=Tone.DIM),
                Cell(text="not in B", tone=Tone.BAD) if in_a else Cell(text="in B", tone=Tone.GOOD),
            )


def _values_cell(variable: VariablePair) -> Cell:
    if variable.b is None:
        return Cell(
            text=variable.values.reason or "" if not variable.differs else "not in B",
            tone=Tone.BAD if variable.differs else Tone.DIM,
        )
    text, tone = _verdict(variable.values)
    has_same_type = variable.a is not None and (variable.a.dtype, variable.a.shape) == (
        variable.b.dtype,
        variable.b.shape,
    )
    stored = "" if has_same_type else _variable_words(variable.b)
    return Cell(
        text=": ".join(part for part in (stored, text if variable.a is not None else "") if part),
        tone=tone if variable.a is not None else Tone.GOOD,
    )


def _verdict(values: ValueComparison) -> tuple[str, Tone]:
    """Return the result of comparing values in a few words, and its tone."""
    match values.verdict:
        case ComparisonVerdict.EQUAL:
            return "equal bytes", Tone.DIM
        case ComparisonVerdict.ROUNDED:
            rounded_words = {
                Presence.A: "A is B rounded",
                Presence.B: "B is A rounded",
                Presence.BOTH: "equal values",
            }
            return rounded_words[values.rounded or Presence.BOTH], Tone.CAUTION
        case ComparisonVerdict.NOT_COMPARED:
            reason = "" if values.reason in {None, NO_VALUES} else f": {values.reason}"
            return f"not compared{reason}", Tone.DIM  # a note has the reason for all variables
        case ComparisonVerdict.DIFFERENT:
            if values.differing is None:
                return values.reason or "different", Tone.BAD
            largest = "" if values.largest is None else f", up to {values.largest:.3g}"
            return f"{values.differing:,}/{values.elements:,} differ{largest}", Tone.BAD


def _is_json(text: str) -> bool:
    return text.startswith(("{", "[", '"'))


def _variable_words(variable: Variable | None) -> str:
    if variable is None:
        return ""
    shape = (
        "?" if variable.shape is None else f"({', '.join(str(size) for size in variable.shape)})"
    )
    return f"{variable.dtype} {shape}"


def _words(value: Json | Absent, aspect: Aspect) -> str:
    """
    Return a value in a few words: text as it is, a loss scale in words, anything else as JSON.
    """
    if value is ABSENT:
        return "not set"
    if value is None:
        return "none" if aspect in POLICIES else "null"
    if aspect is Aspect.LOSS_SCALE and isinstance(value, dict):
        return loss_scale_words(
            Fixed(value=_number(value["value"])) if value["kind"] == "fixed" else _dynamic(value)
        )
    if isinstance(value, list) and aspect in {Aspect.WIRING, Aspect.TRACED, Aspect.SHARED}:
        return ", ".join(map(str, value)) or "none"
    code = lambda_code.expression({"function": value})
    if code is not None:
        return f"bytecode ({code.text})"
    serialized = keras_objects.read(value)
    if (
        isinstance(value, dict)
        and "items" not in value
        and serialized is not None
        and isinstance(serialized.config, dict | None)
    ):
        arguments = ", ".join(
            f"{key}={_words(argument, aspect)}" for key, argument in serialized.arguments.items()
        )
        return f"{serialized.class_name}({arguments})" if arguments else serialized.class_name
    if isinstance(value, float):
        # the digits that float32 has: releases store 0.001 as 0.0010000000474974513
        return f"{value:.7g}"
    return (
        value
        if isinstance(value, str) and aspect is not Aspect.CONFIG
        else json.dumps(value, ensure_ascii=False)
    )


def _dynamic(value: dict[str, Json]) -> Dynamic:
    return Dynamic(
        initial=_number(value["initial"]),
        growth_steps=int(_number(value["growth_steps"])),
        multiplier=_number(value["multiplier"]),
    )


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


_COLUMNS: Final = (
    Column(title="layer", minimum=18, is_name=True),
    Column(title="what", minimum=15),
    Column(title="A", minimum=14),
    Column(title="B", minimum=26),  # says by how much values differ
)


def page(differences: Differences, view: View) -> Page:
    """Return the page; an empty one if a file could not be read."""
    comparison = differences.outcome.comparison
    if comparison is None:
        return Page(groups=(), failures=failure_facts(differences.outcome.failures))
    return Page(groups=(tuple(_blocks(comparison, view, everything=differences.everything)),))


def _blocks(comparison: Comparison, view: View, *, everything: bool) -> Iterator[Block]:
    yield Verdict.whole(
        text=summary(comparison), tone=Tone.CAUTION if comparison.differs else Tone.GOOD
    )
    if view.is_searchable:
        yield _figures(comparison)
        yield from _graphs(comparison)
    if comparison.differs or everything:
        yield Facts(
            facts=tuple(
                Fact(label=label, text=about(side))
                for label, side in (("A", comparison.a), ("B", comparison.b))
            )
        )
    rows = tuple(rows_of(list(entries(comparison, everything=everything)), everything=everything))
    if rows:
        yield Table(columns=_COLUMNS, rows=rows)
    if any(
        FORMAT_ONLY_MARK in cell.text[: len(FORMAT_ONLY_MARK)]
        for row in rows
        for cell in row.cells[1:2]
    ):
        yield Sentence(
            text=f"{FORMAT_ONLY_MARK}written differently, but with the same meaning", tone=Tone.DIM
        )
    notes = [note.message for note in comparison.notes]
    if not everything and (equality_note := equal_in_meaning(comparison)) is not None:
        notes.insert(0, equality_note)
    if notes:
        yield Notes(texts=tuple(notes))


def _figures(comparison: Comparison) -> Figures:
    """Return the number of layers and variables that differ."""
    presences = Counter(layer.presence for layer in comparison.layers if layer.differs)
    figures = (
        ("layers differ", presences[Presence.BOTH]),
        ("layers only in A", presences[Presence.A]),
        ("layers only in B", presences[Presence.B]),
        ("variables differ", sum(variable.differs for variable in comparison.variables)),
    )
    return Figures(figures=tuple(Fact(label=label, text=f"{count:,}") for label, count in figures))


_LEGEND: Final = (
    Sentence(text="equal"),
    Sentence(text="only the policy differs", tone=Tone.MIXED),
    Sentence(text="differs", tone=Tone.CAUTION),
    Sentence(text="only in A", tone=Tone.BAD),
    Sentence(text="only in B", tone=Tone.GOOD),
)
"""The colours of layers in the graphs."""


def _graphs(comparison: Comparison) -> Iterator[Graph]:
    """
    Yield the graphs of the layers, coloured by difference: of both models, or one graph if they
    have the same connections. Yields nothing if no layer differs.
    """
    if not any(pair.differs for pair in comparison.layers):
        return
    connections = [
        {layer.path: layer.inputs for layer in side.connected_layers}
        for side in (comparison.a, comparison.b)
    ]
    names = ("A", "B") if connections[0] != connections[1] else ("",)
    for name, side in zip(names, (comparison.a, comparison.b), strict=False):
        pairs = {pair.b if name == "B" else pair.a: pair for pair in comparison.layers}
        title = f"Layers{f' of {name}' if name else ''} by difference, from input to output"
        if (drawing := _graph(title, side.connected_layers, pairs)) is not None:
            yield drawing


def _graph(
    title: str, layers: Sequence[Layer], pairs: Mapping[str | None, LayerPair]
) -> Graph | None:
    from policytool.reports import layer_graph  # only HTML needs it

    return layer_graph.layer_graph(
        title, layers, lambda layer: _mark(pairs.get(layer.path)), _LEGEND
    )


def _mark(pair: LayerPair | None) -> LayerMark:
    """Return what a graph shows of a layer."""
    from policytool.reports.layer_graph import LayerMark

    if pair is None or not pair.differs:
        return LayerMark(text="")
    if pair.presence is not Presence.BOTH:
        side = pair.presence.value.upper()
        return LayerMark(text=f"only in {side}", tone=Tone.BAD if side == "A" else Tone.GOOD)
    rows = list(_layer(pair, everything=False))
    has_only_policy = all(change.aspect in POLICIES for change in pair.differences) and not any(
        variable.differs for variable in pair.variables
    )
    return LayerMark(
        text="policy" if has_only_policy else "changed",
        tone=Tone.MIXED if has_only_policy else Tone.CAUTION,
        details=tuple(
            Fact(label=what.text, text=" → ".join(filter(None, (a.text, b.text))))
            for what, a, b in rows
        ),
    )


DIFFERENCE_REPORTERS: Final[tuple[Reporter[Differences], ...]] = (
    *reporters_for_people(page, "policytool diff"),
    json_reporter(REPORT, ascii_only=True),
)
"""The reporters; the first is the default."""

__all__ = ["DIFFERENCE_REPORTERS", "Differences", "headline", "page"]
