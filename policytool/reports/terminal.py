"""
Pages as text for a terminal, with or without colour.

If a table is too wide, the least important columns are left out first; the cells of some columns
then move below their row. Labels are not shortened up to three fifths of the width, and different
labels stay different when they are shortened.

The table of rich takes 0.35 s for the 1,031 layers of EfficientNetV2-L, ten times the time for
reading their config. Plain cells take a hundredth of this time.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.reports import layout
from policytool.reports.layout import clean, pieces, shorten, shorten_path, width_of, wrap
from policytool.reports.page import (
    Bars,
    Command,
    Curves,
    Facts,
    Figures,
    Graph,
    Listing,
    Notes,
    Profile,
    Section,
    Sentence,
    Spreads,
    Table,
    Tone,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.reports.layout import View
    from policytool.reports.page import Block, Column, Page


_GUIDES: Final = {True: ("├─ ", "└─ ", "│  ", "   "), False: ("|- ", "`- ", "|  ", "   ")}
"""
The prefixes of a label with siblings after it, of the last label, and of the rows below each of
them; with and without box characters.
"""

_GAPS: Final = (2, 1)
"""The spaces between columns; the second number applies if the table is too wide otherwise."""

_LABEL_SHARE: Final = 0.6
_MARKS: Final = ("! ", "  ")
"""The prefixes of labels of failures, and of all other labels in a table with failures."""

_INDENT: Final = 2
_BENEATH: Final = 6


class _Line(Struct, frozen=True, kw_only=True):
    """A row for printing: its texts, which are safe to print, and their tones."""

    prefix: str
    texts: tuple[str, ...]
    tones: tuple[Tone, ...]
    is_spanning: bool


def table_lines(table: Table, view: View) -> list[str]:
    """Return the lines of a table: titles, a rule, the rows."""
    lines = list(_lines(table, view))
    order = table.shown
    natural = [_natural(table.columns[index], lines, index) for index in range(len(table.columns))]
    mark = width_of(_MARKS[1]) if _has_marks(table) else 0
    natural[0] = max(natural[0], mark + width_of(table.columns[0].title))
    minimum_widths = [  # what can move below its row is never shortened
        natural[index]
        if column.is_beneath
        else min(natural[index], max(column.minimum, width_of(column.title)))
        for index, column in enumerate(table.columns)
    ]
    minimum_widths[0] = min(natural[0], max(minimum_widths[0], int(view.width * _LABEL_SHARE)))
    shown_columns = _fitting_columns(table.columns, order, minimum_widths, view.width - _INDENT)
    gap = _gap([minimum_widths[index] for index in shown_columns], view.width - _INDENT)
    room = view.width - _INDENT - gap * (len(shown_columns) - 1)
    widths = _fit(
        [natural[index] for index in shown_columns],
        [minimum_widths[index] for index in shown_columns],
        room,
    )
    left_out = [
        index for index in order if index not in shown_columns and table.columns[index].is_beneath
    ]
    return _table_lines(table, lines, shown_columns, widths, gap, left_out, view)


def _lines(table: Table, view: View) -> Iterator[_Line]:
    """Yield the cells of each row as printable text, with the prefix of its label."""
    guides = _guides([row.depth for row in table.rows], view)
    has_marks = _has_marks(table)
    for row, guide in zip(table.rows, guides, strict=True):
        yield _Line(
            prefix=(_MARKS[not row.is_missed] if has_marks else "") + guide,
            texts=tuple(view.printable(cell.text) for cell in row.cells),
            tones=tuple(cell.tone for cell in row.cells),
            is_spanning=row.is_spanning,
        )


def _has_marks(table: Table) -> bool:
    return any(row.is_missed for row in table.rows)


def _guides(depths: Sequence[int], view: View) -> list[str]:
    """Return the prefix of each label of a tree, which draws its branches."""
    tee, corner, bar, gap = _GUIDES[view.unicode]
    has_next: list[bool] = []
    open_depths = set[int]()
    for depth in reversed(depths):
        has_next.append(depth in open_depths)
        open_depths = {level for level in open_depths if level <= depth} | {depth}
    guides = []
    open_guides: list[str] = []
    for depth, has_more in zip(depths, reversed(has_next), strict=True):
        del open_guides[max(0, depth - 1) :]
        guides.append("".join(open_guides) + (tee if has_more else corner) * bool(depth))
        if depth:
            open_guides.append(bar if has_more else gap)
    return guides


def _natural(column: Column, lines: Sequence[_Line], index: int) -> int:
    """Return the width of a column in which no cell is shortened."""
    return max(
        [
            width_of(column.title),
            *(
                width_of(line.texts[index]) + (width_of(line.prefix) if not index else 0)
                for line in lines
                if not line.is_spanning
            ),
        ]
    )


def _gap(minimum_widths: Sequence[int], room: int) -> int:
    """Return the widest gap between columns for which the minimum widths fit."""
    return next(
        (gap for gap in _GAPS if sum(minimum_widths) + gap * (len(minimum_widths) - 1) <= room),
        _GAPS[-1],
    )


def _fitting_columns(
    columns: Sequence[Column], order: Sequence[int], minimum_widths: Sequence[int], room: int
) -> list[int]:
    """Return the displayed columns: the least important are left out until the others fit."""
    shown_columns = list(order)
    while True:
        needed = sum(minimum_widths[index] for index in shown_columns) + _GAPS[0] * (
            len(shown_columns) - 1
        )
        optional = [index for index in shown_columns if columns[index].priority]
        if needed <= room or not optional:
            return shown_columns
        shown_columns.remove(
            max(  # what moves below its row is not lost
                optional,
                key=lambda index: (columns[index].is_beneath, columns[index].priority, index),
            )
        )


def _fit(natural: Sequence[int], minimum_widths: Sequence[int], room: int) -> list[int]:
    """
    Return widths whose sum is at most ``room``, but not less than the minimum widths. The widest
    column is narrowed first. If the minimum widths exceed ``room``, the label is narrowed.
    """
    widths = list(natural)
    while sum(widths) > room:
        widest = max(
            range(len(widths)),
            key=lambda index: (widths[index] > minimum_widths[index], widths[index]),
        )
        if widths[widest] <= minimum_widths[widest]:
            widths[0] = max(1, widths[0] - (sum(widths) - room))
            break
        widths[widest] -= 1
    return widths


def _table_lines(  # noqa: PLR0917  # what was decided above, step by step
    table: Table,
    lines: Sequence[_Line],
    shown_columns: Sequence[int],
    widths: Sequence[int],
    gap: int,
    left_out: Sequence[int],
    view: View,
) -> list[str]:
    margin = " " * _INDENT
    titles = [(view.printable(table.columns[index].title), Tone.TITLE) for index in shown_columns]
    if _has_marks(table):
        titles[0] = (_MARKS[1] + titles[0][0], Tone.TITLE)
    rule = view.rule * min(view.width - _INDENT, sum(widths) + gap * (len(shown_columns) - 1))
    printed_lines = [
        margin + _join_cells(titles, widths, gap, view),
        margin + view.paint(rule, Tone.DIM),
    ]
    labels = _labels(lines, widths[0], view)
    for line, label in zip(lines, labels, strict=True):
        if line.is_spanning:
            room = view.width - _INDENT - width_of(line.prefix)
            text = view.paint(shorten(line.texts[0], room, view), line.tones[0])
            printed_lines.append(margin + line.prefix + text)
            continue
        cells = [(label or "", line.tones[0])]
        for index, width in zip(shown_columns[1:], widths[1:], strict=True):
            middle = table.columns[index].is_name
            text = shorten(line.texts[index], width, view, middle=middle)
            cells.append((text, line.tones[index]))
        if label is None:  # its short label would equal another one
            label_lines = pieces(line.prefix + line.texts[0], view.width - _INDENT)
            printed_lines += [margin + view.paint(piece, line.tones[0]) for piece in label_lines]
        if label is not None or any(text for text, _ in cells):
            printed_lines.append(margin + _join_cells(cells, widths, gap, view))
        below = "; ".join(line.texts[index] for index in left_out if line.texts[index])
        if below:
            printed_lines += wrap("", below, view, Tone.DIM, indent=_BENEATH)
    return printed_lines


def _labels(lines: Sequence[_Line], width: int, view: View) -> list[str | None]:
    """Return the labels in a width; None for labels that would be equal to another one."""
    short_labels = ["" if line.is_spanning else _short_label(line, width, view) for line in lines]
    names_by_label: dict[str, set[str]] = {}
    for line, label in zip(lines, short_labels, strict=True):
        if not line.is_spanning:
            names_by_label.setdefault(label, set()).add(line.prefix + line.texts[0])
    return [label if len(names_by_label.get(label, ())) < 2 else None for label in short_labels]  # noqa: PLR2004


def _short_label(line: _Line, width: int, view: View) -> str:
    """Return a label in a width, with the guides if part of the name fits after them."""
    room = width - width_of(line.prefix)
    if room < min(_BENEATH, width_of(line.texts[0])):
        return shorten(line.prefix + line.texts[0], width, view, middle=True)
    return line.prefix + shorten(line.texts[0], room, view, middle=True)


def _join_cells(
    cells: Sequence[tuple[str, Tone]], widths: Sequence[int], gap: int, view: View
) -> str:
    parts = []
    last = len(cells) - 1
    for number, ((text, tone), width) in enumerate(zip(cells, widths, strict=True)):
        cell_text = shorten(text, width, view) if number == 0 and len(text) > width else text
        padding = "" if number == last else " " * (width - width_of(cell_text) + gap)
        parts.append(view.paint(cell_text, tone) + padding)
    return "".join(parts).rstrip()


_HANGING: Final = 2
"""The indentation of all lines of a verdict after the first."""


def render(page: Page, view: View) -> str:
    """Return a page as text that ends in a newline; empty for a page without blocks."""
    groups = [list(_group(group, view)) for group in _with_short_paths(page, view).groups]
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in groups if lines)


def _with_short_paths(page: Page, view: View) -> Page:
    """Return a page about one file with a path that fits in a line; several paths stay whole."""
    match page.groups:
        case ((Verdict() as verdict, *blocks),):
            room = view.width - _HANGING - len(":")
            subject = shorten_path(clean(verdict.subject), room, view)
            return page._replace(groups=((verdict._replace(subject=subject), *blocks),))
    return page


def _group(blocks: tuple[Block, ...], view: View) -> Iterator[str]:
    """Yield the lines of blocks, with empty lines around tables and sections."""
    before: Block | None = None
    for block in blocks:
        if before is not None and (
            isinstance(block, Table | Section) or isinstance(before, Table | Section)
        ):
            yield ""
        yield from _block(block, view)
        before = block


def _block(block: Block, view: View) -> list[str]:
    match block:
        case Verdict():
            return _verdict(block, view)
        case Sentence():
            return _wrapped("", block.text, view, block.tone)
        case Command():
            return _command(block, view)
        case Facts():
            return _facts(block, view)
        case Table():
            return table_lines(block, view)
        case Listing():
            return _listing(block, view)
        case Notes():
            return [line for text in block.texts for line in _wrapped("! ", text, view, block.tone)]
        case Section():
            title = view.paint(view.printable(block.title), Tone.TITLE)
            return [title, *_group(block.blocks, view)]
        case Bars() | Curves() | Figures() | Graph() | Profile() | Spreads():
            return []


def _verdict(verdict: Verdict, view: View) -> list[str]:
    """Return the lines of a sentence whose parts have separate tones."""
    last = len(verdict.parts) - 1
    words = [(word, Tone.TITLE) for word in f"{clean(verdict.subject)}:".split(" ")]
    words = words if verdict.subject else []
    for number, part in enumerate(verdict.parts):
        text = view.printable(part.text) + (";" if number < last else "")
        words += [(word, part.tone) for word in text.split(" ")]
    lines: list[list[tuple[str, Tone]]] = [[]]
    used = 0
    for word, tone in words:
        for position, piece in enumerate(pieces(word, view.width - _HANGING)):
            if lines[-1] and (position or used + 1 + width_of(piece) > view.width):
                lines.append([])
                used = _HANGING
            used += bool(lines[-1]) + width_of(piece)
            lines[-1].append((piece, tone))
    return [
        " " * (_HANGING if number else 0) + _paint_words(line, view)
        for number, line in enumerate(lines)
    ]


def _paint_words(words: list[tuple[str, Tone]], view: View) -> str:
    """Return words in their tones; consecutive words with the same tone are painted together."""
    return " ".join(
        view.paint(" ".join(word for word, _ in group), tone)
        for tone, group in groupby(words, key=itemgetter(1))
    )


def _command(command: Command, view: View) -> list[str]:
    label = f"{command.label}: "
    one_line = layout.command(command.words)
    if width_of(label + one_line) + 2 <= view.width:
        return [f"  {view.paint(label, Tone.DIM)}{view.paint(one_line, Tone.GOOD)}"]
    lines = layout.lines(command.words, view.width - 4)
    return [
        f"  {view.paint(label.rstrip(), Tone.DIM)}",
        *(f"    {view.paint(line, Tone.GOOD)}" for line in lines),
    ]


def _listing(block: Listing, view: View) -> list[str]:
    width = max((width_of(item.label) for item in block.items), default=0)
    width += 2 if width else 0
    lines: list[str] = []
    before: str | None = None
    for item in block.items:
        label = item.label if item.label != before else ""
        item_lines = wrap(label.ljust(width), view.printable(item.text), view)
        if label:
            item_lines[0] = item_lines[0].replace(label, view.paint(label, item.tone), 1)
        if item.names:
            item_lines += wrap(
                "", view.printable(item.names_text), view, Tone.DIM, indent=2 + max(2, width)
            )
        lines += item_lines
        before = item.label
    return lines


def _facts(block: Facts, view: View) -> list[str]:
    width = max((width_of(fact.label) for fact in block.facts), default=0) + 2
    return [
        line
        for fact in block.facts
        for line in _wrapped(fact.label.ljust(width), fact.text, view, fact.tone)
    ]


def _wrapped(label: str, text: str, view: View, tone: Tone) -> list[str]:
    return wrap(label, view.printable(text), view, tone)
