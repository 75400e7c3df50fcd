"""
Where the vocabulary of a lookup layer stands: in its config where it was given, in a file beside
the model or in a table where ``adapt`` made it.

A vocabulary in the config is what every release from TF 2.4 on reads. Keras 3 writes one that was
adapted to ``assets/.../vocabulary.txt`` in the archive, below the path of the layer
(keras/src/saving/saving_lib.py); Keras 2 writes it to a SavedModel's tables, and to no HDF5. The
weights of its words are a variable.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, Unit
from policytool.migration.convert.log import display_value
from policytool.migration.convert.rewrites._adapted import (
    special_words,
    stored_weights,
    with_weights,
)
from policytool.model.tree import LAYERS
from policytool.releases.naming import snake_case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.rewrites._base import ConversionContext

_WEIGHTED: Final = "tf_idf"


def assets(root: Unit, situation: ConversionContext) -> dict[str, list[Value]]:
    """
    Return the vocabularies that an archive or a SavedModel holds beside its config, by the layer's
    path.
    """
    texts = situation.loaded.document.vocabularies
    found: dict[str, list[Value]] = {}
    for where, unit in _state_paths(root, ()) if texts else ():
        text = texts.get((*where, "_lookup_layer"), texts.get(where))
        if situation.loaded.is_saved_object and unit.site is not None:
            text = texts.get((str(situation.loaded.sites[unit.site].node),))
        if text is not None:
            found[unit.path] = _words(unit, text, situation)
    return found


def _words(unit: Unit, text: str, situation: ConversionContext) -> list[Value]:
    """Return a vocabulary, with special words where it has weights."""
    numbers = (
        unit.class_name == "IntegerLookup"
        and unit.config.get("vocabulary_dtype", "int64") != "string"
    )
    words: list[Value] = [int(line) if numbers else line for line in text.split("\n")]
    if situation.loaded.is_saved_object and unit.config.get("output_mode") == _WEIGHTED:
        return [*special_words(unit), *words]
    return words


def _state_paths(unit: Unit, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Unit]]:
    """Yield a unit and those below it, with the path that Keras 3 stores their state under."""
    yield where, unit
    used: Counter[str] = Counter()
    for inner in unit.network.units if unit.network is not None else ():
        if inner.role is Role.OPERATION:
            continue
        name = snake_case(inner.class_name)
        number, used[name] = used[name], used[name] + 1
        yield from _state_paths(inner, (*where, LAYERS, f"{name}_{number}" if number else name))


def with_vocabulary(unit: Unit, situation: ConversionContext, stored: list[Value] | None) -> Unit:
    """
    Return a lookup layer with its vocabulary in its config; refused where the file holds none.
    """
    vocabulary, target, log = unit.config.get("vocabulary"), situation.target, situation.log
    left = unit.without("vocabulary_size")
    if isinstance(vocabulary, str) and stored is None:
        log.refuse(
            "vocabulary",
            unit,
            f"{unit.path} ({unit.class_name}) refers to a vocabulary file, "
            f"{display_value(vocabulary)}, which is not part of the model",
        )
        return left
    if not isinstance(vocabulary, list) and stored is not None:
        log.change(
            "vocabulary",
            unit,
            f"the vocabulary of {unit.path} ({len(stored)} words) moves to its config",
        )
        left, vocabulary = left.with_config(vocabulary=stored), stored
    if unit.config.get("output_mode") == _WEIGHTED:
        left = _weighted(left, situation)
    if vocabulary is None:
        return _without(left, situation)
    if not target.since("tf2.4" if unit.class_name == "TextVectorization" else "tf2.3"):
        log.refuse(
            "vocabulary",
            unit,
            f"{unit.path} ({unit.class_name}) stores its vocabulary in its config, which "
            f"{target.name} does not support",
        )
    return left


def _weighted(unit: Unit, situation: ConversionContext) -> Unit:
    """Return a lookup with the weights of its words, which are refused where the file has none."""
    words, stored = unit.config.get("vocabulary"), stored_weights(unit, situation)
    if unit.config.get("idf_weights") is None and stored is not None and isinstance(words, list):
        unit = unit.with_config(idf_weights=stored[: len(words)])
    if unit.config.get("idf_weights") is None:
        situation.log.refuse(
            "vocabulary",
            unit,
            (f"{unit.path} ({unit.class_name}) uses tf_idf, but the file contains no idf_weights"),
        )
    return with_weights(unit, stored)


def _without(unit: Unit, situation: ConversionContext) -> Unit:
    """
    Return a layer that the file has no vocabulary of: an architecture may be adapted anew, a model
    is lost.
    """
    told_of = situation.log
    what = (
        f"{unit.path} ({unit.class_name}) was adapted, but the config in the file "
        "does not contain its vocabulary"
    )
    if situation.loaded.document.tensors is None:
        told_of.caution("vocabulary", unit, f"{what}; adapt it again before use")
        return unit
    told_of.refuse(
        "vocabulary",
        unit,
        f"{what}; pass the vocabulary to the layer and save the model again",
    )
    return unit
