"""Text that fits: widths, shortening, wrapping, escaping."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policytool.reports.layout import View, clean, shorten, width_of, wrap

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
def test_shortened_text_fits_the_width(
    text: str,
    width: int,
    view: View,
    middle: bool,  # noqa: FBT001
) -> None:
    """Text that already fits is unchanged."""
    result = shorten(text, width, view, middle=middle)
    assert width_of(result) <= width
    if width_of(text) <= width:
        assert result == text


@given(st.text("abc/_0", min_size=1, max_size=60), st.integers(5, 59), VIEWS)
def test_shortening_in_the_middle_keeps_both_ends(text: str, width: int, view: View) -> None:
    """Both ends and one ellipsis fill the width."""
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


@given(
    st.lists(st.text("abcdef", min_size=1, max_size=12), min_size=1, max_size=30),
    st.integers(40, 120),
    st.text("label ", max_size=8),
)
def test_wrapped_text_keeps_all_words_and_fits_the_width(
    words: list[str], width: int, label: str
) -> None:
    """Lines break at spaces, and further lines start below the text."""
    lines = wrap(label, " ".join(words), View(width=width))
    start = len("  " + label)
    assert " ".join(line[start:] for line in lines).split() == words
    assert all(len(line) <= width for line in lines)
    assert all(line[:start].strip() == "" for line in lines[1:])


@pytest.mark.parametrize("width", range(40, 60))
def test_a_shape_stays_on_one_line(width: int) -> None:
    lines = wrap(
        "", "serving_default(x: float32 (?, 43844, 1)) -> y: float32 (?, 2)", View(width=width)
    )
    assert [line.count("(?") for line in lines] == [
        len(re.findall(r", \d\)", line)) for line in lines
    ]


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
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    """Escapes have the notation of Python."""
    assert clean(text) == shown


@pytest.mark.parametrize("text", ["dense_a", "層一", "naïve", "a b", "ключ"])
def test_text_for_the_eye_stays(text: str) -> None:
    """Names in any script are shown as they are."""
    assert clean(text) == text
