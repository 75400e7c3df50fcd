"""The private layers of ``keras.applications`` models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Recipe, Unit, map_units
from policytool.migration.convert.rewrites._base import ConversionContext, layer_beside, rewrite
from policytool.model.calls import Call, Reference

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Network

_ROOTS: Final = frozenset({"keras", "tf_keras"})
_SCALED_SUM: Final = "CustomScaleLayer"

_SUM_KEYS: Final = frozenset({"trainable", "dtype", "scale"})
_UNNAMED: Final = f"Custom>{_SCALED_SUM}"
"""What the class is registered under without a package."""

_CHANNELS: Final = "LayerScale"

_SIZE: Final = "projection_dim"
_ONLY: Final = "0"
"""What archives, which alone tell modules, call the one variable of a layer."""


@rewrite(
    applies=lambda context: context.crosses,
)
def applications(root: Unit, context: ConversionContext) -> Unit:
    """
    Replaces the private layers of ``keras.applications`` models, which no release exports, with
    layers that all releases have.

    ``CustomScaleLayer`` (keras/applications/inception_resnet_v2.py from TF 2.13 on) adds its second
    input, multiplied, to its first. ``LayerScale`` (keras/applications/convnext.py) multiplies each
    channel of images by a weight, as an EinsumDense without a bias does, whose equation has no
    ``...`` because TF 2.4 reads that wrongly. A file tells them by the module of Keras that they
    are in; HDF5 tells none, and there only ``CustomScaleLayer`` is known, by the name that tf_keras
    registers for it.
    """

    def change(unit: Unit) -> Unit:
        if unit.network is not None and not unit.network.is_chain:
            return replace(unit, network=_sums(unit.network, context))
        return _channels(unit, context) if _is_channels(unit) else unit

    return map_units(root, change)


def _is_own(unit: Unit, class_name: str, module: str) -> bool:
    """Return whether a layer is of a class that a module of Keras has for itself."""
    root, _, rest = (unit.module or "").partition(".")
    return (
        unit.custom
        and unit.class_name == class_name
        and root in _ROOTS
        and rest.removeprefix("src.") == module
    )


def _is_sum(unit: Unit) -> bool:
    known = _is_own(unit, _SCALED_SUM, "applications.inception_resnet_v2") or (
        unit.custom
        and unit.class_name == _SCALED_SUM
        and unit.module is None
        and unit.registered_name == _UNNAMED
        and unit.config.keys() <= _SUM_KEYS
    )
    return (
        known
        and isinstance(unit.config.get("scale"), int | float)
        and all(_is_pair(call) for call in unit.calls)
    )


def _is_pair(call: Call) -> bool:
    return (
        len(call.args) == 1
        and isinstance(call.args[0], list | tuple)
        and [type(argument) for argument in call.args[0]] == [Reference, Reference]
    )


def _sums(network: Network, context: ConversionContext) -> Network:
    """Return a graph with each scaled sum as a Rescaling of its second input and an Add."""
    names = {unit.name for unit in network.units}
    units: list[Unit] = []
    for unit in network.units:
        if not _is_sum(unit) or f"{unit.name}_scale" in names:
            units.append(unit)
            continue
        scaling = layer_beside(unit, "Rescaling", "scale", scale=unit.config["scale"], offset=0.0)
        pairs = [
            list(call.args[0]) for call in unit.calls if isinstance(call.args[0], list | tuple)
        ]
        units.append(replace(scaling, calls=tuple(Call(args=(pair[1],)) for pair in pairs)))
        sums = tuple(
            Call(args=([pair[0], Reference(layer=scaling.name, call=number)],))
            for number, pair in enumerate(pairs)
        )
        plain = replace(
            unit.without("scale"),
            class_name="Add",
            custom=False,
            registered_name=None,
            module=None,
            build=None,
            calls=sums,
        )
        context.log.change(
            "unexported-class",
            unit,
            f"{_SCALED_SUM} becomes Rescaling and Add because no release exports this class",
        )
        units.append(plain)
    return replace(network, units=tuple(units))


def _is_channels(unit: Unit) -> bool:
    return _is_own(unit, _CHANNELS, "applications.convnext") and isinstance(
        unit.config.get(_SIZE), int
    )


def _channels(unit: Unit, context: ConversionContext) -> Unit:
    """Return a scale of channels as an EinsumDense."""
    context.log.change(
        "unexported-class",
        unit,
        f"{_CHANNELS} becomes EinsumDense because no release exports this class",
    )
    plain = unit.without("init_values", _SIZE).with_config(
        equation="abcd,d->abcd", output_shape=[None, None, unit.config[_SIZE]], bias_axes=None
    )
    return replace(
        plain,
        class_name="EinsumDense",
        custom=False,
        registered_name=None,
        module=None,
        build=None,
        layout={"kernel": Recipe(parts=(_ONLY,))},
    )
