"""Tables that fit the width of a terminal."""

from __future__ import annotations

import re
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from policytool.reports.layout import View, clean, width_of
from policytool.reports.page import Cell, Column, Row, Table, Tone
from policytool.reports.terminal import table_lines

WIDE: Final = "層一二三"
PRINTABLE = st.text(
    st.characters(categories=("L", "N", "P", "S"), max_codepoint=0x2FFFF), max_size=40
) | st.text("ab/_1", max_size=80)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def columns_of(line: str) -> int:
    """Return how many columns a line takes on a terminal."""
    return width_of(_ANSI.sub("", line))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Table, View]:
    """Return a table, and a view in which the columns that stay fit."""
    count = draw(st.integers(1, 7))
    columns = tuple(
        Column(
            title=draw(st.text("abcdefgh", min_size=1, max_size=10)),
            minimum=draw(st.integers(1, 15)),
            is_name=draw(st.booleans()),
            priority=draw(st.integers(0, 3)) if number else 0,
            is_beneath=draw(st.booleans()) if number else False,
        )
        for number in range(count)
    )
    is_tree, has_marks = draw(st.booleans()), draw(st.booleans())
    depth = 0
    rows: list[Row] = []
    for _ in range(draw(st.integers(0, 6))):
        depth = draw(st.integers(0, min(depth + 1, 5))) if rows and is_tree else 0
        rows.append(
            Row(
                cells=tuple(
                    Cell(text=draw(PRINTABLE), tone=draw(st.sampled_from(Tone)))
                    for _ in range(count)
                ),
                depth=depth,
                is_missed=has_marks and draw(st.booleans()),
                is_spanning=draw(st.booleans()),
            )
        )
    staying = sum(
        max(column.minimum, len(column.title)) for column in columns if not column.priority
    )
    never_shortened = sum(
        max([0, *(width_of(clean(row.cells[number].text)) for row in rows)])
        for number, column in enumerate(columns)
        if column.is_beneath and not column.priority
    )
    least = staying + never_shortened + 2 * count + 2 + 15
    return Table(columns=columns, rows=tuple(rows)), View(
        width=max(40, least + draw(st.integers(0, 100))),
        colour=draw(st.booleans()),
        unicode=draw(st.booleans()),
    )


@given(tables())
def test_no_line_is_wider_than_the_view(drawn: tuple[Table, View]) -> None:
    """In colour and without."""
    table, view = drawn
    assert max(map(columns_of, table_lines(table, view))) <= view.width


@given(tables())
def test_colour_changes_nothing_but_colour(drawn: tuple[Table, View]) -> None:
    """Without its escape sequences, a coloured table is the plain one."""
    table, view = drawn
    plain = table_lines(table, View(width=view.width, unicode=view.unicode))
    coloured = table_lines(table, View(width=view.width, unicode=view.unicode, colour=True))
    assert [_ANSI.sub("", line).rstrip() for line in coloured] == [line.rstrip() for line in plain]
    assert not any("\x1b" in line for line in plain)


@given(tables())
def test_labels_that_differ_read_differently(drawn: tuple[Table, View]) -> None:
    """However narrow the view: what is printed of two labels is the same only if they are."""
    table, view = drawn
    lines = table_lines(table, View(width=view.width, unicode=view.unicode))
    text = "".join("".join(lines).split())
    for row in table.rows:
        label = view.printable(row.cells[0].text)
        if not row.is_spanning and len(label) * 2 < view.width * 0.6 - 20:
            assert "".join(label.split()) in text


@given(
    st.lists(st.lists(st.text("abc", max_size=30), min_size=3, max_size=3), max_size=5),
    st.integers(30, 100),
)
def test_an_ascii_view_has_only_ascii_decoration(texts: list[list[str]], width: int) -> None:
    columns = tuple(Column(title=title, minimum=3, is_name=True) for title in "xyz")
    rows = tuple(Row(cells=tuple(Cell(text=text) for text in row)) for row in texts)
    table = Table(columns=columns, rows=rows)
    assert all(line.isascii() for line in table_lines(table, View(width=width, unicode=False)))


def of(*rows: tuple[str, ...], columns: tuple[Column, ...], width: int) -> list[str]:
    """Return the lines of a table of these texts."""
    created = tuple(Row(cells=tuple(Cell(text=text) for text in row)) for row in rows)
    return table_lines(Table(columns=columns, rows=created), View(width=width))


NAME: Final = Column(title="name", minimum=4, is_name=True)


def test_columns_line_up() -> None:
    """Each column begins at one place, wide characters counted as two."""
    lines = of(("a", "float32"), (WIDE, "float16"), columns=(NAME, Column(title="dtype")), width=60)
    starts = {
        width_of(line[: line.index(text)])
        for line, text in zip([lines[0], *lines[2:]], ["dtype", "float32", "float16"], strict=True)
    }
    assert len(starts) == 1


def test_column_of_the_lowest_priority_is_left_out_first() -> None:
    """Columns that stay are shortened only afterwards."""
    columns = (NAME, Column(title="compute"), Column(title="class", priority=2, minimum=20))
    row = ("dense", "float32", "BatchNormalization")
    assert "BatchNormalization" in of(row, columns=columns, width=60)[2]
    assert of(row, columns=columns, width=30)[2].split() == ["dense", "float32"]


def test_column_can_move_below_its_row() -> None:
    """The moved text is wrapped and never shortened."""
    columns = (NAME, Column(title="reason", priority=1, is_beneath=True))
    row = ("dense", "its outputs would be larger than float16 can hold")
    assert len(of(row, columns=columns, width=80)) == 3
    narrow = of(row, columns=columns, width=40)
    assert narrow[2].split() == ["dense"]
    assert " ".join(" ".join(narrow[3:]).split()) == row[1]


def test_labels_that_would_become_equal_are_shown_completely() -> None:
    """Such a label has a separate line, with the other cells below."""
    columns = (NAME, Column(title="compute"))
    rows = [(f"{'a' * 40}{number}{'b' * 40}", "float32") for number in range(3)]
    lines = of(*rows, columns=columns, width=60)
    whole = "".join(lines).replace(" ", "")
    assert all(label in whole for label, _ in rows)
    assert max(map(len, lines)) <= 60


def test_a_column_without_text_is_left_out() -> None:
    """If it may be."""
    columns = (NAME, Column(title="notes", priority=1))
    assert "notes" not in of(("a", ""), columns=columns, width=60)[0]
    assert "notes" in of(("a", "b"), columns=columns, width=60)[0]


def test_guides_join_siblings_and_end_at_the_last() -> None:
    """Before each name is what leads to its siblings."""
    rows = tuple(
        Row(cells=(Cell(text=name),), depth=depth)
        for name, depth in (("m", 0), ("a", 1), ("x", 2), ("y", 2), ("b", 1), ("z", 2), ("n", 0))
    )
    table = Table(columns=(NAME,), rows=rows)
    assert [line[2:] for line in table_lines(table, View())[2:]] == [
        "m",
        "├─ a",
        "│  ├─ x",
        "│  └─ y",
        "└─ b",
        "   └─ z",
        "n",
    ]


def test_rows_that_miss_have_a_mark_without_colour() -> None:
    """The others are indented alike."""
    rows = (
        Row(cells=(Cell(text="a"),), is_missed=True),
        Row(cells=(Cell(text="b"),)),
    )
    lines = table_lines(Table(columns=(NAME,), rows=rows), View())
    assert [line[2:] for line in lines[2:]] == ["! a", "  b"]
