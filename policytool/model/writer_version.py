"""
Which releases can have written a file: the narrowest set that it proves.

``keras_version`` alone does not tell TF 2.3 from 2.4, and Keras 3's ``to_json`` has none. What else
tells are keys and classes that a release wrote first or last (``data/writer_marks.json``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import data
from policytool.releases.releases import (
    KERAS2,
    KERAS3,
    RELEASES,
    Release,
    is_known,
    newest_known,
    releases_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from policytool.formats.document import Writer
    from policytool.model.config_traits import ConfigTraits


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Something a config shows, and the releases that write it."""

    releases: frozenset[str]
    readers: frozenset[str]
    """
    The releases that accept it: also older ones that skip a key, and later ones that supply a
    default.
    """

    conditions: Mapping[str, Any]
    """The arguments of tests, by the names of these."""

    @property
    def lasts(self) -> bool:
        """Whether no later release of a family gave it up."""
        return any(newest_known(family).id in self.releases for family in (KERAS2, KERAS3))

    def shows(self, traits: ConfigTraits) -> bool:
        """Return whether a config has it: all conditions hold."""
        return all(_TESTS[name](traits, value) for name, value in self.conditions.items())


_TESTS: Final[Mapping[str, Callable[[ConfigTraits, Any], bool]]] = MappingProxyType(
    {
        "classes": lambda traits, names: not traits.class_names.isdisjoint(names),
        "flat_outputs": lambda traits, expected: traits.flat_outputs is expected,
        "input_key": lambda traits, key: key in traits.keys.get("InputLayer", ()),
        "key": lambda traits, key: _has(traits.keys, key),
        "lacks": lambda traits, key: (
            key.partition(".")[0] in traits.keys and not _has(traits.common_keys, key)
        ),
        "only_policies": lambda traits, classes: traits.policy_classes == set(classes),
        "policies": lambda traits, classes: not traits.policy_classes.isdisjoint(classes),
        "policy_key": lambda traits, key: key in traits.policy_keys,
        "root_keys": lambda traits, keys: traits.root_keys.issuperset(keys),
    }
)


def _has(keys: Mapping[str, Container[str]], key: str) -> bool:
    """Return whether a class has ``Class.key`` among its keys."""
    class_name, _, name = key.partition(".")
    return name in keys.get(class_name, ())


@cache
def marks() -> tuple[Mark, ...]:
    """Return the rows of ``data/writer_marks.json``."""
    return tuple(
        Mark(
            releases=releases_in(row["releases"]),
            readers=releases_in(row.get("readers", row["releases"])),
            conditions={name: row[name] for name in row.keys() & _TESTS.keys()},
        )
        for row in data.read("writer_marks")["marks"]
    )


def candidates(writer: Writer, seen: ConfigTraits) -> tuple[tuple[Release, ...], bool]:
    """
    Return the releases that may have written the file, oldest first, and whether no release of that
    library accepts all of its marks together. An edited or converted file may have older or newer
    marks than its version.

    If the marks contradict each other, the file was edited or converted, and its version decides.
    Without a version, the marks decide that every later release still writes: an editor may leave
    out keys that a release writes, but does not add keys that no release had yet.
    """
    releases = _of_version(writer)
    present_marks = [mark for mark in marks() if mark.shows(seen)]
    if narrowed := _releases_in_all(releases, [mark.releases for mark in present_marks]):
        return narrowed, False
    lasting = (
        ()
        if writer.keras
        else _releases_in_all(releases, [mark.releases for mark in present_marks if mark.lasts])
    )
    families = {release.family for release in releases}
    library = (*releases, *(release for release in RELEASES if release.family in families))
    return lasting or releases, not _releases_in_all(
        library, [mark.readers for mark in present_marks]
    )


def _releases_in_all(
    releases: tuple[Release, ...], sets: Iterable[frozenset[str]]
) -> tuple[Release, ...]:
    """Return the releases that are in all of these sets of ids, or newer than any known release."""
    for release_ids in sets:
        releases = tuple(
            release for release in releases if release.id in release_ids or not is_known(release.id)
        )
    return releases


def label(origins: tuple[Release, ...]) -> str | None:
    """
    Return the name of a set of releases, from its first to its last: ``tf2.3-2.4``, ``keras3.4+``,
    ``tf2.4``; None where it spans families.
    """
    first, last = origins[0], origins[-1]
    if len(origins) == 1:
        return first.id
    between = RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1]
    libraries = {release.library for release in between}
    if last is newest_known(last.family) and (
        libraries <= {"tf", "tf_keras"} or first.family == last.family == KERAS3
    ):
        return f"{first.id}+"
    return f"{first.id}-{last.version}" if len(libraries) == 1 else None


def _of_version(writer: Writer) -> tuple[Release, ...]:
    """Return the releases that write these versions; every release where the file has none."""
    by_keras = _of_keras(writer.keras) if writer.keras else RELEASES
    if not writer.tensorflow:
        return by_keras
    minor = ".".join(writer.tensorflow.split(".")[:2])
    both = tuple(
        release for release in by_keras if release.id in {f"tf{minor}", f"tf_keras{minor}"}
    )
    return both or by_keras


def _of_keras(version: str) -> tuple[Release, ...]:
    """
    Return the releases that write this ``keras_version``: whole strings (``2.2.4-tf``) before
    beginnings (``2.2.``).
    """
    whole = tuple(release for release in RELEASES if version == release.keras_version)
    begun = tuple(
        release
        for release in RELEASES
        if release.keras_version.endswith(".") and version.startswith(release.keras_version)
    )
    return whole or begun or _newer_release(version)


def _newer_release(version: str) -> tuple[Release, ...]:
    """
    Return a release newer than those known, read as the newest of its family; every release for
    what is no version at all.
    """
    match = re.match(r"([23])\.(\d+)", version)
    if not match:
        return RELEASES
    minor = f"{match[1]}.{match[2]}"
    last = newest_known(KERAS3 if match[1] == "3" else KERAS2)
    return (replace(last, id=f"{last.library}{minor}", keras_version=f"{minor}."),)
