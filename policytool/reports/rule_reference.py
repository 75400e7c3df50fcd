"""
What the reference says of a rule, from the docstring of its function: at the terminal, as Markdown,
and as JSON values.

The docstrings are plain text with a little of reStructuredText: paragraphs, lists, indented blocks,
and code between double backticks.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from policytool.reports.layout import wrap
from policytool.rules import FAMILIES, RULES
from policytool.rules.base import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.reports.layout import View
    from policytool.rules import Rule

_CODE: Final = re.compile(r"``(.+?)``|:\w+:`~?([^`]+)`", re.DOTALL)
_ADDRESS: Final = re.compile(r"(https?://[^\s,;()]*[^\s,;().])")
_MARKUP: Final = re.compile(r"[\\`*\[\]<>#|~]|(?<![^\W_])_|_(?![^\W_])")
_RULED: Final = re.compile(r"=+( +=+)+")
"""The lines of a simple table, which keeps its own layout."""

FIXES: Final = {
    None: "no fix",
    "safe": "safe fix (predictions unchanged)",
    "unsafe": "unsafe fix (numerics or training change)",
}


_STYLES: Final = {Severity.ERROR: "bad", Severity.WARNING: "half", Severity.NOTE: "dim"}
_WIDE: Final = 120
"""Columns of a terminal in which the summary of a rule is beside its name."""


class BlockKind(Enum):
    """What a block of text is."""

    PARAGRAPH = auto()
    ITEM = auto()
    LITERAL = auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A piece of a docstring."""

    kind: BlockKind
    text: str


def blocks(doc: str) -> list[Block]:
    """Return the paragraphs, list items and indented blocks of a docstring."""
    doc_blocks: list[Block] = []
    for part in re.split(r"\n[ \t]*\n", textwrap.dedent(doc).strip("\n")):
        lines = part.rstrip().splitlines()
        if all(line.startswith(" ") for line in lines) or any(
            _RULED.fullmatch(line.strip()) for line in lines
        ):
            doc_blocks.append(Block(kind=BlockKind.LITERAL, text=textwrap.dedent(part.rstrip())))
        else:
            doc_blocks += _flowing(lines)
    return doc_blocks


def _flowing(lines: list[str]) -> Iterator[Block]:
    """Yield a part's paragraph and items, each in one line."""
    kind, words = BlockKind.PARAGRAPH, list[str]()
    for line in lines:
        item = line.lstrip().startswith(("- ", "* "))
        if item or (kind is BlockKind.ITEM and not line.startswith(" ")):
            if words:
                yield Block(kind=kind, text=" ".join(words))
            kind, words = BlockKind.ITEM if item else BlockKind.PARAGRAPH, []
        words.append(line.strip()[2:].strip() if item else line.strip())
    text = " ".join(words)
    yield Block(kind=kind, text=f"{text[:-2].rstrip()}:" if text.endswith("::") else text)


def plain(text: str) -> str:
    """Return text with its code between single backticks."""
    return _CODE.sub(lambda match: f"`{match[1] or match[2]}`", text)


def markdown(text: str) -> str:
    """Return text as Markdown: code as code, addresses as links, and nothing else as markup."""
    pieces = []
    end = 0
    for match in _CODE.finditer(text):
        pieces += [_escape(text[end : match.start()]), f"`{match[1] or match[2]}`"]
        end = match.end()
    return "".join([*pieces, _escape(text[end:])])


def _escape(text: str) -> str:
    pieces = _ADDRESS.split(text)  # every second one is an address
    return "".join(
        f"<{piece}>" if position % 2 else _MARKUP.sub(r"\\\g<0>", piece)
        for position, piece in enumerate(pieces)
    )


def family(rule: Rule) -> tuple[str, str]:
    """Return the name of a rule's family, and what it is about."""
    name, about, _ = FAMILIES[rule.id[:3]]
    return name, about


def anchor(rule: Rule) -> str:
    """Return the anchor of a rule's heading on the page of rules."""
    return f"{rule.id.lower()}-{rule.name}"


def facts(rule: Rule) -> tuple[str, ...]:
    """Return a rule's severity, family, fix, and the option that it needs, in words."""
    needs = (f"needs {rule.needs.value}",) if rule.needs else ()
    return (
        rule.severity.value,
        family(rule)[0],
        FIXES[rule.fix.value if rule.fix else None],
        *needs,
    )


def values(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON values."""
    return {
        "id": rule.id,
        "name": rule.name,
        "family": family(rule)[0],
        "severity": rule.severity.value,
        "fix": rule.fix.value if rule.fix else None,
        "needs": rule.needs.value if rule.needs else None,
        "summary": plain(rule.summary),
        "description": as_text(rule.doc),
        "example": rule.example,
        "references": list(rule.references),
    }


def as_text(doc: str) -> str:
    """Return a docstring as plain text, a line per paragraph and item."""
    return _join((block.kind, _TEXTS[block.kind].format(_text(block))) for block in blocks(doc))


_TEXTS: Final = {BlockKind.PARAGRAPH: "{}", BlockKind.ITEM: "- {}", BlockKind.LITERAL: "{}"}


def _text(block: Block) -> str:
    return (
        textwrap.indent(block.text, "    ")
        if block.kind is BlockKind.LITERAL
        else plain(block.text)
    )


def as_markdown(rule: Rule) -> str:
    """Return what the reference says of a rule below its heading, as Markdown without HTML."""
    facts_line = f"*{' · '.join(facts(rule))}*"
    about = ((block.kind, _block_markdown(block)) for block in blocks(rule.doc))
    return (
        _join(
            [
                (BlockKind.PARAGRAPH, facts_line),
                *about,
                (BlockKind.PARAGRAPH, "Example:"),
                (BlockKind.LITERAL, _fence(rule.example)),
            ]
        )
        + "\n"
    )


def _block_markdown(block: Block) -> str:
    return (
        _fence(block.text)
        if block.kind is BlockKind.LITERAL
        else _TEXTS[block.kind].format(markdown(block.text))
    )


def _fence(text: str) -> str:
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`+", text))])
    return f"{fence}text\n{text.strip()}\n{fence}"


def as_lines(rule: Rule, view: View) -> list[str]:
    """Return the whole reference of a rule for a terminal."""
    separator = " · " if view.unicode else " - "
    lines = [
        view.paint(f"{rule.id} {rule.name}", "title"),
        *wrap("", separator.join(facts(rule)), view, "dim"),
        "",
    ]
    text = _join((block.kind, "\n".join(_lines(block, view))) for block in blocks(rule.doc))
    return [
        *lines,
        *text.split("\n"),
        "",
        f"  {view.paint('Example', 'title')}",
        *_lines(Block(kind=BlockKind.LITERAL, text=rule.example.strip()), view),
    ]


def list_lines(view: View) -> list[str]:
    """
    Return a line for each rule, with its summary beside it if the terminal is wide, and below it if
    not.
    """
    longest = max(len(rule.name) for rule in RULES)
    column = "finding" if view.width >= _WIDE else ""
    title = f"  {'id':7}{'name':{longest + 2}}{'severity':10}{'fix':8}{column}"
    lines = [view.paint(title.rstrip(), "title")]
    for rule in RULES:
        fix = rule.fix.value if rule.fix else ""
        label = f"{rule.id:7}{rule.name:{longest + 2}}{rule.severity.value:10}{fix:8}"
        summary = plain(rule.summary) + (f" Needs {rule.needs.value}." if rule.needs else "")
        rows = (
            wrap(label, summary, view)
            if view.width >= _WIDE
            else [f"  {label}".rstrip(), *wrap("", summary, view, "dim", indent=9)]
        )
        lines += [
            rows[0].replace(
                rule.severity.value, view.paint(rule.severity.value, _STYLES[rule.severity]), 1
            ),
            *rows[1:],
        ]
    hint = (
        "`policytool explain ID` explains a rule, with sources and an example. A safe fix leaves "
        "predictions unchanged; an unsafe fix changes numerics or training."
    )
    return [*lines, "", *wrap("", hint, view, "dim")]


def _lines(block: Block, view: View) -> list[str]:
    if block.kind is not BlockKind.LITERAL:
        return wrap("- " * (block.kind is BlockKind.ITEM), plain(block.text), view)
    return [
        line
        for text in block.text.splitlines()
        for line in wrap("", text.lstrip(), view, indent=4 + len(text) - len(text.lstrip()))
    ]


def _join(pieces: Iterable[tuple[BlockKind, str]]) -> str:
    """
    Return pieces as one text: the items of a list below each other, an empty line between all
    others.
    """
    text, previous = "", None
    for kind, piece in pieces:
        text += (
            "" if previous is None else "\n" if kind is previous is BlockKind.ITEM else "\n\n"
        ) + piece
        previous = kind
    return text
