"""Pages as text for a terminal of a width, in colour or without."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from policytool.reports import shell
from policytool.reports.layout import clean, pieces, width_of, wrap
from policytool.reports.page import (
    Bars,
    Command,
    Curves,
    Facts,
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
from policytool.reports.tables import table_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.reports.layout import View
    from policytool.reports.page import Block, Page


_HANGING: Final = 2
"""Where the further lines of a verdict begin."""


def render(page: Page, view: View) -> str:
    """Return a page as text that ends in a newline; nothing for a page without blocks."""
    groups = [list(_group(group, view)) for group in page.groups]
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in groups if lines)


def _group(blocks: tuple[Block, ...], view: View) -> Iterator[str]:
    """Yield the lines of blocks; tables, sections and what follows them are set off."""
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
        case Bars() | Curves() | Profile() | Spreads():
            return []


def _verdict(verdict: Verdict, view: View) -> list[str]:
    """Return a sentence whose parts have tones of their own, in lines."""
    last = len(verdict.parts) - 1
    words = [(word, Tone.TITLE) for word in f"{clean(verdict.subject)}:".split(" ")]
    words = words if verdict.subject else []
    for number, part in enumerate(verdict.parts):
        text = view.printable(part.text) + (";" if number < last else "")
        words += [(word, part.tone) for word in text.split(" ")]
    lines: list[list[tuple[str, Tone]]] = [[]]
    used = 0
    for word, tone in words:
        for piece in pieces(word, view.width - _HANGING):
            if lines[-1] and used + 1 + width_of(piece) > view.width:
                lines.append([])
                used = _HANGING - 1
            lines[-1].append((piece, tone))
            used += width_of(piece) + bool(used)
    return [
        " " * (_HANGING if number else 0) + _painted(line, view)
        for number, line in enumerate(lines)
    ]


def _painted(words: list[tuple[str, Tone]], view: View) -> str:
    """Return words in their tones, those of one tone painted together."""
    return " ".join(
        view.paint(" ".join(word for word, _ in group), tone)
        for tone, group in groupby(words, key=itemgetter(1))
    )


def _command(command: Command, view: View) -> list[str]:
    label = f"{command.label}: "
    whole = shell.command(command.words)
    if width_of(label + whole) + 2 <= view.width:
        return [f"  {view.paint(label, Tone.DIM)}{view.paint(whole, Tone.GOOD)}"]
    lines = shell.lines(command.words, view.width - 4)
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
                "", view.printable(item.names), view, Tone.DIM, indent=2 + max(2, width)
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
