"""What is derived of one model again and again, such as its plans, is derived once."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.model.loaded_model import LoadedModel

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


def once_per_model(
    make: Callable[[LoadedModel, *Arguments], Result],
) -> Callable[[LoadedModel, *Arguments], Result]:
    """Return a function as one that keeps its results for as long as the model lives."""
    kept: WeakKeyDictionary[LoadedModel, dict[tuple[object, ...], Result]] = WeakKeyDictionary()

    @wraps(make)
    def find_or_make(loaded: LoadedModel, *arguments: *Arguments) -> Result:
        results = kept.setdefault(loaded, {})
        if arguments not in results:
            results[arguments] = make(loaded, *arguments)
        return results[arguments]

    return find_or_make
