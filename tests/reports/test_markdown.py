"""The report for pull requests and model cards."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from policytool.reports import View
from policytool.reports.inspection import REPORTERS
from policytool.reports.layout import clean
from policytool.reports.markdown import code, prose
from tests.contracts.reporter_contract import compared, inspected, named
from tests.helpers.drawn_models import models, scopes, traced_in, whole
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from policytool.commands.inspect import SelectedInspection

MARKDOWN = named(REPORTERS, "markdown")


def test_golden_file_of_traced_dtypes() -> None:
    """The file has a signature that contradicts its layers, and scopes without layers."""
    compared(
        MARKDOWN.render(whole(traced_in("float32"), scopes()), View(variables=True)), "traced.md"
    )


def tables(text: str) -> list[list[str]]:
    """Return the report's tables as their lines."""
    actual: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            actual[-1].append(line)
        elif actual[-1]:
            actual.append([])
    return [lines for lines in actual if lines]


def cells(line: str) -> list[str]:
    """Return a row's cells; no pipe within one is left, escaped or not."""
    assert "\\|" not in line
    assert line.startswith("| ")
    assert line.endswith(" |")
    return line[2:-2].split(" | ")


@THOROUGH
@given(models(), st.booleans())
def test_every_row_has_as_many_cells_as_the_header(
    selected: SelectedInspection,
    variables: bool,  # noqa: FBT001
) -> None:
    """For any names, no cell begins another cell or ends the table."""
    text = MARKDOWN.render(selected, View(variables=variables))
    (model,) = selected.inspection.models
    result = tables(text)
    assert len(result) == bool(model.layers)
    for table in result:
        assert len(table) == 2 + len(model.layers) + variables * sum(
            len(layer.variables) for layer in model.layers
        )
        assert {len(line.split("|")) for line in table} == {len(table[0].split("|"))}
        assert cells(table[1]) == ["---"] * len(cells(table[0]))


def read(text: str) -> tuple[str, list[list[str]]]:
    """Return the heading and the rows of tables, as a parser of GitHub's Markdown reads them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    headings, rows = [], list[list[str]]()
    for position, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            result = "".join(
                child.content
                for child in token.children or []
                if child.type in {"text", "text_special", "code_inline"}
            )
            opened = tokens[position - 1].type
            if opened == "heading_open":
                headings.append(result)
            elif opened in {"td_open", "th_open"}:
                rows[-1].append(result)
    assert len(headings) == 1
    return headings[0], rows


@THOROUGH
@given(models())
def test_markdown_parser_reads_names_unchanged(selected: SelectedInspection) -> None:
    """The heading is the path, and each row begins with the path and the class of a layer."""
    (model,) = selected.inspection.models
    heading, rows = read(MARKDOWN.render(selected, View()))
    assert heading == clean(model.path)
    assert [row[0] for row in rows[1:]] == [clean(layer.path) for layer in model.layers]
    if rows and rows[0][1] == "class":
        assert [row[1] for row in rows[1:]] == [
            clean(layer.class_name or "") for layer in model.layers
        ]


@THOROUGH
@given(models())
def test_no_markup_of_a_file_is_left(selected: SelectedInspection) -> None:
    """Outside code there are our own emphasis and nothing that Markdown, HTML or GitHub acts on."""
    for line in MARKDOWN.render(selected, View()).splitlines():
        text = re.sub(r"<code>[^<>`|]*</code>", "", line)
        text = re.sub(r"`[^`|<>&\\]+`", "", text)
        text = re.sub(r"^(### |- |\| )", "", text)
        text = re.sub(r"^\*\*(.*)\*\*$", r"\1", text)  # the verdict
        text = re.sub(r"\*\*([^*]+)\*\*", r"\1", text)
        assert not set(text) & set("`*_<>[]{}\\@#~&"), line
        assert "www." not in text.lower()


@given(st.text(min_size=1))
def test_code_keeps_the_text(text: str) -> None:
    """The unescaped code is the text with escaped control characters."""
    result = code(text)
    inner = (
        result.removeprefix("<code>").removesuffix("</code>")
        if result.startswith("<code>")
        else result[1:-1]
    )
    assert (html.unescape(inner) if result.startswith("<code>") else inner) == clean(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("dense_a", "`dense_a`"),
        ("a|b", "<code>a&#124;b</code>"),
        ("a`b", "<code>a&#96;b</code>"),
        ("a\\", "<code>a&#92;</code>"),
        ("a\nb", "<code>a&#92;nb</code>"),
        ("<b>", "<code>&#60;b&#62;</code>"),
        (" a", "<code>&#32;a</code>"),
        ("@someone", "`@someone`"),
        ("", ""),
    ],
)
def test_names_are_written_as_code(text: str, shown: str) -> None:
    """Backticks are used if every parser keeps the text, and numbered characters otherwise."""
    assert code(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "2 layers, which `policytool migrate` writes; x",
            "2 layers, which `policytool migrate` writes; x",
        ),
        ("the link dense_a, and that", "the link `dense_a`, and that"),
        ("by @someone in #1", "by `@someone` in `#1`"),
        ("see https://x.y or www.x.y", "see `https://x.y` or `www.x.y`"),
        ("1. first - *second* 2.", "`1.` first - `*second*` 2."),
        ("- first", "`-` first"),
        ("===", "`===`"),
        ("a (128) b", "a (128) b"),
        (":smile: GH-12", "`:smile`: `GH-12`"),
        ("2x", "2x"),
        ("serving_default(features: float32, b_c)", "`serving_default`(features: float32, `b_c`)"),
        ("a f_x(y_z) b", "a `f_x(y_z)` b"),
        ("a ` b", "a <code>&#96;</code> b"),
    ],
)
def test_special_words_of_sentences_become_code(text: str, shown: str) -> None:
    """GitHub neither notifies users nor creates links from the text of a file."""
    assert prose(text) == shown


@given(st.text("ab_", max_size=5000))
def test_long_words_do_not_backtrack(text: str) -> None:
    """The time grows with the length of the word."""
    assert prose(text + "_")


def test_empty_columns_are_left_out() -> None:
    """The columns stored, traced and notes are present if a layer has such a value."""
    plain = MARKDOWN.render(inspected("keras2.2.4/nested_models.h5"), View())
    assert cells(tables(plain)[0][0]) == [
        "layer",
        "class",
        "policy",
        "compute",
        "variable",
        "source",
    ]
    assert "traced" in cells(tables(MARKDOWN.render(whole(traced_in("float32")), View()))[0][0])
