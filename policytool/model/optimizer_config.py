"""
The stored optimizer of a file, its loss scale in all formats of ``LossScaleOptimizer``, and the
stored weights that it trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address, Layout
from policytool.model.model import Optimizer
from policytool.releases import dtypes, generations, keras_objects, policy_formats
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Auto, Dynamic, Fixed, Unscaled
from policytool.support.errors import SpellingError
from policytool.support.grouping import group_pairs
from policytool.support.text.jsontext import pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from policytool.formats.document import Document, Tensor
    from policytool.model.tree import Site
    from policytool.model.tree.storage import Placed
    from policytool.support.text.jsontext import Json

WRAPPERS: Final = frozenset({"LossScaleOptimizer", "LossScaleOptimizerV1", "LossScaleOptimizerV3"})
ALIASES: Final = {
    name.lower(): name
    for name in (
        "Adadelta",
        "Adafactor",
        "Adagrad",
        "Adam",
        "Adamax",
        "AdamW",
        "Ftrl",
        "Lamb",
        "Lion",
        "Muon",
        "Nadam",
        "RMSprop",
        "ScheduleFreeAdamW",
        "SGD",
        "TFOptimizer",
    )
}
"""
The class of an optimizer name such as that in ``compile("adam")``. Keras looks up the name in lower
case (``keras.optimizers.get``).
"""

WITH_OWN_DECAY: Final = "Nadam"
"""
The optimizer whose ``decay`` applies to its momentum (``schedule_decay`` in Keras 1 and 2) instead
of the learning rate.
"""

NEVER_WRAPPED: Final = frozenset({"Adafactor", "Lion"})
"""Optimizers that LossScaleOptimizerV3 wraps and saves, but that no Keras 2 release loads."""

_MAX_WRAPPERS: Final = 8
_COMPILED: Final = ("optimizer_config", "optimizer", "loss")
"""Keys of a training configuration; each training configuration has at least one of them."""

_INNER: Final = ("inner_optimizer", "optimizer")
_NEW_STYLE_KEYS: Final = frozenset({"jit_compile", "use_ema", "is_legacy_optimizer"})
"""Keys that only the new optimizers of TF 2.11 and later write."""


def optimizer_place(document: Document) -> tuple[Address, Json] | None:
    """
    Return the address of the serialised optimizer, and the optimizer.

    It is in HDF5's ``training_config``, in a SavedModel's root, or in Keras 3's ``compile_config``;
    None if the model was not compiled.
    """
    for address, holder in _holders(document):
        for key in ("optimizer_config", "optimizer"):
            if holder.get(key) is not None:
                return Address(part=address.part, pointer=address.pointer + pointer(key)), holder[
                    key
                ]
    return None


def configuration(document: Document) -> Json:
    """
    Return the training configuration with optimizer, loss and metrics; None if the model was not
    compiled.
    """
    return next(
        (
            holder
            for _, holder in _holders(document)
            if any(holder.get(key) is not None for key in _COMPILED)
        ),
        None,
    )


def _holders(document: Document) -> Iterator[tuple[Address, dict[str, Json]]]:
    """Yield the address and the value of each training configuration in a file."""
    root = document.config
    candidates: list[tuple[str, str, Json]] = [
        (document.training_part or "", document.training_pointer, document.training)
    ]
    if isinstance(root, dict):
        candidates += [
            (document.config_part or "", document.config_pointer + pointer(key), root.get(key))
            for key in ("training_config", "compile_config")
        ]
    for part, base, holder in candidates:
        if isinstance(holder, dict):
            yield Address(part=part, pointer=base), holder


def optimizer_config(document: Document) -> Json:
    """Return the serialised optimizer; None if the model was not compiled."""
    place = optimizer_place(document)
    return place[1] if place else None


def read(config: Json) -> Optimizer | None:
    """
    Parse a serialised optimizer; a plain name is the optimizer with default arguments.

    :raises SpellingError: if no release writes such a config.
    """
    if config is None:
        return None
    if isinstance(config, str):
        return Optimizer(class_name=ALIASES.get(config.lower(), config))
    scale: Dynamic | Fixed | None = None
    for _ in range(_MAX_WRAPPERS):
        class_name, inner = policy_formats.class_and_config(config)
        name = class_name.rpartition(">")[2]
        if name not in WRAPPERS:
            factor = inner.get("loss_scale_factor")
            if scale is None and factor is not None:
                scale = Fixed(value=policy_formats.number(inner, "loss_scale_factor"))
            return Optimizer(class_name=name, loss_scale=scale)
        scale = scale or scale_of(inner)
        config = inner.get("optimizer", inner.get("inner_optimizer"))
        if isinstance(config, str):
            return Optimizer(class_name=ALIASES.get(config.lower(), config), loss_scale=scale)
    raise SpellingError(f"the optimizer is wrapped more than {_MAX_WRAPPERS} times")


def innermost(config: Json) -> tuple[str, dict[str, Json]] | None:
    """
    Return the class and the config of a serialised optimizer, without wrappers. The config of a
    plain name is empty. None if there is no optimizer.

    :raises SpellingError: if no release writes such a config.
    """
    for _ in range(_MAX_WRAPPERS):
        if config is None:
            return None
        if isinstance(config, str):
            return ALIASES.get(config.lower(), config), {}
        class_name, inner = policy_formats.class_and_config(config)
        name = class_name.rpartition(">")[2]
        if name not in WRAPPERS:
            return name, inner
        config = inner.get("optimizer", inner.get("inner_optimizer"))
    raise SpellingError(f"the optimizer is wrapped more than {_MAX_WRAPPERS} times")


def scale_of(config: dict[str, Json]) -> Dynamic | Fixed | None:
    """
    Return the loss scale in a LossScaleOptimizer config of any release.

    :raises SpellingError: if no release writes such a loss scale.
    """
    if policy_formats.LOSS_SCALE in config:  # TF 2.0 to 2.3
        scale = policy_formats.parse_loss_scale(config)
        return None if isinstance(scale, Auto | Unscaled) else scale
    initial = policy_formats.number(config, "initial_scale", Dynamic().initial)
    if config.get("dynamic", True) is False:
        return Fixed(value=initial)
    return Dynamic(
        initial=initial,
        growth_steps=policy_formats.whole(config, "dynamic_growth_steps", Dynamic().growth_steps),
    )


def is_wrapped(value: Json) -> bool:
    """Return whether the optimizer is in a loss-scaling wrapper."""
    serialized = keras_objects.read(value)
    return serialized is not None and serialized.own_class in WRAPPERS


def inner_of(value: Json) -> tuple[str, Json] | None:
    """
    Return the key and the value of the optimizer in a wrapper; None for a wrapper without one.
    """
    config = keras_objects.arguments_of(value)
    return next(((key, config[key]) for key in _INNER if key in config), None)


def unwrap(value: Json) -> Json:
    """Return the optimizer without its loss-scaling wrappers."""
    while is_wrapped(value) and (inner := inner_of(value)) is not None:
        value = inner[1]
    return value


def class_of(value: Json) -> str:
    """Return the class of an optimizer, ignoring its wrapper."""
    inner = unwrap(value)
    return str(keras_objects.name_of(inner)).rpartition(">")[2]


def schedule_of_decay(class_name: str, config: dict[str, Json]) -> Json:
    """
    Return the learning rate schedule that is equivalent to the ``decay`` of an old optimizer; None
    if the optimizer has no decay.
    """
    decay, rate = config.get("decay"), config.get("learning_rate", config.get("lr"))
    if (
        class_name == WITH_OWN_DECAY
        or not isinstance(decay, int | float)
        or decay <= 0
        or not isinstance(rate, int | float)
    ):
        return None
    settings: Json = {
        "initial_learning_rate": rate,
        "decay_steps": 1.0,
        "decay_rate": decay,
        "staircase": False,
        "name": "InverseTimeDecay",
    }
    return keras_objects.short("InverseTimeDecay", settings)


def is_new_style(value: Json) -> bool:
    """
    Return whether a Keras 2 optimizer has the format of TF 2.11 and later, which has a different
    wrapper.
    """
    config = keras_objects.arguments_of(value)
    return not _NEW_STYLE_KEYS.isdisjoint(config) and config.get("is_legacy_optimizer") is not True


_STATISTICS: Final = frozenset(
    {
        "moving_mean",
        "moving_variance",
        "running_mean",
        "running_std",
        "sn_u",
        "u",
        "seed_generator_state",
    }
)
_UNTRAINED_MODES: Final = frozenset({"int8", "int4"})
_IN_ORDER: Final = (
    "query_dense",
    "key_dense",
    "value_dense",
    "output_dense",
    "forward_layer",
    "backward_layer",
)
"""The groups of a layer in an archive, in the order in which the layer creates them."""


class UnmappedError(Exception):
    """The order of variables is unknown, or the state may not fit; the message has the reason."""


def trainable_tensors(document: Document, placed: Placed) -> tuple[Tensor, ...]:
    """
    Return the stored trainable weights, in the order of ``trainable_variables``.

    :raises UnmappedError: if an archive does not determine the order of a layer's variables.
    """
    frozen = _frozen_sites(placed.sites)
    tensors: dict[Tensor, None] = {}
    for index, site in enumerate(placed.sites):
        if index in frozen:
            continue
        kept = _trainable_tensors(site, list(placed.named_tensors(index)))
        tensors |= dict.fromkeys(_save_order(kept, archive=document.layout is Layout.OBJECT_PATHS))
    return tuple(tensors)


def _frozen_sites(sites: Sequence[Site]) -> frozenset[int]:
    frozen: set[int] = set()
    for index, site in enumerate(sites):  # a parent comes before its children
        if site.parent in frozen or (site.config or {}).get("trainable") is False:
            frozen.add(index)
    return frozenset(frozen)


def quantization_modes(site: Site) -> frozenset[str]:
    """Return the quantization modes of a layer. Keras 3.3 writes only the name of the policy."""
    dtype = (site.config or {}).get("dtype")
    name, separator, _ = (keras_objects.policy_name(dtype) or "").partition("_from_")
    modes = [*generations.quantization_modes(dtype), *([name] if separator else [])]
    return frozenset(mode.partition("/")[0] for mode in modes)


def _trainable_tensors(site: Site, named_tensors: Sequence[tuple[str, Tensor]]) -> list[Tensor]:
    """
    Return the trainable tensors of one layer.

    :raises UnmappedError: for LoRA in an archive, which stores the sum of the kernel and the
        product of its factors (measured in Keras 3.6 and 3.15).
    """
    config = site.config or {}
    facts = layer_facts(site.class_name)
    modes = quantization_modes(site)
    is_numbered = all(name.isdigit() for name, _ in named_tensors)
    if config.get("lora_rank") and is_numbered:
        raise UnmappedError("the trainable variables of layers with LoRA are not in the file")
    if modes and is_numbered:
        return list(_trainable_when_quantized(config, modes, [item for _, item in named_tensors]))
    if facts.keeps_moving_statistics and is_numbered:
        return [tensor for _, tensor in named_tensors][
            : (config.get("scale") is not False) + (config.get("center") is not False)
        ]
    if facts.untrained:
        return []
    return [
        tensor
        for name, tensor in named_tensors
        if name not in _STATISTICS
        and "seed_generator" not in tensor.path
        and dtypes.is_float(tensor.dtype)
    ]


def _trainable_when_quantized(
    config: Mapping[str, Json], modes: AbstractSet[str], tensors: Sequence[Tensor]
) -> Iterator[Tensor]:
    """
    Yield the trainable tensors of a quantized layer in an archive. Releases do not train an integer
    kernel and the variables that quantization adds (measured in Keras 3.3, 3.6 and 3.15 with Dense,
    EinsumDense and Embedding in int8 and int4). In float8, an optimizer has slots for the added
    variables in Keras 3.6, and no such slots in Keras 3.15.

    :raises UnmappedError: if the layer is not quantized to int8 or int4.
    """
    if not modes <= _UNTRAINED_MODES:
        raise UnmappedError("the trainable variables of the quantized layers are unknown")
    has_bias = config.get("use_bias", config.get("bias_axes") is not None)
    for group in group_pairs((tensor.path[:-1], tensor) for tensor in tensors).values():
        own = group[: 1 + bool(has_bias)]
        yield from own if dtypes.is_float(group[0].dtype) else own[1:]


def _save_order(tensors: Sequence[Tensor], *, archive: bool) -> list[Tensor]:
    """
    Return the tensors of a layer in the order of ``trainable_variables``. In an archive, the names
    of their groups determine it.
    """
    groups = group_pairs((tensor.path[:-1] if archive else (), tensor) for tensor in tensors)
    if len(groups) < 2:  # noqa: PLR2004  # one group needs no order
        return list(tensors)
    ranks = {
        path: next((rank for rank, name in enumerate(_IN_ORDER) if name in path), None)
        for path in groups
    }
    if len(set(ranks.values()) - {None}) != len(groups):
        raise UnmappedError(
            f"the order of the variables below {'/'.join(next(iter(groups)))} is unknown"
        )
    return [
        tensor
        for path in sorted(groups, key=lambda path: ranks[path] or 0)
        for tensor in groups[path]
    ]
