"""
Preprocessing layers, and the results of ``adapt`` as arguments of a layer: vocabularies, weights of
words, bin boundaries, and the mean and variance of a Normalization.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, Unit, map_layers, walk
from policytool.migration.convert.rewrites._base import (
    ConversionContext,
    Split,
    layer_beside,
    rewrite,
    splice,
)
from policytool.migration.convert.target import display_value
from policytool.migration.convert.tensor_facts import input_shape
from policytool.migration.plan import REBUILD
from policytool.model.calls import tensors
from policytool.model.tree import INPUT_CLASS, LAYERS
from policytool.model.tree.storage import DEPENDENCIES
from policytool.releases import dtypes, generations
from policytool.releases.keras_objects import snake_case
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy, policy_from_name
from policytool.releases.releases import release_name, releases_in
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from policytool.migration.convert.architecture import Value


_WEIGHTS: Final = "idf_weights"
_SUMMARY: Final = frozenset({"summary", "0"})
"""The name of the single variable of a Keras 2 Discretization; archives use a number."""


def _stored_weights(unit: Unit, context: ConversionContext) -> list[Value] | None:
    """Return the stored weights of a lookup, including special words; None if there are none."""
    weights = next(_stored_values(unit, context, frozenset({_WEIGHTS})), None)
    return list(weights) if weights is not None else None


def _with_weights(unit: Unit, stored: list[Value] | None) -> Unit:
    """
    Return a lookup with the values of its variable: the stored values, or the values that releases
    compute from the weights in the config, one for each word of the vocabulary.

    Unknown words have the mean of all weights, and unused entries up to ``max_tokens`` have zero
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
    """Return the entries for unknown words, which come first in a vocabulary with weights."""
    if unit.class_name == "TextVectorization":
        return ["[UNK]"]
    count = unit.config.get("num_oov_indices", 1)
    unknown = unit.config.get("oov_token", -1 if unit.class_name == "IntegerLookup" else "[UNK]")
    return [unknown] * count if isinstance(count, int) else []


def bin_boundaries(unit: Unit, context: ConversionContext) -> list[Value] | None:
    """
    Return the bin boundaries that Keras 2 computes from the adapted values and their counts; None
    if the file does not contain them.

    The computation is that of ``get_bin_boundaries`` in
    keras/layers/preprocessing/discretization.py, with NumPy.
    """
    import numpy as np

    values, bins = next(_stored_values(unit, context, _SUMMARY), None), unit.config.get("num_bins")
    if not values or len(values) % 2 or not isinstance(bins, int) or bins < 1:
        return None
    summary, width = np.asarray(values, "float32").reshape(2, -1), 1.0 / bins
    if summary.shape[1] * width < 1:
        return [float(end) for end in summary[0, :-1]]
    weights = summary[1].cumsum()
    shares = width + np.arange(0.0, 1.0, width)
    ends = np.interp(shares, weights / weights[-1], summary[0]).astype("float32")
    return [float(end) for end in ends[:-1]]


def _stored_values(
    unit: Unit, context: ConversionContext, names: frozenset[str]
) -> Iterator[tuple[float, ...]]:
    """Yield the values of the named variables of a layer and of the layers that it creates."""
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
    Return the vocabularies that an archive or a SavedModel stores outside its config, by the path
    of the layer.
    """
    texts = context.loaded.document.vocabularies
    vocabularies: dict[str, list[Value]] = {}
    if any(DEPENDENCIES in path for path in texts):
        paths = _dependency_paths(root, (), texts)
    else:
        paths = _state_paths(root, ()) if texts else iter(())
    for state_path, unit in paths:
        text = texts.get((*state_path, "_lookup_layer"), texts.get(state_path))
        if context.loaded.is_saved_object and unit.site is not None:
            text = texts.get((str(context.loaded.sites[unit.site].node),))
        if text is not None:
            vocabularies[unit.path] = _words(unit, text, context)
    return vocabularies


def _words(unit: Unit, text: str, context: ConversionContext) -> list[Value]:
    """Return a vocabulary, including special words if it has weights."""
    numbers = (
        unit.class_name == "IntegerLookup"
        and unit.config.get("vocabulary_dtype", "int64") != "string"
    )
    words: list[Value] = [int(line) if numbers else line for line in text.split("\n")]
    if context.loaded.is_saved_object and unit.config.get("output_mode") == _WEIGHTED:
        return [*_special_words(unit), *words]
    return words


def _state_paths(unit: Unit, state_path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Unit]]:
    """Yield a unit and its descendants, each with the path of its state in Keras 3 archives."""
    yield state_path, unit
    used: Counter[str] = Counter()
    for inner in unit.network.units if unit.network is not None else ():
        if inner.role is Role.OPERATION:
            continue
        name = snake_case(inner.class_name)
        number, used[name] = used[name], used[name] + 1
        yield from _state_paths(
            inner, (*state_path, LAYERS, f"{name}_{number}" if number else name)
        )


def _dependency_paths(
    unit: Unit, path: tuple[str, ...], texts: Iterable[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Unit]]:
    """
    Yield the lookups whose vocabularies are stored in the layout of TF 2.12 to 2.14, with their
    paths.

    The numbers in this layout have gaps, because most layers count twice. The vocabularies of a
    class belong to its lookups without a vocabulary in the config, in the same order. They are left
    out if their counts differ, or if the model contains several nested models of a class.
    """
    container = (*path, DEPENDENCIES)
    stored = {
        name[len(container)]
        for name in texts
        if name[: len(container)] == container
        and name[len(container) + 1 :] in ((), ("_lookup_layer",))
    }
    units = unit.network.units if unit.network is not None else ()
    grouped = group_pairs(
        (snake_case(inner.class_name), inner) for inner in units if inner.role is not Role.OPERATION
    )
    for base, inners in grouped.items():
        numbered = re.compile(re.escape(base) + "(?:_([0-9]{1,6}))?")
        matches = filter(None, map(numbered.fullmatch, stored))
        numbers = sorted(int(match[1] or 0) for match in matches)
        lookups = [
            inner
            for inner in inners
            if layer_facts(inner.class_name).is_lookup and inner.config.get("vocabulary") is None
        ]
        if len(numbers) == len(lookups):
            for position, lookup in zip(numbers, lookups, strict=True):
                yield (*container, f"{base}_{position}" if position else base), lookup
        if len(inners) == 1 and inners[0].network is not None:
            yield from _dependency_paths(inners[0], (*container, base), texts)


def with_vocabulary(unit: Unit, context: ConversionContext, stored: list[Value] | None) -> Unit:
    """
    Return a lookup layer with its vocabulary in its config; refused if the file contains none.
    """
    vocabulary, target, log = unit.config.get("vocabulary"), context.target, context.log
    without_size = unit.without("vocabulary_size")
    if isinstance(vocabulary, str) and stored is None:
        log.refuse(
            "vocabulary",
            unit,
            f"{unit.path} ({unit.class_name}) refers to a vocabulary file, "
            f"{display_value(vocabulary)}, which is not part of the model",
        )
        return without_size
    if not isinstance(vocabulary, list) and stored is not None:
        log.change(
            "vocabulary",
            unit,
            f"the vocabulary of {unit.path} ({len(stored)} words) moves to its config",
        )
        without_size, vocabulary = without_size.with_config(vocabulary=stored), stored
    if unit.config.get("output_mode") == _WEIGHTED:
        without_size = _with_word_weights(without_size, context)
    if vocabulary is None:
        return _without_vocabulary(without_size, context)
    if not target.since("tf2.4" if unit.class_name == "TextVectorization" else "tf2.3"):
        log.refuse(
            "vocabulary",
            unit,
            f"{unit.path} ({unit.class_name}) stores its vocabulary in its config, which "
            f"{target.name} does not support",
        )
    return without_size


def _with_word_weights(unit: Unit, context: ConversionContext) -> Unit:
    """Return a lookup with the weights of its words; refused if the file contains none."""
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
    Return a layer whose vocabulary is not in the file: an architecture can be adapted again, but a
    model is refused.
    """
    told_of = context.log
    has_no_words = context.source_release in _WITHOUT_WORDS
    advice = (
        f"{unit.path} ({unit.class_name}): TF 2.5 and older store no vocabulary in configs"
        if has_no_words
        else f"{unit.path} ({unit.class_name}) was adapted, but the config in the file does not "
        "contain its vocabulary"
    )
    if context.loaded.document.tensors is None:
        told_of.caution("vocabulary", unit, f"{advice}; adapt it again before use")
        return unit
    if context.loaded.document.vocabularies:
        advice = (
            "the file contains vocabularies, but it is unknown whether one of them belongs to "
            f"{unit.path} ({unit.class_name}); save the model as a SavedModel, and convert that"
        )
        told_of.refuse("vocabulary", unit, advice)
        return unit
    told_of.refuse(
        "vocabulary",
        unit,
        f"{advice}; {REBUILD}; pass the vocabulary to the rebuilt layer"
        if has_no_words
        else f"{advice}; pass the vocabulary to the layer and save the model again",
    )
    return unit


_WITHOUT_WORDS: Final = releases_in("tf1.15 to tf2.5")
"""
The releases that store no vocabulary in the config of a lookup or TextVectorization, even if it was
passed to the layer (measured in TF 2.3 to 2.5).
"""


_IN_FLOATX: Final = frozenset({"tf2.1", "tf2.2", "tf2.3", "tf2.4"})
_SMALLEST: Final = 1e-14
"""
The square of Keras' epsilon. Later releases divide by at least epsilon, TF 2.1 to 2.3 by the square
root of the variance without a limit.
"""


def normalization(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return the layer in the target's form. A mean and a variance that the config cannot contain
    become values of its variables.
    """
    axis = unit.config.get("axis")
    if isinstance(axis, list) and len(axis) == 1 and not context.target.since("tf2.3"):
        unit = unit.with_config(axis=axis[0])
    unit = _in_floatx(unit, context)
    mean, variance = unit.config.get("mean"), unit.config.get("variance")
    if (mean is None and variance is None) or context.target.since("tf2.9"):
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
    Return the layer with the dtype in which it computed: up to TF 2.4 that is floatx, independent
    of its policy (``call`` in normalization.py of TF 2.3 and 2.4).
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
    """Return a Normalization whose mean and variance are variables instead of arguments."""
    without_statistics = unit.without("mean", "variance")
    variable_values: dict[str, Value] = {"mean": [*mean], "variance": [*variance], "count": 0}
    if len(mean) == 1:  # a single value for all axes
        if not context.target.since("tf2.3"):
            context.log.refuse(
                "argument",
                unit,
                f"{unit.path} (Normalization) has a single mean of {display_value(mean[0])} for "
                f"all inputs, which {context.target.name} cannot represent",
            )
            return unit
        without_statistics, variable_values = (
            without_statistics.with_config(axis=None),
            {"mean": mean[0], "variance": variance[0], "count": 0},
        )
    context.log.change(
        "variables",
        unit,
        f"mean and variance of Normalization become variables because {context.target.name} "
        "stores them only as weights",
    )
    return replace(without_statistics, given=variable_values)


def _plain_numbers(value: Value) -> list[float] | None:
    """Return a number or a list of numbers as a list; None for other values."""
    items = value if isinstance(value, list) else [value]
    numbers = [float(item) for item in items if isinstance(item, int | float)]
    return numbers if len(numbers) == len(items) and numbers else None


_RENAMED_2_5: Final = {
    "IntegerLookup": {
        "max_values": "max_tokens",
        "mask_value": "mask_token",
        "oov_value": "oov_token",
    },
    "CategoryEncoding": {"max_tokens": "num_tokens"},
    "Discretization": {"bins": "bin_boundaries"},
}
"""The keys of TF 2.3 and 2.4, with their names in TF 2.5 and later."""

_MODES_2_9: Final = {"binary": "multi_hot", "tf-idf": "tf_idf"}
"""The output modes of TF 2.3 to 2.5, with their names in TF 2.6 and later (as 2.9 writes them)."""

_SINCE: Final[dict[str, Callable[[Unit], bool]]] = {
    "tf2.5": lambda unit: unit.config.get("invert") is True,
    "tf2.9": lambda unit: (
        unit.config.get("split") == "character"
        or unit.config.get("standardize") in {"lower", "strip_punctuation"}
    ),
}
"""
The first release that supports a value of an argument, and a test for the value. TF 2.3 and 2.4
number words differently with ``invert``; TF 2.5 splits only at white space.
"""

_COUNTS: Final = frozenset({"one_hot", "multi_hot", "count"})
_ENCODED: Final = frozenset({*_COUNTS, "tf_idf"})
_FLAT: Final = 2
"""The number of axes of a batch of vectors."""

_IMAGES: Final = frozenset({"Resizing", "CenterCrop"})
_DEFAULT_SALT: Final[Value] = [956888297470, 956888297470]
"""
The value that TF 2.3 to 2.5 write for a Hashing layer without a salt (hashing.py), but read as a
salt.
"""


@rewrite(
    applies=lambda _: True,
)
def preprocessing(root: Unit, context: ConversionContext) -> Unit:
    """
    Adapts preprocessing layers: argument names, the location of vocabularies, and supported dtypes.

    In TF 2.3 to 2.5 the layers are in ``experimental.preprocessing``, with other names:
    ``max_values``, ``bins``, ``binary``. Measured with TF 2.3 to 2.15, tf_keras 2.21 and Keras
    3.15: if a layer returns integers, the dtype is int64 with any config, and each release rejects
    the name of it that others write.
    """
    vocabularies = stored_vocabularies(root, context)
    integers = frozenset(_fed_with_integers(root))

    def change(unit: Unit) -> Unit:
        if layer_facts(unit.class_name).makes_ids:
            return _encoder(unit, context, vocabularies)
        if unit.class_name == "Normalization":
            return normalization(unit, context)
        if unit.class_name == "Rescaling":
            return _rescaling(unit, context)
        if unit.class_name == "RandomCrop" and context.crosses:
            context.log.refuse(
                "class",
                unit,
                f"{unit.path} (RandomCrop) also crops during prediction in Keras 2, but only "
                "during training in Keras 3",
            )
        if unit.class_name == "Resizing" and context.crosses and unit.name in integers:
            context.log.refuse(
                "argument",
                unit,
                f"{unit.path} (Resizing) receives integers, for which Keras 3 returns rounded "
                "values and Keras 2 returns floats; cast the input first",
            )
        if unit.class_name in _IMAGES and context.to_keras3 and not context.from_keras3:
            return unit.with_config(data_format="channels_last")
        return unit

    changed = map_layers(root, change)
    return splice(changed, _with_floats) if context.crosses and context.to_keras3 else changed


@rewrite(
    after=("inputs",),  # has the shapes of inputs where Keras 2 has them
    applies=lambda context: context.crosses and not context.to_keras3,
)
def encodings(root: Unit, context: ConversionContext) -> Unit:
    """
    Reports layers whose encoded categories have more than two axes, which only Keras 3 supports
    (``encode_categorical_inputs`` in tf_keras/src/layers/preprocessing/preprocessing_utils.py).
    """
    for model in walk(root):
        network = model.network
        for unit in network.units if network is not None else ():
            if network is None or unit.custom or not layer_facts(unit.class_name).makes_ids:
                continue
            mode, shape = unit.config.get("output_mode"), input_shape(unit, network)
            if mode not in _ENCODED or not isinstance(shape, list):
                continue
            facts, split = layer_facts(unit.class_name), unit.config.get("split")
            adds_axis = mode == "one_hot" or (facts.splits_texts and split is not None)
            adds_axis = adds_axis and shape[-1] != 1
            if len(shape) + adds_axis > _FLAT:
                context.log.refuse(
                    "argument",
                    unit,
                    f"{unit.path} ({unit.class_name}) has the output mode {mode}, which "
                    f"{context.target.name} supports only for results with two axes",
                )
    return root


def _with_floats(unit: Unit) -> Split | None:
    """
    Return a lookup followed by a layer that casts: counts are int64 in Keras 3, even if the dtype
    of the layer is float32, and floats in Keras 2 (Keras 3.0 to 3.15, tf_keras 2.21).
    """
    counts = unit.config.get("output_mode") in _COUNTS
    if unit.custom or not layer_facts(unit.class_name).is_lookup or not counts:
        return None
    policy = unit.config.get("dtype")
    floats = isinstance(policy, Policy) and policy.compute_dtype in dtypes.FLOATS
    dtype = policy if floats else policy_from_name("float32")
    cast = layer_beside(unit, "Rescaling", "as_floats", scale=1.0, offset=0.0)
    return Split(unit=unit, after=(cast.with_config(dtype=dtype),))


def _fed_with_integers(root: Unit) -> Iterator[str]:
    """Yield the names of layers whose input is a model input of integers."""
    for unit in walk(root):
        members = unit.network.units if unit.network is not None else ()
        integer_inputs = {
            member.name
            for member in members
            if member.class_name == INPUT_CLASS
            and str(member.config.get("dtype")).startswith(("int", "uint"))
        }
        if unit.network is not None and unit.network.is_chain and integer_inputs:
            yield members[1].name if len(members) > 1 else ""
        for member in members:
            if any(
                reference.layer in integer_inputs
                for call in member.calls
                for argument in call.args
                for reference in tensors(argument)
            ):
                yield member.name


def _encoder(unit: Unit, context: ConversionContext, vocabularies: dict[str, list[Value]]) -> Unit:
    """Return a layer that encodes categories as numbers, in the target's format."""
    if context.target.lacks("layers", unit.class_name, module=context.target.writes_modules):
        return unit  # the check of classes refuses it, and no other reason is needed
    modern = _in_stored_dtype(_without_dtype(_modern(unit), context), context)
    if layer_facts(unit.class_name).is_lookup:
        modern = with_vocabulary(modern, context, vocabularies.get(unit.path))
    if (
        unit.class_name == "Hashing"
        and unit.config.get("salt") == _DEFAULT_SALT
        and context.target.since("tf2.9")
    ):
        text = (
            f"{unit.path} (Hashing) has the salt that TF 2.3 to 2.5 write if no salt is set, but "
            "later releases would use this salt for hashing"
        )
        context.log.refuse(
            "argument",
            unit,
            f"{text}; set a different salt or remove it, and save the model with a newer release",
        )
    if unit.class_name == "Discretization" and modern.config.get("bin_boundaries") in (None, []):
        modern = _discretization(modern, context)
    _judge(modern, context)
    return _older(modern, context)


def _discretization(unit: Unit, context: ConversionContext) -> Unit:
    """Return a layer with the bin boundaries that ``adapt`` computed in its config."""
    boundaries = bin_boundaries(unit, context)
    if boundaries is not None:
        context.log.change("bins", unit, f"the bin boundaries of {unit.path} move to its config")
        if context.loaded.document.format == "keras":
            context.log.caution(
                "bins",
                unit,
                f"{unit.path} (Discretization) loses its bins when TF 2.15 or tf_keras loads this "
                "archive; the converted model keeps the bins, so its predictions match the model "
                "before it was saved",
            )
        return unit.with_config(bin_boundaries=boundaries, num_bins=None)
    if context.loaded.document.tensors is not None:
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} (Discretization) was adapted, but the file does not contain its "
            "bin boundaries; set bin_boundaries and save the model again",
        )
    return unit


def _judge(unit: Unit, context: ConversionContext) -> None:
    """Refuse argument values that older releases do not support or compute differently."""
    for release, uses_value in _SINCE.items():
        if not uses_value(unit) or context.target.since(release):
            continue
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} ({unit.class_name}) uses a value for standardize, split or invert that "
            f"releases before {release_name(release)} do not support",
        )


def _modern(unit: Unit) -> Unit:
    """Return the layer with the keys and modes of TF 2.9 and later."""
    names = _RENAMED_2_5.get(unit.class_name, {})
    config: dict[str, Value] = {
        names.get(key, key): value
        for key, value in unit.config.items()
        if names.get(key, key) == key or names[key] not in unit.config
    }
    mode = config.get("output_mode")
    if isinstance(mode, str) and mode in _MODES_2_9:
        config["output_mode"] = _MODES_2_9[mode]
    bins = config.get("bin_boundaries")
    if isinstance(bins, list) and bins and bins[-1] in (float("inf"), "Infinity"):
        config["bin_boundaries"] = bins[:-1]  # TF 2.4 writes the end of its last bin
    if config.get("bin_boundaries") and config.get("num_bins") is not None:
        config["num_bins"] = None  # the argument of adapt(), which Keras 3 writes too
    if unit.class_name == "CategoryEncoding" and "output_mode" not in config:
        config["output_mode"] = "multi_hot"
    return replace(unit, config=config)


def _older(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return the layer with the keys and modes of the target, if it is older than TF 2.9 or TF 2.5.
    """
    target, config = context.target, dict(unit.config)
    if unit.class_name == "Discretization" and target.is_keras3:
        config.pop("trainable", None)
    if not target.since("tf2.9"):
        modes = {new: old for old, new in _MODES_2_9.items()}
        mode = config.get("output_mode")
        config |= {"output_mode": modes.get(mode, mode)} if isinstance(mode, str) else {}
    if not target.since("tf2.5"):
        names = {new: old for old, new in _RENAMED_2_5.get(unit.class_name, {}).items()}
        config = {names.get(key, key): value for key, value in config.items()}
        if config.get("output_mode") == "int":
            config.pop("output_mode" if unit.class_name != "TextVectorization" else "", None)
    return replace(unit, config=config)


def _without_dtype(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return the layer without a dtype if it returns int64 with any dtype, or if Keras 2 supports only
    ``string``.
    """
    gives_integers = unit.config.get("output_mode", "int") == "int"
    takes_one_alone = unit.class_name == "TextVectorization" or (
        layer_facts(unit.class_name).is_lookup and not context.target.since("tf2.9")
    )
    if "dtype" not in unit.config or not (gives_integers or takes_one_alone):
        return unit
    context.log.change(
        "dtype",
        unit,
        f"the dtype of {unit.class_name} is omitted because it does not affect the output",
    )
    return unit.without("dtype")


def _in_stored_dtype(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return the layer with its result dtype under a mixed policy: in Keras 3 the variable dtype;
    Keras 2 cannot count in 16 bits.
    """
    policy = unit.config.get("dtype")
    if (
        not context.from_keras3
        or context.to_keras3
        or not isinstance(policy, Policy)
        or policy.variable_dtype in (None, policy.compute_dtype)
    ):
        return unit
    context.log.change(
        "dtype",
        unit,
        (f"{policy.name} becomes {policy.variable_dtype}, the output dtype of {unit.class_name}"),
    )
    return unit.with_config(dtype=policy_from_name(str(policy.variable_dtype)))


def _rescaling(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return the layer with an offset, which later releases require, or without an offset of 0, which
    TF 2.2 does not support.
    """
    if context.target.since("tf2.3"):
        return unit if "offset" in unit.config else unit.with_config(offset=0.0)
    return unit.without("offset") if unit.config.get("offset") in (0, 0.0) else unit
