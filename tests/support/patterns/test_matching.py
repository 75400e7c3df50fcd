"""Regular expressions that take a number of steps linear in the text."""

from __future__ import annotations

import re
import warnings
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.support import limits
from policytool.support.patterns import matching
from policytool.support.patterns.matching import ExpressionError, Matcher, StepsExceededError
from tests.helpers.cases import for_each

LETTERS: Final = (
    "a",
    "b",
    "A",
    "s",
    "k",
    "/",
    "_",
    "0",
    "\n",
    " ",
    "é",
    "ß",
    "\u017f",
    "\u212a",
    "İ",
)
"""With letters that are equal only if case is ignored: s and the long s, k and kelvin."""

SETS: Final = (
    *(".", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", "^", "$", r"\A", r"\Z", r"\b", r"\B"),
    *("[ab]", "[^a]", "[a-kS]", r"[^\d_/]", "[à-þ]", r"[\W0]", "[^s]", "(?i:[a-c]K)", "(?#c)"),
)
REPEATS: Final = ("*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??", "{1,2}?")
GROUPS: Final = ("(?:", "(", "(?=", "(?!", "(?i:", "(?s:", "(?m:", "(?a:", "(?s-i:")
BEHIND: Final = ("(?<=a)", "(?<!ab)", r"(?<=\b)", "(?<!(?=a))", "(?<=^.)")

patterns: Final = st.builds(
    "{}{}".format,
    st.sampled_from(("", "", "", "(?i)", "(?s)", "(?m)", "(?ai)")),
    st.recursive(
        st.sampled_from(LETTERS + SETS + BEHIND),
        lambda inner: st.one_of(
            st.builds("(?:{}){}".format, inner, st.sampled_from(REPEATS)),
            st.builds("{}{})".format, st.sampled_from(GROUPS), inner),
            st.lists(inner, max_size=4).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        ),
        max_leaves=10,
    ),
)
texts: Final = st.text(alphabet=LETTERS, max_size=10)


@given(pattern=patterns, text=texts)
def test_a_pattern_matches_as_in_python(pattern: str, text: str) -> None:
    """In full and anywhere, with flags, positions, and texts before and after."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = re.compile(pattern)
    matcher = Matcher()
    assert matcher.fullmatch(pattern, text) == (expected.fullmatch(text) is not None)
    assert matcher.search(pattern, text) == (expected.search(text) is not None)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a)\1", "contains backreferences"),
        ("(a)?(?(1)b|c)", "contains conditions on groups"),
        ("(?>a*)", "contains atomic groups"),
        ("a*+", "contains possessive repetitions"),
        ("(", "is not a valid regular expression: missing \\)"),
        ("a{99999999999}", "is not a valid regular expression: the repetition number is too large"),
        ("(" * 2000 + ")" * 2000, "is not a valid regular expression: too many nested groups"),
        ("(a{1,1000}){1,1000}", "above the pattern-size limit"),
        ("a" * 10**6, "above the pattern-size limit"),
        ("|" * 10**6, "above the pattern-size limit"),
    ],
)
def test_other_patterns_are_errors(pattern: str, reason: str) -> None:
    """
    Patterns that no automaton can match, that Python does not accept, or that are too large are
    errors.
    """
    with pytest.raises(ExpressionError, match=reason):
        matching.parse(pattern)


HARD: Final = (
    *(
        ".*.*.*.*x",
        "(a+)+!",
        "(a|a)*b",
        "(a|aa)+b",
        "(a*)*b",
        "a{0,50}a{50}b",
        "(?:.*/)?" * 30 + "x",
    ),
    *("(?=.*b)a*c", "(?!.*a.*a.*b)a*c", r"(\w*\W*)*!", "(?i)(A|a)*b", "(?:a?){60}a{60}b"),
)


@for_each("pattern", HARD)
@for_each("full", [True, False])
def test_steps_are_linear_in_the_text(pattern: str, *, full: bool) -> None:
    """Python takes a number of steps that is a power of the length, or exponential."""

    def steps(length: int) -> int:
        matcher = Matcher()
        text = "a" * length
        assert not (matcher.fullmatch if full else matcher.search)(pattern, text)
        return matcher.steps

    few, some, many = (steps(length) for length in (1_000, 2_000, 4_000))
    assert many - some <= 2 * (some - few) + 100


@pytest.mark.parametrize(
    "pattern",
    ["(?i)" + "".join(f"[\x00-{chr(end)}]" for end in range(0xFF00, 0xFF60)), "(?:a?){700}a{700}"],
)
def test_steps_have_a_limit(pattern: str) -> None:
    """The limit includes the steps in which Python compiles sets of characters."""
    with (
        limits.override({limits.PATTERN_STEPS.name: 1_000_000}),
        pytest.raises(StepsExceededError, match="at least 1000001 steps, above the pattern-steps"),
    ):
        Matcher().fullmatch(pattern, "a" * 5_000)


def test_steps_of_all_patterns_are_counted_together() -> None:
    with limits.override({limits.PATTERN_STEPS.name: 10_000}):
        matcher = Matcher()
        for number in range(20):
            assert not matcher.fullmatch("a*b", f"a{number}")
        many = (matcher.fullmatch("a*b", "aaa") for _ in range(10_000))
        with pytest.raises(StepsExceededError):
            any(many)
