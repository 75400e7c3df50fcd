"""
Every generation of Keras: the releases that share one spelling of configs, and the rules for what
their configs leave unsaid.

To add a generation, write how it spells policies, and add it to :data:`GENERATIONS`.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum, auto
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.releases import keras_objects, policy_formats
from policytool.releases import policy as policies
from policytool.releases.layer_classes import Category, classes_of, layer_facts
from policytool.releases.policy import Auto, Policy, PolicyMap
from policytool.support.errors import PolicyNameError, SpellingError, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from policytool.support.text.jsontext import Json


class Unsaid(Enum):
    """The source of a layer's dtype if its config has no ``dtype``."""

    LOADER = auto()
    """The global policy of the process that loads the file."""

    FLOATX = auto()
    """
    The backend's ``floatx`` of the process that built the model: all its layers share it, and the
    variables are stored in it.
    """


class SubPolicy(Enum):
    """The policy of the sub-layers that a layer creates."""

    OWN = auto()
    """The policy of the layer."""

    GLOBAL = auto()
    """No policy: the sub-layers use the global policy of the process that builds them."""


class SubLayer(Struct, frozen=True, kw_only=True):
    """A layer that a built-in layer creates, and that is not in its config."""

    attribute: str
    """The attribute that contains the layer, which is its place in ``.keras`` weights."""

    class_name: str
    name: str
    policy: SubPolicy = SubPolicy.OWN
    numbered: bool = False
    """
    Whether the name may have a number (``lstm_cell_3``), which only the names of weights contain.
    """


class Generation(Struct, frozen=True, kw_only=True):
    """Releases with the same policy format; :mod:`policytool.releases.releases` names them."""

    id: str
    title: str
    parse: Callable[[Json], Policy | PolicyMap]
    """
    Return the policy that a config's ``dtype`` value spells.

    :raises SpellingError: for a value that this generation does not write.
    """

    write: Callable[[Policy | PolicyMap, str], Json]
    """The function that :meth:`render` calls, with the title."""

    unsaid: Unsaid = Unsaid.LOADER
    composites: Mapping[str, tuple[SubLayer, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The sub-layers that the instances of each class create."""

    def render(self, policy: Policy | PolicyMap) -> Json:
        """
        Return the value that this generation writes for a policy.

        :raises SpellingError: for a policy that the generation cannot represent, with the reason.
        """
        return self.write(policy, self.title)


def _cells(*, to_tf25: bool = False) -> Mapping[str, tuple[SubLayer, ...]]:
    """Return the cells that each recurrent layer creates, which have their own dtype."""
    cells_by_layer = {}
    for name in classes_of(Category.RECURRENT):
        facts = layer_facts(name)
        older = facts.sublayers_to_tf25 if to_tf25 else {}
        cells_by_layer[name] = tuple(
            SubLayer(
                attribute=attribute,
                class_name=sublayer.class_name,
                name=sublayer.name,
                numbered=True,
            )
            for attribute, sublayer in (older or facts.sublayers).items()
        )
    return MappingProxyType({name: cells for name, cells in cells_by_layer.items() if cells})


def _projections(policy: SubPolicy, *, private: bool = False) -> Mapping[str, tuple[SubLayer, ...]]:
    """
    Return the projections that each attention layer creates.

    :param private: whether the names of all attributes begin with an underscore, as in Keras 2;
        Keras 3 walks attributes by name, and finds MultiHeadAttention's public properties first
    """
    projections_by_layer = {
        name: tuple(
            SubLayer(
                attribute=f"_{attribute.removeprefix('_')}" if private else attribute,
                class_name=sublayer.class_name,
                name=sublayer.name,
                policy=policy,
            )
            for attribute, sublayer in layer_facts(name).sublayers.items()
        )
        for name in classes_of(Category.ATTENTION)
    }
    return MappingProxyType(
        {name: projections for name, projections in projections_by_layer.items() if projections}
    )


_CELLS: Final = _cells()
CELLS_TO_TF25: Final = _cells(to_tf25=True)
"""Up to TF 2.5 there is one convolutional cell, of another class and name."""

ATTENTION_TO_TF213: Final = _projections(SubPolicy.GLOBAL, private=True)
"""Up to TF 2.13 the projections take the global policy."""


def _single_dtype(policy: Policy | PolicyMap, title: str) -> str:
    """
    Return the name of a policy with equal compute and variable dtypes.

    :raises SpellingError: for mixed policies, which releases before TF 2.1 cannot write.
    """
    known = policy_formats.without_loss_scale(policy_formats.plain(policy, title), title)
    if known.should_cast_variables:
        raise SpellingError(
            f"{title} cannot represent {known.name}: the config contains only the variable dtype "
            f"({known.variable_dtype})"
        )
    return known.name


KERAS_1: Final = Generation(
    id="keras1",
    title="Keras 1",
    parse=policy_formats.parse_name,
    write=_single_dtype,
    unsaid=Unsaid.FLOATX,
)
"""
Keras 1.0 to 1.2 (2016, 2017): no dtype policies, and hardly a dtype.

Only the first layer of a model has an ``input_dtype``. Everything computes and is stored in the
backend's ``floatx``.
"""

KERAS_2: Final = Generation(
    id="keras2.0-2.3",
    title="Keras 2.0 to 2.3",
    parse=policy_formats.parse_name,
    write=_single_dtype,
    unsaid=Unsaid.FLOATX,
    composites=CELLS_TO_TF25,
)
"""
Standalone Keras 2.0 to 2.3 (2017 to 2019): no dtype policies.

Up to 2.2 only input layers and first layers have a ``dtype``; in 2.3 every layer has one.
"""

TF_1_4: Final = Generation(
    id="tf1.4-2.0",
    title="TF 1.4 to 2.0",
    parse=policy_formats.parse_name,
    write=_single_dtype,
    composites=CELLS_TO_TF25,
)
"""
tf.keras of TF 1.4 to 2.0: policies exist from 1.14 on, but configs hold the variable dtype alone.

A mixed policy is lost when such a release saves (``Layer.get_config`` writes ``self.dtype``), so no
file of it can show one.
"""


def _experimental_policy(policy: Policy | PolicyMap, title: str) -> Json:
    """
    Return the bare name of a single dtype without a loss scale, and otherwise a ``Policy`` dict
    (``policy.serialize``).
    """
    known = policy_formats.plain(policy, title)
    if not known.should_cast_variables and known.loss_scale in {None, Auto()}:
        return known.name
    return keras_objects.short(
        "Policy", {"name": known.name, **policy_formats.render_loss_scale(known.loss_scale)}
    )


TF_2_1: Final = Generation(
    id="tf2.1-2.3",
    title="TF 2.1 to 2.3",
    parse=partial(policy_formats.parse_keras2, loss_scales={"Policy": True}),
    write=_experimental_policy,
    composites=CELLS_TO_TF25,
)
"""
TF 2.1 to 2.3: the experimental ``Policy``, with a loss scale of its own.

The loss scale is written only where it was passed explicitly; left unsaid, it is dynamic for
``mixed_float16`` and none otherwise.
"""


def _policy_or_v1(policy: Policy | PolicyMap, title: str) -> Json:
    """
    Return ``PolicyV1`` for a policy with a loss scale, else the bare dtype name, else ``Policy``.
    """
    known = policy_formats.plain(policy, title)
    if known.loss_scale is None:
        return _mixed_policy(known, title)
    return keras_objects.short(
        "PolicyV1", {"name": known.name, **policy_formats.render_loss_scale(known.loss_scale)}
    )


def _mixed_policy(policy: Policy | PolicyMap, title: str, *, says_module: bool = False) -> Json:
    """Return the bare name of a single dtype, and a ``Policy`` dict for a mixed policy."""
    known = policy_formats.without_loss_scale(policy_formats.plain(policy, title), title)
    if not known.should_cast_variables:
        return known.name
    config: Json = {"name": known.name}
    # the module is never ``tf_keras``, even there
    return (
        keras_objects.full("keras.mixed_precision", "Policy", config)
        if says_module
        else keras_objects.short("Policy", config)
    )


TF_2_4: Final = Generation(
    id="tf2.4-2.8",
    title="TF 2.4 to 2.8",
    parse=partial(policy_formats.parse_keras2, loss_scales={"Policy": False, "PolicyV1": True}),
    write=_policy_or_v1,
    composites={**_CELLS, **ATTENTION_TO_TF213},
)
"""
TF 2.4 to 2.8: ``Policy`` without a loss scale, and ``PolicyV1`` for what the deprecated
experimental namespace made. TF 2.4 and 2.5 have the cells of earlier releases.

``PolicyV1`` is written even for ``float32``. Its loss scale is read by no loader from TF 2.4 on,
the writer included.
"""

TF_2_9: Final = Generation(
    id="tf2.9-2.12",
    title="TF 2.9 to 2.12",
    parse=partial(policy_formats.parse_keras2, loss_scales={"Policy": False}),
    write=_mixed_policy,
    composites={**_CELLS, **ATTENTION_TO_TF213},
)
"""
TF 2.9 to 2.12: ``Policy`` without a loss scale; the experimental namespace is gone, its files are
still read.
"""

TF_2_13: Final = Generation(
    id="tf2.13+",
    title="TF 2.13 to 2.15, tf_keras",
    parse=partial(policy_formats.parse_keras2, loss_scales={"Policy": False}),
    write=partial(_mixed_policy, says_module=True),
    composites={**_CELLS, **_projections(SubPolicy.OWN, private=True)},
)
"""
TF 2.13 to 2.15 and tf_keras: ``Policy`` dicts with ``module`` and ``registered_name``, but for
``keras_metadata.pb``, which has the short form.
"""

_QUANTIZED_BARE: Final = frozenset({"int8", "float8"})


def _bare_name(policy: Policy | PolicyMap, title: str) -> str:
    """Return the name of a policy, for releases that read only names."""
    if isinstance(policy, PolicyMap):
        raise SpellingError(f"{title} does not support policy maps, which need Keras 3.4 or later")
    if policy.quantization:
        if policy.quantization.mode not in _QUANTIZED_BARE:
            raise SpellingError(
                f"{title} supports only int8 (since 3.1) and float8 (since 3.3) quantization, not "
                f"{policy.quantization.mode}"
            )
        return policy.name
    if policy.name.startswith("float8"):
        return policy.name
    return policy_formats.without_loss_scale(policy_formats.plain(policy, title), title).name


KERAS_3_0: Final = Generation(
    id="keras3.0-3.3",
    title="Keras 3.0 to 3.3",
    parse=policy_formats.parse_name,
    write=_bare_name,
    composites={**_CELLS, **_projections(SubPolicy.OWN)},
)
"""Keras 3.0 to 3.3: every policy is a bare name, quantised ones (from 3.1) included."""

_PLAIN_CLASSES: Final = frozenset({"DTypePolicy", "FloatDTypePolicy"})
_QUANTIZED_CLASSES: Final = {
    "int8": "QuantizedDTypePolicy",
    "int4": "QuantizedDTypePolicy",
    "int4/": "Int4DTypePolicy",
    "float8": "QuantizedFloat8DTypePolicy",
    "gptq": "GPTQDTypePolicy",
    "awq": "AWQDTypePolicy",
}
_MAP: Final = "DTypePolicyMap"


def _policy_of_keras3(value: Json) -> Policy | PolicyMap:
    """Return the policy of a bare name or of one of Keras 3's policy dicts."""
    if isinstance(value, str):
        return policy_formats.parse_name(value)
    class_name, config = policy_formats.class_and_config(value)
    if class_name == _MAP:
        return _parse_map(config)
    return _parse_policy(class_name, config)


def _dict_of_keras3(policy: Policy | PolicyMap, title: str) -> Json:
    """Return the dict of the policy."""
    if isinstance(policy, PolicyMap):
        entries: dict[str, Json] = {
            path: _render_entry(entry, title) for path, entry in policy.policies
        }
        default = _dict_of_keras3(policy.default, title) if policy.default else None
        return keras_objects.full(
            "keras.dtype_policies", _MAP, {"default_policy": default, "policy_map": entries}
        )
    if quantization := policy.quantization:
        source = None if quantization.source == policies.GLOBAL_SOURCE else quantization.source
        config: dict[str, Json] = {"mode": quantization.mode, "source_name": source}
        family = (
            "int4/"
            if quantization.mode.startswith("int4/")
            else quantization.mode.partition("/")[0]
        )
        if quantization.amax_history_length is not None:
            config["amax_history_length"] = quantization.amax_history_length
        return keras_objects.full("keras.dtype_policies", _QUANTIZED_CLASSES[family], config)
    if not policy.name.startswith("float8"):
        policy_formats.without_loss_scale(policy_formats.plain(policy, title), title)
    return keras_objects.full("keras", "DTypePolicy", {"name": policy.name})


def _parse_policy(class_name: str, config: dict[str, Json]) -> Policy:
    """Return the policy of a Keras 3 policy class with a config."""
    if class_name in _PLAIN_CLASSES:
        return policy_formats.parse_name(config.get("name"))
    mode = config.get("mode")
    source = config.get("source_name") or policies.GLOBAL_SOURCE
    if class_name not in _QUANTIZED_CLASSES.values():
        raise SpellingError(f"unknown policy class {short(class_name)}, which no known release has")
    if not isinstance(mode, str) or not isinstance(source, str):
        raise SpellingError(f"expected a {class_name} with a mode and a source_name")
    if mode.partition("/")[0] not in _QUANTIZED_CLASSES:
        raise SpellingError(f"unknown policy: no known release has the mode {short(mode)}")
    history = config.get("amax_history_length")
    try:
        return policies.quantized_policy(
            mode, source, amax_history_length=history if isinstance(history, int) else None
        )
    except PolicyNameError as error:
        raise SpellingError(str(error)) from error


def _serialized_policies(value: Json) -> Iterator[keras_objects.KerasObject]:
    """Yield the Keras policies in a serialized value, those of a policy map before the map."""
    serialized = keras_objects.read(value)
    if serialized is None or not f"{serialized.module}.".startswith("keras."):
        return
    entries = serialized.arguments.get("policy_map")
    for entry in entries.values() if isinstance(entries, dict) else ():
        yield from _serialized_policies(entry)
    yield serialized


def unknown_parts(value: Json) -> Iterator[str]:
    """
    Yield the classes and quantization modes of a policy that no known release has, because a later
    release wrote them; nothing for custom classes.
    """
    known = {*policy_formats.KERAS2_CLASSES, *_PLAIN_CLASSES, _MAP, *_QUANTIZED_CLASSES.values()}
    for policy in _serialized_policies(value):
        mode = policy.arguments.get("mode")
        if policy.registered_name is None and policy.class_name not in known:
            yield f"the policy class {short(policy.class_name)}"
        elif isinstance(mode, str) and mode.partition("/")[0] not in _QUANTIZED_CLASSES:
            yield f"the quantization mode {short(mode)}"


def quantization_modes(value: Json) -> Iterator[str]:
    """Yield the quantization modes of a Keras 3 policy, including those in a policy map."""
    for policy in _serialized_policies(value):
        mode = policy.arguments.get("mode")
        if isinstance(mode, str) and mode.partition("/")[0] in _QUANTIZED_CLASSES:
            yield mode


def _parse_map(config: dict[str, Json]) -> PolicyMap:
    entries, default = config.get("policy_map"), config.get("default_policy")
    if not isinstance(entries, dict):
        raise SpellingError("expected a policy_map in a DTypePolicyMap")
    return PolicyMap(
        default=_parse_entry(default),
        policies=tuple((path, _parse_entry(entry)) for path, entry in entries.items()),
    )


def _parse_entry(value: Json) -> Policy | None:
    """
    Return a policy of a map. For null, and for a dict whose name is null, return None, which means
    the global policy.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return policy_formats.parse_name(value)
    class_name, config = policy_formats.class_and_config(value)
    if config.get("name", "") is None:
        return None
    return _parse_policy(class_name, config)


def _render_entry(policy: Policy | None, title: str) -> Json:
    return (
        _dict_of_keras3(policy, title)
        if policy
        else keras_objects.full("keras", "DTypePolicy", {"name": None})
    )


KERAS_3_4: Final = Generation(
    id="keras3.4+",
    title="Keras 3.4 and later",
    parse=_policy_of_keras3,
    write=_dict_of_keras3,
    composites=KERAS_3_0.composites,
)
"""
Keras 3.4 and later: a dict for every policy, ``float32`` included, quantised policies with a mode
and a source, and policy maps.

keras/src/dtype_policies/dtype_policy.py and dtype_policy_map.py.
"""

GENERATIONS: Final = (
    KERAS_1,
    KERAS_2,
    TF_1_4,
    TF_2_1,
    TF_2_4,
    TF_2_9,
    TF_2_13,
    KERAS_3_0,
    KERAS_3_4,
)
"""Oldest first."""


def parse(value: Json, first: Generation) -> Policy | PolicyMap:
    """
    Return the policy of a ``dtype`` value in a config. The value is read as the generation of the
    file writes it; if that fails, as any other generation writes it.

    :raises SpellingError: if no generation writes the value, with the reason of the file's
        generation.
    """
    try:
        return first.parse(value)
    except SpellingError as error:
        for other in reversed(GENERATIONS):
            with suppress(SpellingError):
                return other.parse(value)
        raise SpellingError(str(error)) from error
