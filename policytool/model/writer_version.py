"""
Which releases can have written a file: the narrowest set that it proves.

``keras_version`` alone does not tell TF 2.3 from 2.4, and Keras 3's ``to_json`` has none. What else
tells are keys and classes that a release wrote first or last; each row of :data:`MARKS` was found
by comparing the same models saved by neighbouring releases and by reading ``get_config`` of both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policytool.releases.releases import (
    KERAS2,
    KERAS3,
    RELEASES,
    Release,
    is_known,
    newest,
    releases_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from policytool.formats.document import Writer
    from policytool.model.config_traits import ConfigTraits


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Something a config shows, and the releases that write it."""

    releases: frozenset[str]
    shows: Callable[[ConfigTraits], bool]
    readers: frozenset[str]
    """
    The releases that accept it: also older ones that skip a key, and later ones that supply a
    default.
    """

    @property
    def lasts(self) -> bool:
        """Whether no later release of a family gave it up."""
        return any(newest(family).id in self.releases for family in (KERAS2, KERAS3))


def _class(*names: str) -> Callable[[ConfigTraits], bool]:
    return lambda traits: not traits.class_names.isdisjoint(names)


def _key(class_name: str, key: str) -> Callable[[ConfigTraits], bool]:
    return lambda traits: key in traits.keys.get(class_name, ())


def _without(class_name: str, key: str) -> Callable[[ConfigTraits], bool]:
    return lambda traits: class_name in traits.keys and key not in traits.common_keys[class_name]


def _policy(*classes: str) -> Callable[[ConfigTraits], bool]:
    return lambda traits: not traits.policy_classes.isdisjoint(classes)


def _policy_key(key: str) -> Callable[[ConfigTraits], bool]:
    return lambda traits: key in traits.policy_keys


def _keras3(test: Callable[[ConfigTraits], bool]) -> Callable[[ConfigTraits], bool]:
    """
    Return a test that holds for Keras 3's configs alone, whose input layers have a ``batch_shape``.
    """
    return lambda traits: "batch_shape" in traits.keys.get("InputLayer", ()) and test(traits)


def _keras2(test: Callable[[ConfigTraits], bool]) -> Callable[[ConfigTraits], bool]:
    """
    Return a test that holds for configs before Keras 3 alone, whose input layers have a
    ``batch_input_shape``.
    """
    return lambda traits: "batch_input_shape" in traits.keys.get("InputLayer", ()) and test(traits)


def _mark(releases: str, shows: Callable[[ConfigTraits], bool], readers: str | None = None) -> Mark:
    return Mark(
        releases=releases_in(releases), shows=shows, readers=releases_in(readers or releases)
    )


_ALL_KERAS2: Final = "keras1.0 on"
_ALL_KERAS3: Final = "keras3.0 on"


MARKS: Final[tuple[Mark, ...]] = (
    # TF 1.13 to 2.0, which share "2.2.4-tf"
    _mark("tf1.13", _class("BatchNormalizationV1", "BatchNormalizationV2")),
    _mark("tf1.15, tf2.1 on, keras3.0 on", _key("InputLayer", "ragged")),
    _mark("keras1.0 to tf1.14, tf2.0", _keras2(_without("InputLayer", "ragged")), _ALL_KERAS2),
    # TF 2.0 to 2.4
    _mark("tf2.0 to tf2.3", _key("LossScaleOptimizer", "loss_scale")),
    _mark("tf1.15 to tf2.3", _class("TensorFlowOpLayer")),
    _mark("tf2.4 on", _class("TFOpLambda", "SlicingOpLambda", "ClassMethod")),
    _mark("tf2.1 to tf2.3", _policy_key("Policy.loss_scale")),
    _mark("tf2.4 to tf2.8", _policy("PolicyV1")),
    _mark("tf2.4 to tf2.8", _class("LossScaleOptimizerV1")),
    _mark("tf2.4 on, keras3.0 on", _key("LossScaleOptimizer", "inner_optimizer")),
    _mark("tf2.4 on, keras3.0 on", _class("MultiHeadAttention")),
    # Keras 2 where the version is missing
    _mark("keras1.0 on", _key("InputLayer", "batch_input_shape")),
    _mark("tf2.3 on, keras3.0 on", _class("Functional")),
    _mark(
        "tf2.12 on, keras3.0 on",
        lambda traits: {"module", "registered_name"} <= traits.root_keys,
    ),
    _mark("tf2.13 on", _policy_key("Policy.module")),
    # Keras 3, where to_json() has no version
    _mark("keras3.0 on", _key("InputLayer", "batch_shape")),
    _mark(
        "keras3.4 on",
        _policy(
            "DTypePolicy",
            "FloatDTypePolicy",
            "QuantizedDTypePolicy",
            "QuantizedFloat8DTypePolicy",
            "DTypePolicyMap",
        ),
    ),
    _mark("keras3.12 on", _policy("GPTQDTypePolicy")),
    _mark("keras3.14 on", _policy("Int4DTypePolicy", "AWQDTypePolicy")),
    _mark("keras3.0 to keras3.3", _keras3(_policy("mixed-name")), _ALL_KERAS3),
    _mark(
        "keras3.0 to keras3.3",
        _keras3(lambda traits: traits.policy_classes == {"name"} and "Dense" in traits.class_names),
        _ALL_KERAS3,
    ),
    _mark("keras3.1 to keras3.3", _keras3(_policy("quantized-name"))),
    _mark("keras3.4 on", _key("LayerNormalization", "rms_scaling"), _ALL_KERAS3),
    _mark("keras3.0 to keras3.6", _keras3(_class("OrthogonalInitializer")), _ALL_KERAS3),
    _mark("keras3.7 on", _keras3(_class("Orthogonal")), "keras3.6 on"),
    _mark("keras3.0 to keras3.8", _keras3(_without("InputLayer", "ragged")), _ALL_KERAS3),
    _mark("keras3.9 on", _keras3(_key("InputLayer", "ragged")), _ALL_KERAS3),
    _mark("keras3.11 on", _keras3(lambda features: features.flat_outputs), "keras3.6 on"),
    _mark("keras3.13 on", _keras3(_key("InputLayer", "optional")), _ALL_KERAS3),
    _mark("keras3.0 to keras3.12", _keras3(_without("InputLayer", "optional")), _ALL_KERAS3),
    _mark("keras3.13 on", _key("Dense", "quantization_config")),
    _mark("keras3.14 on", _keras3(_key("BatchNormalization", "renorm"))),
    _mark("keras3.0 to keras3.13", _keras3(_without("BatchNormalization", "renorm")), _ALL_KERAS3),
    _mark("after keras3.14", _keras3(_key("GlorotUniform", "input_axes"))),
    _mark("keras3.0 to keras3.14", _keras3(_without("GlorotUniform", "input_axes")), _ALL_KERAS3),
)


def candidates(writer: Writer, seen: ConfigTraits) -> tuple[tuple[Release, ...], bool]:
    """
    Return the releases that can have written the file, oldest first, and whether no release of
    that library reads all of its marks: an edited or converted file may have older or newer marks
    than its version, as long as a release accepts them together.

    A file whose marks contradict each other was edited or converted. Its version counts then; where
    it has none, the marks that a release began to write and no later one gave up, because who edits
    leaves out what a release would write rather than writing what it does not know.
    """
    found = _of_version(writer)
    shown = [mark for mark in MARKS if mark.shows(seen)]
    if narrowed := _releases_in_all(found, [mark.releases for mark in shown]):
        return narrowed, False
    lasting = (
        ()
        if writer.keras
        else _releases_in_all(found, [mark.releases for mark in shown if mark.lasts])
    )
    families = {release.family for release in found}
    library = (*found, *(release for release in RELEASES if release.family in families))
    return lasting or found, not _releases_in_all(library, [mark.readers for mark in shown])


def _releases_in_all(
    found: tuple[Release, ...], sets: Iterable[frozenset[str]]
) -> tuple[Release, ...]:
    """Return those of some releases that are in all of these sets, or newer than them."""
    for one in sets:
        found = tuple(release for release in found if release.id in one or not is_known(release.id))
    return found


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
    if last is newest(last.family) and (
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
    last = newest(KERAS3 if match[1] == "3" else KERAS2)
    return (replace(last, id=f"{last.library}{minor}", keras_version=f"{minor}."),)
