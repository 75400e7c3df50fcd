"""Preprocessing layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, Unit, map_units, references, walk
from policytool.migration.convert.rewrites._adapted import (
    bin_boundaries,
    normalization,
    stored_vocabularies,
    with_vocabulary,
)
from policytool.migration.convert.rewrites._base import (
    ConversionContext,
    Split,
    layer_beside,
    rewrite,
    splice,
)
from policytool.model.tree import INPUT_CLASS
from policytool.releases import dtypes, known_arguments
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy, policy_from_name
from policytool.releases.releases import release_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.migration.convert.architecture import Value

_RENAMED_2_5: Final = {
    "IntegerLookup": {
        "max_values": "max_tokens",
        "mask_value": "mask_token",
        "oov_value": "oov_token",
    },
    "CategoryEncoding": {"max_tokens": "num_tokens"},
    "Discretization": {"bins": "bin_boundaries"},
}
"""Keys of TF 2.3 and 2.4, and those of TF 2.5 and later."""

_MODES_2_9: Final = {"binary": "multi_hot", "tf-idf": "tf_idf"}
"""Output modes of TF 2.3 to 2.5, and those of later releases (2.6 on, as 2.9 writes them)."""

_SINCE: Final[dict[str, Callable[[Unit], bool]]] = {
    "tf2.5": lambda unit: unit.config.get("invert") is True,
    "tf2.9": lambda unit: (
        unit.config.get("split") == "character"
        or unit.config.get("standardize") in {"lower", "strip_punctuation"}
    ),
}
"""
The first releases that know a value of an argument: TF 2.3 and 2.4 number words otherwise when they
invert; TF 2.5 splits at white space alone.
"""

_COUNTS: Final = frozenset({"one_hot", "multi_hot", "count"})
_IMAGES: Final = frozenset({"Resizing", "CenterCrop"})
_DEFAULT_SALT: Final[Value] = [956888297470, 956888297470]
"""
What TF 2.3 to 2.5 write for a Hashing layer without a salt (hashing.py); they read it as a salt.
"""


@rewrite(
    applies=lambda _: True,
)
def preprocessing(root: Unit, context: ConversionContext) -> Unit:
    """
    Adapts preprocessing layers: argument names, the location of vocabularies, and supported dtypes.

    TF 2.3 to 2.5 have them in ``experimental.preprocessing``, with other names: ``max_values``,
    ``bins``, ``binary``. Measured with TF 2.3 to 2.15, tf_keras 2.21 and Keras 3.15: where a layer
    gives integers, its dtype is int64 whatever it says, and every release refuses another's word
    for it.
    """
    vocabularies = stored_vocabularies(root, context)
    integers = frozenset(_fed_with_integers(root))

    def change(unit: Unit) -> Unit:
        if unit.custom or unit.role is not Role.LAYER:
            return unit
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
            text = (
                f"{unit.path} (Resizing) receives integers, for which Keras 3 returns rounded "
                "values and Keras 2 returns floats; cast the input first"
            )
            context.log.refuse("argument", unit, text)
        if unit.class_name in _IMAGES and context.to_keras3 and not context.from_keras3:
            return unit.with_config(data_format="channels_last")
        return unit

    changed = map_units(root, change)
    return splice(changed, _with_floats) if context.crosses and context.to_keras3 else changed


def _with_floats(unit: Unit) -> Split | None:
    """
    Return a lookup with a layer behind it that casts: counts and the like are int64 in Keras 3,
    though the layer says float32, and floats in Keras 2 (Keras 3.0 to 3.15, tf_keras 2.21).
    """
    if unit.custom or not layer_facts(unit.class_name).is_lookup:
        return None
    if unit.config.get("output_mode") not in _COUNTS:
        return None
    policy = unit.config.get("dtype")
    floats = isinstance(policy, Policy) and policy.compute_dtype in dtypes.FLOATS
    dtype = policy if floats else policy_from_name("float32")
    cast = layer_beside(unit, "Rescaling", "as_floats", scale=1.0, offset=0.0)
    return Split(unit=unit, after=(cast.with_config(dtype=dtype),))


def _fed_with_integers(root: Unit) -> Iterator[str]:
    """Yield the names of layers that get an input of integers as it comes."""
    for unit in walk(root):
        members = unit.network.units if unit.network is not None else ()
        whole = {
            member.name
            for member in members
            if member.class_name == INPUT_CLASS
            and str(member.config.get("dtype")).startswith(("int", "uint"))
        }
        if unit.network is not None and unit.network.is_chain and whole:
            yield members[1].name if len(members) > 1 else ""
        for member in members:
            if any(
                reference.layer in whole
                for call in member.calls
                for argument in call.args
                for reference in references(argument)
            ):
                yield member.name


def _encoder(unit: Unit, context: ConversionContext, vocabularies: dict[str, list[Value]]) -> Unit:
    """Return a layer that makes numbers of categories, in the target's words."""
    if _is_missing(unit.class_name, context):
        return unit  # refused where classes are judged, and for that alone
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
    """Return a layer whose bins ``adapt`` found with their ends in its config."""
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
        text = (
            f"{unit.path} (Discretization) was adapted, but the file does not contain its "
            "bin boundaries; set bin_boundaries and save the model again"
        )
        context.log.refuse("argument", unit, text)
    return unit


def _is_missing(class_name: str, context: ConversionContext) -> bool:
    objection = known_arguments.objection(
        context.target.loader, "layers", class_name, {}, module=context.target.says_modules
    )
    return objection is not None and objection.missing


def _judge(unit: Unit, context: ConversionContext) -> None:
    """Refuse what older releases do otherwise, or not at all, though they have the argument."""
    older = [
        release
        for release, uses_value in _SINCE.items()
        if uses_value(unit) and not context.target.since(release)
    ]
    for release in older:
        text = (
            f"{unit.path} ({unit.class_name}) uses a value for standardize, split or invert that "
            f"releases before {release_name(release)} do not support"
        )
        context.log.refuse("argument", unit, text)


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
        config["num_bins"] = None  # what adapt() was asked for, which Keras 3 writes beside it
    if unit.class_name == "CategoryEncoding" and "output_mode" not in config:
        config["output_mode"] = "multi_hot"
    return replace(unit, config=config)


def _older(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return the layer with the keys and modes of the target, where that is older than TF 2.9, or TF
    2.5.
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
    Return the layer without a dtype where it gives int64 whatever that says, and where Keras 2
    takes ``string`` alone.
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
    Return the layer with the dtype that it gives under a mixed policy: in Keras 3 that of its
    variables, and Keras 2 cannot count in 16 bits.
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
    Return the layer with an offset, which later releases need, or without one of 0, which TF 2.2
    does not know.
    """
    if not context.target.since("tf2.3") and unit.config.get("offset") in (0, 0.0):
        return unit.without("offset")
    return (
        unit
        if "offset" in unit.config or not context.target.since("tf2.3")
        else unit.with_config(offset=0.0)
    )
