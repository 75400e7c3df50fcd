"""The loaders that ``--target`` names, and the generation whose spelling each reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.generations import GENERATIONS
from policytool.releases.releases import LOADERS
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from policytool.releases.generations import Generation

_ALIASES: Final = {
    "keras3": next(loader for loader in reversed(LOADERS) if loader.startswith("keras3")),
    "tf_keras": next(loader for loader in reversed(LOADERS) if loader.startswith("tf_keras")),
}
_BETWEEN: Final[Mapping[str, str]] = {
    **dict.fromkeys(("tf2.6", "tf2.7", "tf2.8"), "tf2.5"),
    **dict.fromkeys(("tf2.10", "tf2.11"), "tf2.9"),
    **dict.fromkeys(("tf2.13", "tf2.14"), "tf2.12"),
    **{f"tf_keras2.{minor}": "tf2.15" for minor in range(16, 21)},
    **dict.fromkeys(("keras3.1", "keras3.2"), "keras3.0"),
    **dict.fromkeys(("keras3.4", "keras3.5"), "keras3.3"),
    **{f"keras3.{minor}": "keras3.6" for minor in range(7, 15)},
}
"""
Releases between those that were asked, and the newest of these before each: releases of one library
read what older ones read.
"""

_WITHOUT_ARCHIVES: Final = frozenset({"tf2.13", "tf2.14"})
"""
Releases whose ``.keras`` archives are laid out as neither of their neighbours reads them: they are
written HDF5.
"""

_ARCHIVES: Final = frozenset({"tf2.12", "tf2.15"})
"""Releases of TensorFlow whose Keras reads ``.keras`` archives."""

_BARE_SINCE: Final = "tf2.5"
"""
The first loader that reads a mixed policy as a bare name; those that do are written the canonical
spelling.
"""


def names() -> tuple[str, ...]:
    """
    Return the loaders that were asked, the newest release of each library by a name of its own
    first.
    """
    return (*_ALIASES, *LOADERS)


def target(name: str) -> str:
    """
    Return the loader that a target's name means.

    :raises UsageError: for a name that is none, and for a release that was not tried.
    """
    found = _ALIASES.get(name, name)
    if name in _BETWEEN:
        raise UsageError(
            f"--target {name} was not tried; the newest before it that was is {_BETWEEN[name]}, "
            "and migrate takes both names"
        )
    if found not in LOADERS:
        raise UsageError(
            f"--target {name} is no loader that was tried; known are {', '.join(names())}"
        )
    return found


def written_for(name: str) -> tuple[str, tuple[str, ...]]:
    """
    Return the loader whose files are written for a target's name, and the containers that it takes,
    the empty tuple where it takes what that loader does.

    :raises UsageError: for a name that is none.
    """
    if name in _BETWEEN:
        return _BETWEEN[name], ("h5", "json") if name in _WITHOUT_ARCHIVES else ()
    return target(name), ()


def described() -> tuple[tuple[str, str], ...]:
    """Return each name that ``--target`` takes, and what it stands for."""
    aliases = (
        (alias, f"the newest that was tried: {loader}") for alias, loader in _ALIASES.items()
    )
    between = (
        (name, f"written as for {loader}{', in HDF5' if name in _WITHOUT_ARCHIVES else ''}")
        for name, loader in _BETWEEN.items()
    )
    return (*aliases, *((loader, _words(loader)) for loader in reversed(LOADERS)), *between)


def _words(loader: str) -> str:
    """Return a release and its generation in words."""
    return (
        f"{writer_of(loader).title}; "
        f"{'.keras, HDF5' if loader.startswith(('keras3', 'tf_keras')) or loader in _ARCHIVES else 'HDF5'}, JSON"
    )


def libraries(loader: str, targets: Iterable[str]) -> tuple[str, ...]:
    """
    Return the libraries that load a file, as the newest release of each: the one that loads files
    of its kind, then those of the targets.
    """
    keras3, keras2 = _ALIASES["keras3"], _ALIASES["tf_keras"]
    return tuple(
        dict.fromkeys(
            (loader, *(keras3 if name.startswith("keras3") else keras2 for name in targets))
        )
    )


def writer_of(loader: str) -> Generation:
    """Return the generation that a loader belongs to."""
    return next(
        generation
        for generation in GENERATIONS
        if any(release.id == loader for release in generation.releases)
    )


def generation_of(loader: str | None) -> Generation | None:
    """
    Return the generation whose spelling a loader needs; None where it reads bare names, as the
    newest do.
    """
    if loader is None or LOADERS.index(loader) >= LOADERS.index(_BARE_SINCE):
        return None
    return writer_of(loader)
