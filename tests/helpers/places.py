"""The places of the values in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Steps = tuple[str | int, ...]
"""Keys of objects and positions in lists."""


def places(value: Any, steps: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Yield every value in a value with its steps, each before those inside it."""
    yield steps, value
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for step, child in items:
        yield from places(child, (*steps, step))


def value_at(value: Any, steps: Sequence[str | int]) -> Any:
    """Return the value to which steps lead."""
    for step in steps:
        value = value[step]
    return value
