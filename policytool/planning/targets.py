"""The loaders that ``--target`` names, and the generation whose spelling each reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.errors import UsageError
from policytool.generations import GENERATIONS
from policytool.loaders.refusals import LOADERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.generations import Generation

_ALIASES: Final = {
    "keras3": next(loader for loader in reversed(LOADERS) if loader.startswith("keras3")),
    "tf_keras": next(loader for loader in reversed(LOADERS) if loader.startswith("tf_keras")),
}
_BARE_SINCE: Final = "tf2.5"
"""The first loader that reads a mixed policy as a bare name; those that do are written the canonical spelling."""


def names() -> tuple[str, ...]:
    """Return what ``--target`` takes, the newest release of each library by a name of its own first."""
    return (*_ALIASES, *LOADERS)


def target(name: str) -> str:
    """
    Return the loader that a target's name means.

    :raises UsageError: for a name that is none.
    """
    found = _ALIASES.get(name, name)
    if found not in LOADERS:
        raise UsageError(f"--target {name} is no loader that was tried; known are {', '.join(names())}")
    return found


def libraries(loader: str, targets: Iterable[str]) -> tuple[str, ...]:
    """Return the libraries that load a file, as the newest release of each: the one that loads files of its kind, then those of the targets."""
    keras3, keras2 = _ALIASES["keras3"], _ALIASES["tf_keras"]
    return tuple(dict.fromkeys((loader, *(keras3 if name.startswith("keras3") else keras2 for name in targets))))


def generation_of(loader: str | None) -> Generation | None:
    """Return the generation whose spelling a loader needs; None where it reads bare names, as the newest do."""
    if loader is None or LOADERS.index(loader) >= LOADERS.index(_BARE_SINCE):
        return None
    return next(generation for generation in GENERATIONS if any(release.id == loader for release in generation.releases))
