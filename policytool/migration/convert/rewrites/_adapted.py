"""
What ``adapt`` stored, as arguments of a layer: vocabularies, the weights of words, the ends of
bins, and the mean and variance of a Normalization.

"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, Unit
from policytool.migration.convert.target import display_value
from policytool.model.tree import LAYERS
from policytool.releases import generations
from policytool.releases.naming import snake_case
from policytool.releases.policy import Policy
from policytool.releases.releases import release_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.convert.architecture import Unit, Value
    from policytool.migration.convert.rewrites._base import ConversionContext


_WEIGHTS: Final = "idf_weights"
_SUMMARY: Final = frozenset({"summary", "0"})
"""What a Discretization of Keras 2 calls its one variable; in an archive it has a number."""


def _stored_weights(unit: Unit, context: ConversionContext) -> list[Value] | None:
    """Return the weights that a lookup stores, of special words too; None where it stores none."""
    weights = next(_stored_values(unit, context, frozenset({_WEIGHTS})), None)
    return list(weights) if weights is not None else None


def _with_weights(unit: Unit, stored: list[Value] | None) -> Unit:
    """
    Return a lookup with the values of its variable: what is stored, or what releases make of the
    weights that they are given, one for each word of the vocabulary.

    Words that are not in it have the mean of all, and those up to ``max_tokens`` have zero
    (``set_vocabulary`` in keras/src/layers/preprocessing/index_lookup.py).
    """
    weights, words = unit.config.get(_WEIGHTS), unit.config.get("vocabulary")
    if stored is None and isinstance(weights, list) and isinstance(words, list):
        numbers = [float(weight) for weight in weights if isinstance(weight, int | float)]
        special = _special_words(unit)
        front = 0 if words[: len(special)] == special else len(special)
        stored = [*([sum(numbers) / max(len(numbers), 1)] * front), *numbers]
        most = unit.config.get("max_tokens")
        if unit.config.get("pad_to_max_tokens") is True and isinstance(most, int):
            stored += [0.0] * (most - len(stored))
    return unit if stored is None else replace(unit, given={**unit.given, _WEIGHTS: stored})


def _special_words(unit: Unit) -> list[Value]:
    """Return what precedes a vocabulary with weights: the words for unknown ones."""
    if unit.class_name == "TextVectorization":
        return ["[UNK]"]
    count = unit.config.get("num_oov_indices", 1)
    unknown = unit.config.get("oov_token", -1 if unit.class_name == "IntegerLookup" else "[UNK]")
    return [unknown] * count if isinstance(count, int) else []


def bin_boundaries(unit: Unit, context: ConversionContext) -> list[Value] | None:
    """
    Return the ends of bins that Keras 2 makes of what it has seen: values and their counts.

    As ``get_bin_boundaries`` in keras/layers/preprocessing/discretization.py does, with NumPy.
    """
    import numpy as np

    seen, bins = next(_stored_values(unit, context, _SUMMARY), None), unit.config.get("num_bins")
    if not seen or len(seen) % 2 or not isinstance(bins, int) or bins < 1:
        return None
    summary, width = np.asarray(seen, "float32").reshape(2, -1), 1.0 / bins
    if summary.shape[1] * width < 1:
        return [float(end) for end in summary[0, :-1]]
    weights = summary[1].cumsum()
    shares = width + np.arange(0.0, 1.0, width)
    ends = np.interp(shares, weights / weights[-1], summary[0]).astype("float32")
    return [float(end) for end in ends[:-1]]


def _stored_values(
    unit: Unit, context: ConversionContext, names: frozenset[str]
) -> Iterator[tuple[float, ...]]:
    """Yield the values of a layer's variables of these names, and of those of what it makes."""
    loaded = context.loaded
    for site in loaded.below(unit.site) if unit.site is not None else ():
        for variable, tensor in zip(
            loaded.placed.variables.get(site, ()), loaded.placed.sources.get(site, ()), strict=True
        ):
            if variable.name.rpartition("/")[2] in names and tensor in loaded.document.adapted:
                yield loaded.document.adapted[tensor]


_WEIGHTED: Final = "tf_idf"


def stored_vocabularies(root: Unit, context: ConversionContext) -> dict[str, list[Value]]:
    """
    Return the vocabularies that an archive or a SavedModel holds beside its config, by the layer's
    path.
    """
    texts = context.loaded.document.vocabularies
    vocabularies: dict[str, list[Value]] = {}
    for where, unit in _state_paths(root, ()) if texts else ():
        text = texts.get((*where, "_lookup_layer"), texts.get(where))
        if context.loaded.is_saved_object and unit.site is not None:
            text = texts.get((str(context.loaded.sites[unit.site].node),))
        if text is not None:
            vocabularies[unit.path] = _words(unit, text, context)
    return vocabularies


def _words(unit: Unit, text: str, context: ConversionContext) -> list[Value]:
    """Return a vocabulary, with special words where it has weights."""
    numbers = (
        unit.class_name == "IntegerLookup"
        and unit.config.get("vocabulary_dtype", "int64") != "string"
    )
    words: list[Value] = [int(line) if numbers else line for line in text.split("\n")]
    if context.loaded.is_saved_object and unit.config.get("output_mode") == _WEIGHTED:
        return [*_special_words(unit), *words]
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


def with_vocabulary(unit: Unit, context: ConversionContext, stored: list[Value] | None) -> Unit:
    """
    Return a lookup layer with its vocabulary in its config; refused where the file holds none.
    """
    vocabulary, target, log = unit.config.get("vocabulary"), context.target, context.log
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
        left = _weighted(left, context)
    if vocabulary is None:
        return _without_vocabulary(left, context)
    if not target.since("tf2.4" if unit.class_name == "TextVectorization" else "tf2.3"):
        log.refuse(
            "vocabulary",
            unit,
            f"{unit.path} ({unit.class_name}) stores its vocabulary in its config, which "
            f"{target.name} does not support",
        )
    return left


def _weighted(unit: Unit, context: ConversionContext) -> Unit:
    """Return a lookup with the weights of its words, which are refused where the file has none."""
    words, stored = unit.config.get("vocabulary"), _stored_weights(unit, context)
    if unit.config.get("idf_weights") is None and stored is not None and isinstance(words, list):
        unit = unit.with_config(idf_weights=stored[: len(words)])
    if unit.config.get("idf_weights") is None:
        context.log.refuse(
            "vocabulary",
            unit,
            (f"{unit.path} ({unit.class_name}) uses tf_idf, but the file contains no idf_weights"),
        )
    return _with_weights(unit, stored)


def _without_vocabulary(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return a layer that the file has no vocabulary of: an architecture may be adapted anew, a model
    is lost.
    """
    told_of = context.log
    what = (
        f"{unit.path} ({unit.class_name}) was adapted, but the config in the file "
        "does not contain its vocabulary"
    )
    if context.loaded.document.tensors is None:
        told_of.caution("vocabulary", unit, f"{what}; adapt it again before use")
        return unit
    told_of.refuse(
        "vocabulary",
        unit,
        f"{what}; pass the vocabulary to the layer and save the model again",
    )
    return unit


_IN_FLOATX: Final = frozenset({"tf2.1", "tf2.2", "tf2.3", "tf2.4"})
_SMALLEST: Final = 1e-14
"""
The square of Keras' epsilon: later releases divide by no less than its root, TF 2.1 to 2.3 by the
variance's root as it is.
"""


def normalization(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return the layer as the target has it; a mean and a variance that it cannot be told become
    values of its variables.
    """
    axis = unit.config.get("axis")
    if isinstance(axis, list) and len(axis) == 1 and not context.target.since("tf2.3"):
        unit = unit.with_config(axis=axis[0])
    unit = _in_floatx(unit, context)
    mean, variance = unit.config.get("mean"), unit.config.get("variance")
    if mean is None and variance is None:
        return unit
    if context.target.since("tf2.9"):
        return unit
    values = [_plain_numbers(mean), _plain_numbers(variance)]
    if None in values or len(values[0] or ()) != len(values[1] or ()):
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} (Normalization) has a mean with more than one axis, which "
            f"{context.target.name} cannot represent",
        )
        return unit
    if not context.target.since("tf2.4") and min(values[1] or (0,)) < _SMALLEST:
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} (Normalization) has a variance of 0, which causes a division by zero in "
            f"{context.target.name}",
        )
        return unit
    return _as_variables(unit, values[0] or [], values[1] or [], context)


def _in_floatx(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return the layer in what it computed in: up to TF 2.4 that is floatx, whatever its policy
    (``call`` in normalization.py of TF 2.3 and 2.4).
    """
    policy = unit.config.get("dtype")
    if not isinstance(policy, Policy) or policy.compute_dtype in {None, "float32"}:
        return unit
    if context.source_release in _IN_FLOATX and context.target.since("tf2.5"):
        context.log.change(
            "dtype",
            unit,
            f"{policy.name} becomes float32, the compute dtype of Normalization in "
            f"{release_name(context.source_release)}",
        )
        return unit.with_config(dtype=generations.parse("float32", context.loaded.generation))
    if context.source_release not in _IN_FLOATX and not context.target.since("tf2.5"):
        context.log.refuse(
            "policy",
            unit,
            f"{unit.path} (Normalization) has the policy {policy.name}, but "
            f"{context.target.name} always computes this layer in float32",
        )
    return unit


def _as_variables(
    unit: Unit, mean: list[float], variance: list[float], context: ConversionContext
) -> Unit:
    left = unit.without("mean", "variance")
    given: dict[str, Value] = {"mean": [*mean], "variance": [*variance], "count": 0}
    if len(mean) == 1:  # one value for all, whatever the axes have
        if not context.target.since("tf2.3"):
            context.log.refuse(
                "argument",
                unit,
                f"{unit.path} (Normalization) has a single mean of {display_value(mean[0])} for "
                f"all inputs, which {context.target.name} cannot represent",
            )
            return unit
        left, given = (
            left.with_config(axis=None),
            {"mean": mean[0], "variance": variance[0], "count": 0},
        )
    context.log.change(
        "variables",
        unit,
        f"mean and variance of Normalization become variables because {context.target.name} "
        "stores them only as weights",
    )
    return replace(left, given=given)


def _plain_numbers(value: Value) -> list[float] | None:
    """Return a number or a list of numbers as a list; None for anything else."""
    items = value if isinstance(value, list) else [value]
    numbers = [float(item) for item in items if isinstance(item, int | float)]
    return numbers if len(numbers) == len(items) and numbers else None
