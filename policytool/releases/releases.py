"""
Every release of Keras that is known: one row each, and the only place where the newest are named;
and the releases that ``--target`` names, with the config format that each reads.

``make release-data`` adds the row of a release and measures it. A row without measurements is not a
target: a test in ``tests/releases/test_releases.py`` names the records that lack a release. Facts
that hold from a release on are written as open ranges (:func:`releases_in`), which include releases
that are added later.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.releases.generations import (
    ATTENTION_TO_TF213,
    CELLS_TO_TF25,
    KERAS_1,
    KERAS_2,
    KERAS_3_0,
    KERAS_3_4,
    TF_1_4,
    TF_2_1,
    TF_2_4,
    TF_2_9,
    TF_2_13,
)
from policytool.support.errors import UsageError
from policytool.support.text.phrases import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.releases.generations import Generation, SubLayer

BACKENDS: Final = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "torch"}
"""
The backends of Keras 3 that can run models, with their names in messages. If several are installed,
the first is used.
"""

KERAS2: Final = "keras2"
KERAS3: Final = "keras3"
"""The families of releases that load each other's files; Keras 1 belongs to that of Keras 2."""

HDF5: Final = ("h5", "json")
ARCHIVES: Final = ("keras", "h5", "json")
"""What a release loads of the file formats that ``migrate`` writes a whole model in."""


class Release(Struct, frozen=True):
    """One minor release."""

    id: str
    """``tf2.3``, ``tf_keras2.18``, ``keras3.6``."""

    generation: Generation
    """The config format that it reads and writes."""

    keras_version: str
    """What it writes as ``keras_version``: the beginning, up to a dot, or the whole string."""

    formats: tuple[str, ...] = HDF5
    """Of ``keras``, ``h5`` and ``json``, those in which files are written for it."""

    measured: bool = False
    """Whether it was asked to load every fixture; only such a release can be a target."""

    own_composites: Mapping[str, tuple[SubLayer, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Where the release differs from its generation's composites."""

    @property
    def library(self) -> str:
        """``keras`` for standalone Keras 1, 2 and 3, ``tf`` for tf.keras, or ``tf_keras``."""
        return self.id.rstrip("0123456789.")

    @property
    def version(self) -> str:
        """The minor version of the library, such as ``2.3``."""
        return self.id.removeprefix(self.library)

    @property
    def family(self) -> str:
        """:data:`KERAS2` or :data:`KERAS3`."""
        return family_of(self.id)

    @property
    def composites(self) -> Mapping[str, tuple[SubLayer, ...]]:
        """The layers that instances of each class create themselves, by class name."""
        return {**self.generation.composites, **self.own_composites}


RELEASES: Final[tuple[Release, ...]] = (
    Release("keras1.0", KERAS_1, "1.0."),
    Release("keras1.1", KERAS_1, "1.1."),
    Release("keras1.2", KERAS_1, "1.2."),
    Release("keras2.0", KERAS_2, "2.0."),
    Release("keras2.1", KERAS_2, "2.1."),
    Release("keras2.2", KERAS_2, "2.2."),
    Release("keras2.3", KERAS_2, "2.3."),
    # keras_version up to TF 2.2: tensorflow/python/keras/__init__.py of each release
    Release("tf1.4", TF_1_4, "2.0.8-tf"),
    Release("tf1.5", TF_1_4, "2.1.2-tf"),
    Release("tf1.6", TF_1_4, "2.1.3-tf"),
    Release("tf1.7", TF_1_4, "2.1.4-tf"),
    Release("tf1.8", TF_1_4, "2.1.5-tf"),
    Release("tf1.9", TF_1_4, "2.1.6-tf"),
    Release("tf1.10", TF_1_4, "2.1.6-tf"),
    Release("tf1.11", TF_1_4, "2.1.6-tf"),
    Release("tf1.12", TF_1_4, "2.1.6-tf"),
    Release("tf1.13", TF_1_4, "2.2.4-tf"),
    Release("tf1.14", TF_1_4, "2.2.4-tf"),
    Release("tf1.15", TF_1_4, "2.2.4-tf", measured=True),
    Release("tf2.0", TF_1_4, "2.2.4-tf", measured=True),
    Release("tf2.1", TF_2_1, "2.3.0-tf", measured=True),
    Release("tf2.2", TF_2_1, "2.3.0-tf", measured=True),
    Release("tf2.3", TF_2_1, "2.4.", measured=True),
    Release("tf2.4", TF_2_4, "2.4.", measured=True, own_composites=CELLS_TO_TF25),
    Release("tf2.5", TF_2_4, "2.5.", measured=True, own_composites=CELLS_TO_TF25),
    Release("tf2.6", TF_2_4, "2.6."),
    Release("tf2.7", TF_2_4, "2.7."),
    Release("tf2.8", TF_2_4, "2.8."),
    Release("tf2.9", TF_2_9, "2.9.", measured=True),
    Release("tf2.10", TF_2_9, "2.10."),
    Release("tf2.11", TF_2_9, "2.11."),
    Release("tf2.12", TF_2_9, "2.12.", ARCHIVES, measured=True),
    # the archives of 2.13 and 2.14 are laid out as neither neighbour reads them
    Release("tf2.13", TF_2_13, "2.13.", own_composites=ATTENTION_TO_TF213),
    Release("tf2.14", TF_2_13, "2.14."),
    Release("tf2.15", TF_2_13, "2.15.", ARCHIVES, measured=True),
    Release("tf_keras2.16", TF_2_13, "2.16.", ARCHIVES),
    Release("tf_keras2.17", TF_2_13, "2.17.", ARCHIVES),
    Release("tf_keras2.18", TF_2_13, "2.18.", ARCHIVES),
    Release("tf_keras2.19", TF_2_13, "2.19.", ARCHIVES),
    Release("tf_keras2.20", TF_2_13, "2.20.", ARCHIVES),
    Release("tf_keras2.21", TF_2_13, "2.21.", ARCHIVES, measured=True),
    Release("keras3.0", KERAS_3_0, "3.0.", ARCHIVES, measured=True),
    Release("keras3.1", KERAS_3_0, "3.1.", ARCHIVES),
    Release("keras3.2", KERAS_3_0, "3.2.", ARCHIVES),
    Release("keras3.3", KERAS_3_0, "3.3.", ARCHIVES, measured=True),
    Release("keras3.4", KERAS_3_4, "3.4.", ARCHIVES),
    Release("keras3.5", KERAS_3_4, "3.5.", ARCHIVES),
    Release("keras3.6", KERAS_3_4, "3.6.", ARCHIVES, measured=True),
    Release("keras3.7", KERAS_3_4, "3.7.", ARCHIVES),
    Release("keras3.8", KERAS_3_4, "3.8.", ARCHIVES),
    Release("keras3.9", KERAS_3_4, "3.9.", ARCHIVES),
    Release("keras3.10", KERAS_3_4, "3.10.", ARCHIVES),
    Release("keras3.11", KERAS_3_4, "3.11.", ARCHIVES),
    Release("keras3.12", KERAS_3_4, "3.12.", ARCHIVES),
    Release("keras3.13", KERAS_3_4, "3.13.", ARCHIVES),
    Release("keras3.14", KERAS_3_4, "3.14.", ARCHIVES),
    Release("keras3.15", KERAS_3_4, "3.15.", ARCHIVES, measured=True),
)
"""Oldest first within standalone Keras, TensorFlow with tf_keras, and Keras 3."""

LOADERS: Final = tuple(release.id for release in RELEASES if release.measured)
"""The names of the measured releases, in the order of :data:`RELEASES`."""

TFJS: Final = "tfjs"
"""
TensorFlow.js 4.22, which is no release of Keras: it loads configs of Keras 2, and only from layers
models of its own.
"""

EXPORTERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "onnx": "ONNX",
        "litert": "LiteRT",
        "openvino": "OpenVINO",
        "tf_saved_model": "SavedModel",
    }
)
"""The formats of Keras' ``Model.export``, which are targets of ``audit`` only, and their titles."""

_LIBRARIES: Final = (
    (TFJS, "TensorFlow.js 4.22"),
    ("tf_keras", "tf_keras "),
    ("keras", "Keras "),
    ("tf", "TF "),
)

_POSITION: Final = {release.id: position for position, release in enumerate(RELEASES)}


def get(name: str) -> Release:
    """
    Return the release of a name.

    :raises KeyError: for a name that is not in the table
    """
    return RELEASES[_POSITION[name]]


def release_name(name: str) -> str:
    """Return the display name of a release: ``Keras 3.6`` for ``keras3.6``; or of an exporter."""
    if name in EXPORTERS:
        return EXPORTERS[name]
    for library, words in _LIBRARIES:
        if name.startswith(library):
            return (words + name.removeprefix(library)).rstrip()
    return name


def is_known(name: str) -> bool:
    """Return whether a name is that of a release in the table."""
    return name in _POSITION


def family_of(name: str) -> str:
    """Return :data:`KERAS2` or :data:`KERAS3` of a release's name, also of one not in the table."""
    return KERAS3 if name.startswith(KERAS3) else KERAS2


def library_and_version(versions: Mapping[str, str]) -> tuple[str, str | None]:
    """
    Return the library that a child process ran, as in :attr:`Release.library`, and its full
    version.

    :param versions: the imported module of Keras (``library``), and versions by package
    """
    module = versions.get("library", "")
    if module.startswith("tf_keras"):
        return "tf_keras", versions.get("keras")
    if module == "keras":
        return module, versions.get("keras")
    return "tf", versions.get("tensorflow")


def newest(family: str) -> Release:
    """Return the newest measured release of :data:`KERAS2` or :data:`KERAS3`."""
    return next(
        release for release in reversed(RELEASES) if release.family == family and release.measured
    )


def newest_known(family: str) -> Release:
    """Return the newest release of a family in the table, whether it was measured or not."""
    return next(release for release in reversed(RELEASES) if release.family == family)


CURRENT: Final = (newest(KERAS2).id, newest(KERAS3).id)
"""The releases that reports name first, whichever release wrote the file."""


def is_since(name: str, first: str) -> bool:
    """
    Return whether a release is the same as another one or newer; every Keras 3 release is newer
    than Keras 2.

    :raises KeyError: for a name that is not in the table.
    """
    return _POSITION[name] >= _POSITION[first]


def position(name: str) -> int:
    """Return the position of a release in :data:`RELEASES`."""
    return _POSITION[name]


def measured_neighbors(name: str) -> tuple[str, ...]:
    """Return the measured releases directly before and after a release that was not measured."""
    before = [loader for loader in LOADERS if not is_since(loader, name)]
    return (*before[-1:], *LOADERS[len(before) : len(before) + 1])


@cache
def releases_in(ranges: str) -> frozenset[str]:
    """
    Return the names of the releases in some ranges, which commas separate: ``tf2.2``, ``tf2.1 to
    tf2.3``, ``keras3.3 on`` and ``after keras3.6``.

    The last two include every later release of the family. ``after`` is for what the newest
    releases do: the release that began to is not known, or is the newest itself, which no range
    names.

    :raises ValueError: for a range that is empty
    :raises KeyError: for a name that is not in the table
    """
    return frozenset(name for part in ranges.split(",") for name in _range(part.strip()))


def _range(text: str) -> tuple[str, ...]:
    """Return the releases of one range, such as ``tf2.1 to tf2.3`` or ``after keras3.6``."""
    first, _, last = text.removeprefix("after ").removesuffix(" on").partition(" to ")
    is_open = text != first and not last
    start = _POSITION[first] + text.startswith("after ")
    end = _POSITION[newest_known(get(first).family).id if is_open else last or first]
    release_ids = tuple(release.id for release in RELEASES[start : end + 1])
    if not release_ids:
        raise ValueError(f"no release is in the range {text!r}")
    return release_ids


_ALIASES: Final = {"keras3": newest(KERAS3).id, "tf_keras": newest(KERAS2).id}


def _unmeasured_releases() -> Iterator[tuple[Release, Release]]:
    """
    Yield each release that was not measured, but is newer than a measured release of its family,
    and the newest of these. Releases of a library read what older ones read.
    """
    before: Release | None = None
    for release in RELEASES:
        if release.measured:
            before = release
        elif before is not None and before.family == release.family:
            yield release, before


_MEASURED_BEFORE: Final = {release.id: before for release, before in _unmeasured_releases()}
"""For each release that was not measured, the measured release whose results stand for it."""

_READ_BARE_NAMES: Final = releases_in("tf2.5 on, keras3.0 on")
"""The releases that read a mixed policy as a bare name."""


def names() -> tuple[str, ...]:
    """Return the names of targets: aliases, exporters, then measured releases."""
    return (*_ALIASES, TFJS, *EXPORTERS, *LOADERS)


def without_alias(name: str) -> str:
    """Return the release that an alias names, and any other name unchanged."""
    return _ALIASES.get(name, name)


def target(name: str) -> str:
    """
    Return the release for a name of ``--target``.

    :raises UsageError: for an unknown name, and for a release that was not tested.
    """
    loader = without_alias(name)
    if name in _MEASURED_BEFORE:
        raise UsageError(
            f"--target {name} has not been tested; use {_MEASURED_BEFORE[name].id}, the newest "
            "tested release before it"
        )
    if loader not in LOADERS:
        raise UsageError(
            f"unknown target {name!r}{did_you_mean(name, names())} Run `policytool "
            "explain releases` for a list"
        )
    return loader


def target_and_containers(name: str) -> tuple[str, tuple[str, ...]]:
    """
    Return the release whose files are written for a name of a target, and the containers that the
    target reads. An empty tuple means those that the release reads.

    :raises UsageError: for an unknown name, and for an exporter.
    """
    if name in EXPORTERS:
        raise UsageError(
            f"--target {name} is a target of audit only; export the model in Python with "
            f'model.export(PATH, format="{name}")'
        )
    if name == TFJS:
        return newest(KERAS2).id, (TFJS,)
    if name not in _MEASURED_BEFORE:
        return target(name), ()
    formats, before = get(name).formats, _MEASURED_BEFORE[name]
    return before.id, () if formats == before.formats else formats


def loaders_of(names: Iterable[str]) -> tuple[str, ...]:
    """
    Return the releases whose verdicts answer for names of targets: for an exporter, the newest
    Keras; none for TensorFlow.js, which is not a release of Keras.

    :raises UsageError: for an unknown name.
    """
    written = [conversion_target(name) for name in names if name != TFJS]
    return tuple(dict.fromkeys(target_and_containers(name)[0] for name in written))


def conversion_target(name: str) -> str:
    """Return the target of ``migrate`` for a target of ``audit``: exporters are part of Keras 3."""
    return KERAS3 if name in EXPORTERS else name


def running_release(name: str | None) -> str | None:
    """
    Return the release that a target's name means, if its files are written as for another release.
    """
    return name if name in _MEASURED_BEFORE or name == TFJS else None


def stand_ins(targets: Iterable[str]) -> tuple[str, ...]:
    """
    Return a sentence for each target that was not measured, with the release whose results are
    reported instead.
    """
    return tuple(
        f"{release_name(name)} has not been tested, so the results are for "
        f"{release_name(_MEASURED_BEFORE[name].id)}"
        for name in targets
        if name in _MEASURED_BEFORE
    )


def descriptions() -> tuple[tuple[str, str], ...]:
    """Return each name that ``--target`` accepts, and its meaning."""
    aliases = (
        (alias, f"the newest tested release: {release_name(loader)}")
        for alias, loader in _ALIASES.items()
    )
    unmeasured = (
        (
            name,
            f"uses the format of {release_name(before.id)}"
            + (", in HDF5" if get(name).formats != before.formats else ""),
        )
        for name, before in _MEASURED_BEFORE.items()
    )
    tfjs = (TFJS, f"{release_name(TFJS)}; layers models (model.json)")
    exporters = (
        (name, f"the export of {release_name(newest(KERAS3).id)} to {title}; only for audit")
        for name, title in EXPORTERS.items()
    )
    return (
        *aliases,
        tfjs,
        *exporters,
        *((loader, _words(get(loader))) for loader in reversed(LOADERS)),
        *unmeasured,
    )


def _words(release: Release) -> str:
    """Return the config generation and the file formats of a release in words."""
    formats = ".keras, HDF5, JSON" if release.formats == ARCHIVES else "HDF5, JSON"
    return f"{release.generation.title}; {formats}"


def libraries(loader: str, targets: Iterable[str]) -> tuple[str, ...]:
    """
    Return the newest release of each library to consider: first the library that loads files of
    this kind, then the libraries of the targets.
    """
    return tuple(dict.fromkeys((loader, *(newest(get(name).family).id for name in targets))))


def generation_of(loader: str | None) -> Generation | None:
    """
    Return the generation whose policy format a release requires; None if the release reads bare
    names, like the newest releases.
    """
    return None if loader is None or loader in _READ_BARE_NAMES else get(loader).generation
