"""Tables that fit: widths, shortening, wrapping, escaping."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policytool.reports import layout
from policytool.reports.layout import Cell, Column, View, clean, shorten, table, width_of, wrap

WIDE = "层一二三"
PRINTABLE = st.text(
    st.characters(categories=("L", "N", "P", "S"), max_codepoint=0x2FFFF), max_size=40
) | st.text("ab/_1", max_size=80)
VIEWS = st.builds(View, width=st.integers(20, 200), colour=st.booleans(), unicode=st.booleans())
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def columns_of(line: str) -> int:
    """Return how many columns a line takes on a terminal."""
    return width_of(_ANSI.sub("", line))


@given(PRINTABLE, st.integers(0, 60), VIEWS, st.booleans())
@example(WIDE, 3, View(), True)
@example("a" * 10, 2, View(unicode=False), True)
@example("ab" + WIDE, 0, View(), False)
def test_shortened_text_never_takes_more_than_its_width(
    text: str,
    width: int,
    view: View,
    middle: bool,  # noqa: FBT001
) -> None:
    """Whatever the text and the width, the result fits; text that fits stays as it is."""
    result = shorten(text, width, view, middle=middle)
    assert width_of(result) <= width
    if width_of(text) <= width:
        assert result == text


@given(st.text("abc/_0", min_size=1, max_size=60), st.integers(5, 59), VIEWS)
def test_shortening_in_the_middle_keeps_both_ends(text: str, width: int, view: View) -> None:
    """
    First and last characters stay, one ellipsis stands for the rest, and no column is given away.
    """
    result = shorten(text, width, view, middle=True)
    if len(text) > width:
        assert result.count(view.ellipsis) == 1
        head, tail = result.split(view.ellipsis)
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(result) == width
        assert abs(len(head) - len(tail)) <= 1


@given(st.text("abc/_0", min_size=8, max_size=60), st.integers(4, 59), VIEWS)
def test_shortening_at_the_end_keeps_the_beginning(text: str, width: int, view: View) -> None:
    """The beginning and an ellipsis fill the width."""
    result = shorten(text, width, view)
    if len(text) > width:
        assert result == text[: width - len(view.ellipsis)] + view.ellipsis


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[Cell]], View]:
    """Return columns, rows and a view in which the least widths fit."""
    count = draw(st.integers(1, 7))
    titles = [draw(st.text("abcdefgh", min_size=1, max_size=10)) for _ in range(count)]
    columns = [
        Column(title=title, minimum=draw(st.integers(1, 15)), middle=draw(st.booleans()))
        for title in titles
    ]
    styles = st.sampled_from(sorted(layout.STYLES))
    rows = draw(
        st.lists(
            st.lists(
                st.builds(Cell, text=PRINTABLE, style=styles, before=st.text("│├─", max_size=12)),
                min_size=count,
                max_size=count,
            ),
            max_size=6,
        )
    )
    least = sum(max(column.minimum, len(column.title)) for column in columns) + count - 1 + 2
    return (
        columns,
        rows,
        View(
            width=least + draw(st.integers(0, 100)),
            colour=draw(st.booleans()),
            unicode=draw(st.booleans()),
        ),
    )


@given(tables())
def test_no_line_is_wider_than_the_view(drawn: tuple[list[Column], list[list[Cell]], View]) -> None:
    """Where the least widths fit, every line does, in colour and without."""
    columns, rows, view = drawn
    lines = table(columns, rows, view)
    assert len(lines) == len(rows) + 2
    assert max(map(columns_of, lines)) <= view.width


@given(tables())
def test_colour_changes_nothing_but_colour(
    drawn: tuple[list[Column], list[list[Cell]], View],
) -> None:
    """Without its escape sequences, a coloured table is the plain one."""
    columns, rows, view = drawn
    plain = table(columns, rows, View(width=view.width, unicode=view.unicode))
    coloured = table(columns, rows, View(width=view.width, unicode=view.unicode, colour=True))
    assert [_ANSI.sub("", line).rstrip() for line in coloured] == [line.rstrip() for line in plain]
    assert not any("\x1b" in line for line in plain)


@given(
    st.lists(st.lists(st.text("abc", max_size=30), min_size=3, max_size=3), max_size=5),
    st.integers(20, 100),
)
def test_ascii_view_has_ascii_decoration_alone(texts: list[list[str]], width: int) -> None:
    """From ASCII text a view without box characters makes ASCII lines."""
    columns = [Column(title=title, minimum=3, middle=True) for title in "xyz"]
    lines = table(
        columns,
        [[Cell(text=text) for text in row] for row in texts],
        View(width=width, unicode=False),
    )
    assert all(line.isascii() for line in lines)


@given(tables())
def test_room_is_not_given_away(drawn: tuple[list[Column], list[list[Cell]], View]) -> None:
    """No cell is shortened while its table is narrower than the view."""
    columns, rows, view = drawn
    plain = View(width=view.width, unicode=view.unicode)
    lines = table(columns, rows, plain)
    natural = [
        max([len(column.title), *(width_of(row[index].before + row[index].text) for row in rows)])
        for index, column in enumerate(columns)
    ]
    if sum(natural) + 2 * (len(columns) - 1) + 2 <= view.width:
        for row, line in zip(rows, lines[2:], strict=True):
            assert all(cell.before + cell.text in line for cell in row)


def test_columns_line_up() -> None:
    """Each column begins at one place, wide characters counted as two."""
    columns = [Column(title="name", minimum=4), Column(title="dtype", minimum=5)]
    rows = [[Cell(text="a"), Cell(text="float32")], [Cell(text=WIDE), Cell(text="float16")]]
    lines = table(columns, rows, View(width=60))
    starts = {
        width_of(line[: line.index(text)])
        for line, text in zip([lines[0], *lines[2:]], ["dtype", "float32", "float16"], strict=True)
    }
    assert len(starts) == 1


def test_widest_column_gives_way_first() -> None:
    """A short column keeps its text while a long one is shortened, none below its minimum."""
    columns = [Column(title="path", minimum=10, middle=True), Column(title="dtype", minimum=5)]
    line = table(columns, [[Cell(text="p" * 80), Cell(text="float32")]], View(width=40))[2]
    assert line.endswith("float32")
    assert len(line) == 40


@given(
    st.lists(st.text("abcdef", min_size=1, max_size=12), min_size=1, max_size=30),
    st.integers(40, 120),
    st.text("label ", max_size=8),
)
def test_wrapped_text_keeps_its_words_and_the_width(
    words: list[str], width: int, label: str
) -> None:
    """Lines are broken at spaces, further ones begin below the text, and no word is lost."""
    lines = wrap(label, " ".join(words), View(width=width))
    start = len("  " + label)
    assert " ".join(line[start:] for line in lines).split() == words
    assert all(len(line) <= width for line in lines)
    assert all(line[:start].strip() == "" for line in lines[1:])


@given(st.text())
def test_clean_text_is_printable(text: str) -> None:
    """No character that a terminal acts on is left."""
    assert clean(text).isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31m", r"a\x1b[31m"),
        ("a\nb", r"a\nb"),
        ("a\tb", r"a\tb"),
        ("a\x7f\x9b", r"a\x7f\x9b"),
    ],
)
def test_control_characters_are_shown_by_their_codes(text: str, shown: str) -> None:
    """Escapes look like Python's."""
    assert clean(text) == shown


@pytest.mark.parametrize("text", ["dense_a", "層一", "naïve", "a b", "ключ"])
def test_text_for_the_eye_stays(text: str) -> None:
    """Names in any script are shown as they are."""
    assert clean(text) == text
