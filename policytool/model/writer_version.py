"""
Which releases can have written a file: the narrowest set that it proves.

``keras_version`` alone does not tell TF 2.3 from 2.4, and Keras 3's ``to_json`` has none. What else
tells are keys and classes that a release wrote first or last; each row of :data:`MARKS` was found
by comparing the same models saved by neighbouring releases and by reading ``get_config`` of both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.releases.generations import GENERATIONS, Generation, Release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from policytool.formats.document import Writer
    from policytool.model.config_traits import ConfigTraits


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """A release and the generation it belongs to."""

    release: Release
    generation: Generation


ORIGINS: Final[tuple[Origin, ...]] = tuple(
    Origin(release=release, generation=generation)
    for generation in GENERATIONS
    for release in generation.releases
)
"""Every release, oldest first within standalone Keras, TensorFlow with tf_keras, and Keras 3."""

_INDEX: Final = {origin.release.id: index for index, origin in enumerate(ORIGINS)}
_ID: Final = re.compile(r"(?P<family>keras|tf_keras|tf)(?P<version>\d+\.\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Something a config shows, and the first and last release that write it."""

    shows: Callable[[ConfigTraits], bool]
    first: str
    last: str
    but: str | None = None
    """A release between them that does not write it."""


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


_NEWEST: Final = ORIGINS[-1].release.id
_NEWEST_KERAS2: Final = next(
    origin.release.id for origin in reversed(ORIGINS) if origin.release.id.startswith("tf_keras")
)

MARKS: Final[tuple[Mark, ...]] = (
    # TF 1.13 to 2.0, which share "2.2.4-tf"
    Mark(
        shows=_class("BatchNormalizationV1", "BatchNormalizationV2"), first="tf1.13", last="tf1.13"
    ),
    Mark(shows=_key("InputLayer", "ragged"), first="tf1.15", last=_NEWEST, but="tf2.0"),
    Mark(
        shows=_keras2(_without("InputLayer", "ragged")),
        first="keras1.0",
        last="tf2.0",
        but="tf1.15",
    ),
    # TF 2.0 to 2.4
    Mark(shows=_key("LossScaleOptimizer", "loss_scale"), first="tf2.0", last="tf2.3"),
    Mark(shows=_class("TensorFlowOpLayer"), first="tf1.15", last="tf2.3"),
    Mark(
        shows=_class("TFOpLambda", "SlicingOpLambda", "ClassMethod"),
        first="tf2.4",
        last=_NEWEST_KERAS2,
    ),
    Mark(shows=_policy_key("Policy.loss_scale"), first="tf2.1", last="tf2.3"),
    Mark(shows=_policy("PolicyV1"), first="tf2.4", last="tf2.8"),
    Mark(shows=_class("LossScaleOptimizerV1"), first="tf2.4", last="tf2.8"),
    Mark(shows=_key("LossScaleOptimizer", "inner_optimizer"), first="tf2.4", last=_NEWEST),
    Mark(shows=_class("MultiHeadAttention"), first="tf2.4", last=_NEWEST),
    # Keras 2 where the version is missing
    Mark(shows=_key("InputLayer", "batch_input_shape"), first="keras1.0", last=_NEWEST_KERAS2),
    Mark(shows=_class("Functional"), first="tf2.3", last=_NEWEST),
    Mark(
        shows=lambda traits: {"module", "registered_name"} <= traits.root_keys,
        first="tf2.12",
        last=_NEWEST,
    ),
    Mark(shows=_policy_key("Policy.module"), first="tf2.13", last=_NEWEST_KERAS2),
    # Keras 3, where to_json() has no version
    Mark(shows=_key("InputLayer", "batch_shape"), first="keras3.0", last=_NEWEST),
    Mark(
        shows=_policy(
            "DTypePolicy",
            "FloatDTypePolicy",
            "QuantizedDTypePolicy",
            "QuantizedFloat8DTypePolicy",
            "DTypePolicyMap",
        ),
        first="keras3.4",
        last=_NEWEST,
    ),
    Mark(shows=_policy("GPTQDTypePolicy"), first="keras3.12", last=_NEWEST),
    Mark(shows=_policy("Int4DTypePolicy", "AWQDTypePolicy"), first="keras3.14", last=_NEWEST),
    Mark(shows=_keras3(_policy("mixed-name", "quantized-name")), first="keras3.0", last="keras3.3"),
    Mark(
        shows=_keras3(
            lambda traits: traits.policy_classes == {"name"} and "Dense" in traits.class_names
        ),
        first="keras3.0",
        last="keras3.3",
    ),
    Mark(shows=_keras3(_policy("quantized-name")), first="keras3.1", last="keras3.3"),
    Mark(shows=_key("LayerNormalization", "rms_scaling"), first="keras3.4", last=_NEWEST),
    Mark(shows=_keras3(_class("OrthogonalInitializer")), first="keras3.0", last="keras3.6"),
    Mark(shows=_keras3(_class("Orthogonal")), first="keras3.7", last=_NEWEST),
    Mark(shows=_keras3(_without("InputLayer", "ragged")), first="keras3.0", last="keras3.8"),
    Mark(shows=_keras3(_key("InputLayer", "ragged")), first="keras3.9", last=_NEWEST),
    Mark(shows=_keras3(lambda traits: traits.flat_outputs), first="keras3.11", last=_NEWEST),
    Mark(shows=_keras3(_key("InputLayer", "optional")), first="keras3.13", last=_NEWEST),
    Mark(shows=_keras3(_without("InputLayer", "optional")), first="keras3.0", last="keras3.12"),
    Mark(shows=_key("Dense", "quantization_config"), first="keras3.13", last=_NEWEST),
    Mark(shows=_keras3(_key("BatchNormalization", "renorm")), first="keras3.14", last=_NEWEST),
    Mark(
        shows=_keras3(_without("BatchNormalization", "renorm")), first="keras3.0", last="keras3.13"
    ),
    Mark(shows=_keras3(_key("GlorotUniform", "input_axes")), first="keras3.15", last=_NEWEST),
    Mark(
        shows=_keras3(_without("GlorotUniform", "input_axes")), first="keras3.0", last="keras3.14"
    ),
)


def candidates(writer: Writer, seen: ConfigTraits) -> tuple[tuple[Origin, ...], bool]:
    """
    Return the releases that can have written the file, oldest first, and whether its marks
    contradict its version.

    A file whose marks contradict each other was edited or converted. Its version counts then; where
    it has none, the marks that a release began to write and no later one gave up, because who edits
    leaves out what a release would write rather than writing what it does not know.
    """
    found = _of_version(writer)
    shown = [mark for mark in MARKS if mark.shows(seen)]
    if narrowed := _narrowed(found, shown):
        return narrowed, False
    lasting = (
        ()
        if writer.keras
        else _narrowed(found, [mark for mark in shown if mark.last in {_NEWEST, _NEWEST_KERAS2}])
    )
    return lasting or found, True


def _narrowed(found: tuple[Origin, ...], marks: Iterable[Mark]) -> tuple[Origin, ...]:
    """Return those of some releases that write all of these marks."""
    for mark in marks:
        first, last = _INDEX[mark.first], _INDEX[mark.last]
        found = tuple(
            origin
            for origin in found
            if first <= _INDEX.get(origin.release.id, last) <= last
            and origin.release.id != mark.but
        )
    return found


def label(origins: tuple[Origin, ...]) -> str | None:
    """
    Return the name of a set of releases, from its first to its last: ``tf2.3-2.4``, ``keras3.4+``,
    ``tf2.4``; None where it spans families.
    """
    ids = [origin.release.id for origin in origins]
    if len(ids) == 1:
        return ids[0]
    between = [origin.release.id for origin in ORIGINS[_INDEX[ids[0]] : _INDEX[ids[-1]] + 1]]
    families = {match["family"] for release in between if (match := _ID.fullmatch(release))}
    majors = {release.partition(".")[0] for release in between}
    if ids[-1] in {_NEWEST, _NEWEST_KERAS2} and families <= {"tf", "tf_keras"} | (
        {"keras"} if majors == {"keras3"} else set()
    ):
        return f"{ids[0]}+"
    match = _ID.fullmatch(ids[-1])
    return f"{ids[0]}-{match['version']}" if len(families) == 1 and match else None


def _of_version(writer: Writer) -> tuple[Origin, ...]:
    """Return the releases that write these versions; every release where the file has none."""
    by_keras = _of_keras(writer.keras) if writer.keras else ORIGINS
    if not writer.tensorflow:
        return by_keras
    minor = ".".join(writer.tensorflow.split(".")[:2])
    both = tuple(
        origin for origin in by_keras if origin.release.id in {f"tf{minor}", f"tf_keras{minor}"}
    )
    return both or by_keras


def _of_keras(version: str) -> tuple[Origin, ...]:
    """
    Return the releases that write this ``keras_version``: whole strings (``2.2.4-tf``) before
    beginnings (``2.2.``).
    """
    whole = tuple(origin for origin in ORIGINS if version in origin.release.keras_versions)
    begun = tuple(
        origin
        for origin in ORIGINS
        if any(
            version.startswith(prefix)
            for prefix in origin.release.keras_versions
            if prefix.endswith(".")
        )
    )
    return whole or begun or _unknown(version)


def _unknown(version: str) -> tuple[Origin, ...]:
    """
    Return a release newer than those known, read as the newest of its family; every release for
    what is no version at all.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    newest = {"2": ORIGINS[_INDEX[_NEWEST_KERAS2]], "3": ORIGINS[-1]}
    if not match or match[1] not in newest:
        return ORIGINS
    family = "tf_keras" if match[1] == "2" else "keras"
    release = Release(
        id=f"{family}{match[1]}.{match[2]}", keras_versions=(f"{match[1]}.{match[2]}.",)
    )
    return (Origin(release=release, generation=newest[match[1]].generation),)
