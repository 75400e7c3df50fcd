"""The loaders that ``--target`` names, and the generation whose spelling each reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.releases import (
    ARCHIVES,
    KERAS2,
    KERAS3,
    LOADERS,
    RELEASES,
    TFJS,
    get,
    newest,
    release_name,
    releases_in,
)
from policytool.support.errors import UsageError
from policytool.support.text.phrases import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.releases.generations import Generation
    from policytool.releases.releases import Release

_ALIASES: Final = {"keras3": newest(KERAS3).id, "tf_keras": newest(KERAS2).id}


def _releases_between() -> Iterator[tuple[Release, Release]]:
    """
    Yield each release that was not measured and is newer than one of its family that was, and the
    newest of these: releases of one library read what older ones read.
    """
    before: Release | None = None
    for release in RELEASES:
        if release.measured:
            before = release
        elif before is not None and before.family == release.family:
            yield release, before


_BETWEEN: Final = {release.id: before for release, before in _releases_between()}
_READ_BARE_NAMES: Final = releases_in("tf2.5 on, keras3.0 on")
"""Those that read a mixed policy as a bare name, and are written the canonical spelling."""


def names() -> tuple[str, ...]:
    """
    Return the loaders that were asked, the newest release of each library by a name of its own
    first.
    """
    return (*_ALIASES, TFJS, *LOADERS)


def without_alias(name: str) -> str:
    """Return the release that an alias names, and any other name unchanged."""
    return _ALIASES.get(name, name)


def target(name: str) -> str:
    """
    Return the release for a name of ``--target``.

    :raises UsageError: for an unknown name, and for a release that was not tested.
    """
    loader = without_alias(name)
    if name in _BETWEEN:
        raise UsageError(
            f"--target {name} has not been tested; use {_BETWEEN[name].id}, the newest tested "
            "release before it"
        )
    if loader not in LOADERS:
        raise UsageError(
            f"unknown target {name!r}{did_you_mean(name, names())} Run `policytool "
            "explain releases` for a list"
        )
    return loader


def target_and_containers(name: str) -> tuple[str, tuple[str, ...]]:
    """
    Return the loader whose files are written for a target's name, and the containers that it takes,
    the empty tuple where it takes what that loader does.

    :raises UsageError: for a name that is none.
    """
    if name == TFJS:
        return newest(KERAS2).id, (TFJS,)
    if name not in _BETWEEN:
        return target(name), ()
    formats, before = get(name).formats, _BETWEEN[name]
    return before.id, () if formats == before.formats else formats


def loaders_of(names: Iterable[str]) -> tuple[str, ...]:
    """
    Return the releases whose verdicts answer for the names of targets; none for TensorFlow.js,
    which is no release of Keras.

    :raises UsageError: for a name that is none.
    """
    return tuple(dict.fromkeys(target_and_containers(name)[0] for name in names if name != TFJS))


def running_release(name: str | None) -> str | None:
    """Return the release that a target's name means if files are written for it as for another."""
    return name if name in _BETWEEN or name == TFJS else None


def stand_ins(targets: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each target that was not measured: what is said of it instead."""
    return tuple(
        f"{release_name(name)} has not been tested, so the results are for "
        f"{release_name(_BETWEEN[name].id)}"
        for name in targets
        if name in _BETWEEN
    )


def descriptions() -> tuple[tuple[str, str], ...]:
    """Return each name that ``--target`` accepts, and its meaning."""
    aliases = (
        (alias, f"the newest tested release: {release_name(loader)}")
        for alias, loader in _ALIASES.items()
    )
    between = (
        (
            name,
            f"uses the format of {release_name(before.id)}"
            + (", in HDF5" if get(name).formats != before.formats else ""),
        )
        for name, before in _BETWEEN.items()
    )
    tfjs = (TFJS, f"{release_name(TFJS)}; layers models (model.json)")
    return (
        *aliases,
        tfjs,
        *((loader, _words(get(loader))) for loader in reversed(LOADERS)),
        *between,
    )


def _words(release: Release) -> str:
    """Return the generation and the file formats of a release in words."""
    formats = ".keras, HDF5, JSON" if release.formats == ARCHIVES else "HDF5, JSON"
    return f"{release.generation.title}; {formats}"


def libraries(loader: str, targets: Iterable[str]) -> tuple[str, ...]:
    """
    Return the libraries that load a file, as the newest release of each: the one that loads files
    of its kind, then those of the targets.
    """
    return tuple(dict.fromkeys((loader, *(newest(get(name).family).id for name in targets))))


def generation_of(loader: str | None) -> Generation | None:
    """
    Return the generation whose spelling a loader needs; None where it reads bare names, as the
    newest do.
    """
    return None if loader is None or loader in _READ_BARE_NAMES else get(loader).generation
