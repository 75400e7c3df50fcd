"""
The definition of rewrites, the decorators that declare them, and the context of a conversion.

If the target needs several layers for a layer of the source, layers are added before and after it.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from policytool.migration.convert.architecture import (
    Network,
    Role,
    Unit,
    map_layers,
    map_networks,
    rewire,
    unused_name,
)
from policytool.model.calls import Call, Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.target import Log, Target
    from policytool.model.calls import Argument
    from policytool.model.loaded_model import LoadedModel


_CASTING: Final = "keras3.6"
"""The representative of the releases that write the casts of layers into the graph, 3.5 to 3.9."""


class ConversionContext(Struct, frozen=True, kw_only=True):
    """The converted file, and the target."""

    loaded: LoadedModel
    target: Target
    log: Log
    allow_weight_rewrite: bool = False

    @property
    def from_keras3(self) -> bool:
        """Whether Keras 3 wrote the file."""
        return self.loaded.is_keras3

    @property
    def to_keras3(self) -> bool:
        """Whether Keras 3 will read the result."""
        return self.target.is_keras3

    @property
    def crosses(self) -> bool:
        """
        Whether the model moves between the libraries: from Keras 1 or 2 to Keras 3, or from Keras 3
        to Keras 2.
        """
        return self.from_keras3 != self.to_keras3

    @property
    def drops_casts(self) -> bool:
        """Whether the casts that Keras 3 wrote into the graph are omitted."""
        return (
            self.from_keras3
            and self.target.loader != _CASTING
            and (self.crosses or self.source_release == _CASTING)
        )

    @property
    def source_release(self) -> str:
        """The newest release that may have written the file, such as ``tf2.4`` or ``keras3.6``."""
        return self.loaded.origins[-1].id


class Rewrite(Struct, frozen=True, kw_only=True):
    """A step of a conversion."""

    name: str
    applies: Callable[[ConversionContext], bool]
    """Whether the step is part of a conversion."""

    apply: Callable[[Unit, ConversionContext], Unit]
    """Returns the model after the step."""

    doc: str
    """The docstring of the step's function; its first paragraph describes the step."""

    after: tuple[str, ...] = ()
    """The names of the rewrites that must run before this one."""


def rewrite(
    *, applies: Callable[[ConversionContext], bool], after: tuple[str, ...] = ()
) -> Callable[[Callable[[Unit, ConversionContext], Unit]], Rewrite]:
    """
    Return a decorator that creates a rewrite from a function that changes a whole model.

    The rewrite has the name of the function.
    """

    def declare(apply: Callable[[Unit, ConversionContext], Unit]) -> Rewrite:
        return Rewrite(
            name=apply.__name__,
            applies=applies,
            apply=apply,
            doc=inspect.cleandoc(apply.__doc__ or ""),
            after=after,
        )

    return declare


def layer_rewrite(
    *, applies: Callable[[ConversionContext], bool], after: tuple[str, ...] = ()
) -> Callable[[Callable[[Unit, ConversionContext], Unit]], Rewrite]:
    """
    Return a decorator that creates a rewrite from a function that changes a single layer.

    The function gets each layer of a Keras class and returns it in the target's form.
    """

    def declare(change: Callable[[Unit, ConversionContext], Unit]) -> Rewrite:
        @wraps(change)
        def change_layers(root: Unit, context: ConversionContext) -> Unit:
            return map_layers(root, lambda unit: change(unit, context))

        return rewrite(applies=applies, after=after)(change_layers)

    return declare


_TIME_DISTRIBUTED = "TimeDistributed"


class Split(Struct, frozen=True, kw_only=True):
    """The layers that replace a layer; each added layer has one input and one output."""

    unit: Unit
    """The rest of the original layer, with its name, site and calls."""

    before: tuple[Unit, ...] = ()
    after: tuple[Unit, ...] = ()
    output: int = 0
    """The output of :attr:`unit` that the layers in :attr:`after` get."""

    joint: int | None = None
    """
    The position in :attr:`after` of the layer that has the output of :attr:`unit` as a second
    input; None if there is none.
    """

    @property
    def fits_a_chain(self) -> bool:
        """Whether a Sequential supports the layers: one input each, and no operations."""
        return self.joint is None and all(unit.role is not Role.OPERATION for unit in self.after)


def layer_beside(unit: Unit, class_name: str, suffix: str, **config: Value) -> Unit:
    """Return a layer to add before or after another layer, with the same policy."""
    return Unit(
        class_name=class_name,
        name=f"{unit.name}_{suffix}",
        config={"trainable": True, "dtype": unit.config.get("dtype"), **config},
        path=unit.path,
    )


def splice(root: Unit, split: Callable[[Unit], Split | None]) -> Unit:
    """
    Return the model with layers split. For the layer of a TimeDistributed, the wrapper is split:
    the added layers work on each element separately.

    Layers in the config of other layers (cells, directions of a Bidirectional) are not split, nor
    are layers in a chain if the split needs a joint or an operation.
    """

    def change(network: Network) -> Network:
        names = {member.name for member in network.units}
        splits = {}
        for member in network.units:
            member_split = _split_in_wrapper(member, split)
            if member_split is not None and (member_split.fits_a_chain or not network.is_chain):
                splits[member.name] = _renamed(member_split, lambda name: unused_name(name, names))
        return _with_splits(network, splits) if splits else network

    return map_networks(root, change)


def _split_in_wrapper(unit: Unit, split: Callable[[Unit], Split | None]) -> Split | None:
    """Return the split of a layer, or of a TimeDistributed around the layer."""
    inner = unit.config.get("layer")
    if unit.class_name != _TIME_DISTRIBUTED or not isinstance(inner, Unit):
        return split(unit)
    inner_split = _split_in_wrapper(inner, split)
    if inner_split is None:
        return None
    wrapped = structs.replace(inner_split, unit=unit.with_config(layer=inner_split.unit))
    return _renamed(wrapped, lambda name: unit.name + name.removeprefix(inner.name))


def _renamed(split: Split, change: Callable[[str], str]) -> Split:
    """Return a split whose new layers have other names."""

    def renamed(unit: Unit) -> Unit:
        return replace(unit, name=change(unit.name))

    return structs.replace(
        split, before=tuple(map(renamed, split.before)), after=tuple(map(renamed, split.after))
    )


def _with_splits(network: Network, splits: Mapping[str, Split]) -> Network:
    """Return a network with layers split; those of a chain have no calls."""

    def redirect(reference: Reference) -> Reference:
        split = splits.get(reference.layer)
        return (
            structs.replace(reference, layer=split.after[-1].name, output=0)
            if split is not None and split.after and reference.output == split.output
            else reference
        )

    network = rewire(network, redirect)
    units = [
        layer
        for unit in network.units
        for layer in (_with_calls(unit, splits[unit.name]) if unit.name in splits else (unit,))
    ]
    return replace(network, units=tuple(units))


def _with_calls(unit: Unit, split: Split) -> tuple[Unit, ...]:
    """Return the layers of a split with their calls, connected in sequence."""

    def outputs(name: str, output: int = 0) -> list[Reference]:
        return [
            Reference(layer=name, call=number, output=output) for number in range(len(unit.calls))
        ]

    before_inputs: list[Sequence[Argument]] = [
        [call.args[0] for call in unit.calls if split.before],
        *(outputs(layer.name) for layer in split.before),
    ]
    before = [
        replace(layer, calls=tuple(Call(args=(tensor,)) for tensor in inputs))
        for layer, inputs in zip(split.before, before_inputs, strict=False)
    ]
    own_calls = [
        structs.replace(call, args=(tensor, *call.args[1:]))
        for call, tensor in zip(unit.calls, before_inputs[-1], strict=False)
    ]
    own_outputs = outputs(unit.name, split.output)
    after_inputs: list[Sequence[Argument]] = [
        own_outputs,
        *(outputs(layer.name) for layer in split.after[:-1]),
    ]
    if split.joint is not None:
        input_pairs = zip(own_outputs, after_inputs[split.joint], strict=True)
        after_inputs[split.joint] = [[*pair] for pair in input_pairs]
    after = [
        replace(layer, calls=tuple(Call(args=(tensor,)) for tensor in inputs))
        for layer, inputs in zip(split.after, after_inputs, strict=False)
    ]
    return (*before, replace(split.unit, calls=tuple(own_calls) or unit.calls), *after)
