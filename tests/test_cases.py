"""Many cases in one test are as good as many tests."""

from __future__ import annotations

import pytest

from tests.helpers.cases import CASES, for_each


def errors(group: BaseException) -> list[tuple[str, list[str]]]:
    """Return the message and the notes of each error in a group, and in the groups within it."""
    if isinstance(group, BaseExceptionGroup):
        return [
            (message, [*notes, *getattr(group, "__notes__", ())])
            for error in group.exceptions
            for message, notes in errors(error)
        ]
    return [(str(group).partition("\n")[0], list(group.__notes__))]


def test_every_failing_case_is_named() -> None:
    @for_each(("number", "text"), [(1, "a"), (2, "b"), (3, "c")])
    def is_two(number: int, text: str) -> None:
        if number != 2:
            raise AssertionError(text)

    with pytest.raises(BaseExceptionGroup, match="2 of 3 cases failed") as caught:
        is_two()
    assert errors(caught.value) == [
        ("a", ["case: number=1, text='a'"]),
        ("c", ["case: number=3, text='c'"]),
    ]


def test_a_case_can_have_a_short_name() -> None:
    """A case can have a name, as a parameter has an id."""

    @for_each("number", [3], ids=lambda number: f"number {number}")
    def fail(number: int) -> None:
        raise ValueError(number)

    with pytest.raises(BaseExceptionGroup) as caught:
        fail()
    assert errors(caught.value) == [("3", ["case: number 3"])]


def test_stacked_cases_are_all_combinations() -> None:
    """Each error has both names, and the count is the product."""
    seen = []

    @for_each("first", [1, 2])
    @for_each("second", "ab")
    def collect(first: int, second: str) -> None:
        seen.append((first, second))
        if second == "b":
            pytest.fail("no")

    assert getattr(collect, CASES) == 4
    with pytest.raises(BaseExceptionGroup) as caught:
        collect()
    assert seen == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert errors(caught.value) == [
        ("no", ["case: second='b'", f"case: first={number}"]) for number in (1, 2)
    ]


def test_skipped_case_is_an_error() -> None:
    """A skip would leave out the other cases."""

    @for_each("number", [1, 2])
    def skip(number: int) -> None:
        pytest.skip(f"{number}")

    with pytest.raises(BaseExceptionGroup, match="2 of 2 cases failed"):
        skip()


@for_each("number", [1, 2])
def test_fixtures_are_those_of_the_function(number: int, tmp_path: object) -> None:
    """The cases are not fixtures."""
    assert number in {1, 2}
    assert tmp_path is not None
