"""What ``adapt`` found, as arguments of a layer: the weights of words, and the ends of bins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.convert.architecture import Unit, Value
    from policytool.migration.convert.rewrites._base import ConversionContext

_WEIGHTS: Final = "idf_weights"
_SUMMARY: Final = frozenset({"summary", "0"})
"""What a Discretization of Keras 2 calls its one variable; in an archive it has a number."""


def stored_weights(unit: Unit, situation: ConversionContext) -> list[Value] | None:
    """Return the weights that a lookup stores, of special words too; None where it stores none."""
    found = next(_values(unit, situation, frozenset({_WEIGHTS})), None)
    return list(found) if found is not None else None


def with_weights(unit: Unit, stored: list[Value] | None) -> Unit:
    """
    Return a lookup with the values of its variable: what is stored, or what releases make of the
    weights that they are given, one for each word of the vocabulary.

    Words that are not in it have the mean of all, and those up to ``max_tokens`` have zero
    (``set_vocabulary`` in keras/src/layers/preprocessing/index_lookup.py).
    """
    given, words = unit.config.get(_WEIGHTS), unit.config.get("vocabulary")
    if stored is None and isinstance(given, list) and isinstance(words, list):
        numbers = [float(one) for one in given if isinstance(one, int | float)]
        special = special_words(unit)
        front = 0 if words[: len(special)] == special else len(special)
        stored = [*([sum(numbers) / max(len(numbers), 1)] * front), *numbers]
        most = unit.config.get("max_tokens")
        if unit.config.get("pad_to_max_tokens") is True and isinstance(most, int):
            stored += [0.0] * (most - len(stored))
    return unit if stored is None else replace(unit, given={**unit.given, _WEIGHTS: stored})


def special_words(unit: Unit) -> list[Value]:
    """Return what precedes a vocabulary with weights: the words for unknown ones."""
    if unit.class_name == "TextVectorization":
        return ["[UNK]"]
    count = unit.config.get("num_oov_indices", 1)
    unknown = unit.config.get("oov_token", -1 if unit.class_name == "IntegerLookup" else "[UNK]")
    return [unknown] * count if isinstance(count, int) else []


def bin_boundaries(unit: Unit, situation: ConversionContext) -> list[Value] | None:
    """
    Return the ends of bins that Keras 2 makes of what it has seen: values and their counts.

    As ``get_bin_boundaries`` in keras/layers/preprocessing/discretization.py does, with NumPy.
    """
    import numpy as np

    seen, bins = next(_values(unit, situation, _SUMMARY), None), unit.config.get("num_bins")
    if not seen or len(seen) % 2 or not isinstance(bins, int) or bins < 1:
        return None
    summary, width = np.asarray(seen, "float32").reshape(2, -1), 1.0 / bins
    if summary.shape[1] * width < 1:
        return [float(end) for end in summary[0, :-1]]
    weights = summary[1].cumsum()
    shares = width + np.arange(0.0, 1.0, width)
    ends = np.interp(shares, weights / weights[-1], summary[0]).astype("float32")
    return [float(end) for end in ends[:-1]]


def _values(
    unit: Unit, situation: ConversionContext, names: frozenset[str]
) -> Iterator[tuple[float, ...]]:
    """Yield the values of a layer's variables of these names, and of those of what it makes."""
    loaded = situation.loaded
    for site in loaded.below(unit.site) if unit.site is not None else ():
        for variable, tensor in zip(
            loaded.placed.variables.get(site, ()), loaded.placed.sources.get(site, ()), strict=True
        ):
            if variable.name.rpartition("/")[2] in names and tensor in loaded.document.adapted:
                yield loaded.document.adapted[tensor]
