"""
Pages as GitHub-flavoured Markdown, for pull requests and model cards.

The viewer does the layout: nothing is shortened, and only columns without any text are left out.

Text from files must not have an effect as markup. Escaping by backslash is not sufficient: GitHub
turns ``@name``, ``#1`` and addresses into links after it rendered Markdown, and parsers disagree on
a backslash before a pipe. Code is not affected, so that all text except plain words becomes code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.reports import layout
from policytool.reports.layout import clean
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

    from policytool.reports.page import Block, Column, Item, Page, Row


_PLAIN: Final = re.compile(r"(?:[^\W_]|[.,;'\"()/%+=!?·→-])*")
"""Letters, digits, and punctuation that is not markup within a line."""

_BLOCK: Final = re.compile(r"(?:\d+[.)]|[-+=]+)(?= |$)")
"""Text that would start a list or underline a heading at the start of a sentence."""

_LINK: Final = re.compile(r"(?i)www\.|\bGH-\d")
"""Text that GitHub turns into a link, except ``://`` and ``@``, which are not plain."""

_STOPS: Final = ".,;:"
_IN_SPAN: Final = re.compile(r"[^`|\\&<>]*")


def code(text: str) -> str:
    """
    Return text as code: between backticks if the text is also safe in a table cell, otherwise as an
    element with numeric references instead of special characters.
    """
    safe = clean(text)
    if not safe:
        return ""
    if _IN_SPAN.fullmatch(safe) and safe == safe.strip():
        return f"`{safe}`"
    return f"<code>{''.join(char if char.isalnum() else f'&#{ord(char)};' for char in safe)}</code>"


def name(text: str) -> str:
    """Return a name unchanged if it is a plain word, and as code otherwise."""
    is_plain = _PLAIN.fullmatch(text) is not None and not _LINK.search(text)
    return text if is_plain else code(text)


def prose(text: str) -> str:
    """Return a sentence whose plain words are unchanged and whose other words are code."""
    safe = clean(text)
    block_start = _BLOCK.match(safe)
    if block_start:
        return code(block_start[0]) + prose(safe[block_start.end() :])
    pieces = layout.SPAN.split(safe)  # the pieces with odd indices were between backticks
    return "".join(
        code(piece) if position % 2 else " ".join(_word(word) for word in piece.split(" "))
        for position, piece in enumerate(pieces)
    )


def row(cells: Sequence[str]) -> str:
    """Return a row of a table from cells in Markdown."""
    return f"| {' | '.join(cells)} |"


def _word(word: str) -> str:
    """Return a word as code if it is a name, without its punctuation."""
    core = word.rstrip(_STOPS)
    head, opening, arguments = core.partition("(")
    if opening and ")" not in arguments:  # the list of arguments continues in the next word
        text = f"{name(head)}({name(arguments)}"
    elif core.endswith(")") and not opening:
        text = f"{name(core[:-1])})"
    else:
        text = name(core)
    return text + word[len(core) :]


_LOUD: Final = frozenset({Tone.BAD, Tone.CAUTION})


def render(page: Page) -> str:
    """Return a page as text that ends in a newline; empty for a page without blocks."""
    groups = ["\n".join(_blocks(group)) + "\n" for group in page.groups if group]
    if page.failures:
        lines = [f"- {code(fact.label)} {prose(fact.text)}" for fact in page.failures]
        groups.append("\n".join(["**errors**", "", *lines]) + "\n")
    return "\n".join(groups)


def _blocks(blocks: tuple[Block, ...]) -> Iterator[str]:
    """Yield the lines of blocks, with an empty line between them if Markdown needs it."""
    before: Block | None = None
    for block in blocks:
        if before is not None and not (_is_list(block) and _is_list(before)):
            yield ""
        yield from _block(block)
        before = block


def _is_list(block: Block) -> bool:
    return isinstance(block, Facts | Listing | Notes | Command)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Verdict():
            if block.subject:
                yield f"### {code(block.subject)}"
                yield ""
            yield f"**{prose(block.text)}**"
        case Sentence():
            yield prose(block.text)
        case Table():
            yield from _table(block)
        case Section():
            yield f"**{prose(block.title)}**"
            yield ""
            yield from _blocks(block.blocks)
        case Bars() | Curves() | Figures() | Graph() | Profile() | Spreads():
            pass
        case _:
            yield from (f"- {entry}" for entry in _entries(block))


def _entries(block: Command | Facts | Listing | Notes) -> Iterator[str]:
    """Yield the entries of a block that becomes a list."""
    match block:
        case Command():
            yield f"**{block.label}** {code(layout.command(block.words))}"
        case Facts():
            for fact in block.facts:
                yield f"**{fact.label}** {prose(fact.text)}" if fact.label else prose(fact.text)
        case Listing():
            yield from map(_item, block.items)
        case Notes():
            yield from map(prose, block.texts)


def _item(item: Item) -> str:
    """Return an item of a list."""
    label = f"**{item.label}** " if item.label else ""
    return f"{label}{prose(item.text)}" + (f": {code(item.names_text)}" if item.names else "")


def _table(table: Table) -> Iterator[str]:
    indices = table.shown
    columns = [table.columns[index] for index in indices]
    yield row([column.title for column in columns])
    yield row(["---"] * len(columns))
    yield from (row(list(_cells(table_row, indices, columns))) for table_row in table.rows)


def _cells(table_row: Row, indices: Sequence[int], columns: Sequence[Column]) -> Iterator[str]:
    """Yield the cells of a row: names as code, and warnings in bold."""
    for index, column in zip(indices, columns, strict=True):
        cell = table_row.cells[index]
        text = cell.whole or cell.text
        is_code = column.is_name if cell.is_code is None else cell.is_code
        shown_text = code(text) if is_code else prose(text)
        is_loud = shown_text and (cell.tone in _LOUD or (table_row.is_missed and not index))
        yield f"**{shown_text}**" if is_loud else shown_text
