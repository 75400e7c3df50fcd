"""What a rewrite is, how a function declares it, and the conversion that it is part of."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policytool.migration.convert.architecture import Role, map_units

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.target import Log, Target
    from policytool.model.loaded_model import LoadedModel


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionContext:
    """The file that is converted, and where to."""

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
        """Whether Keras 3 is to read it."""
        return self.target.is_keras3

    @property
    def crosses(self) -> bool:
        """
        Whether writer and reader are of different libraries, Keras 2 (and 1) here and Keras 3
        there.
        """
        return self.from_keras3 != self.to_keras3

    @property
    def source_release(self) -> str:
        """The newest release that can have written the file, such as ``tf2.4`` or ``keras3.6``."""
        return self.loaded.origins[-1].id


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewrite:
    """One step of a conversion."""

    name: str
    applies: Callable[[ConversionContext], bool]
    """Whether the step is part of a conversion."""

    apply: Callable[[Unit, ConversionContext], Unit]
    """Returns the model as the step leaves it."""

    doc: str
    """What the step does, in the first paragraph, and why: the docstring of its function."""

    after: tuple[str, ...] = ()
    """The names of the rewrites whose work it needs, which stand before it."""


def rewrite(
    *, applies: Callable[[ConversionContext], bool], after: tuple[str, ...] = ()
) -> Callable[[Callable[[Unit, ConversionContext], Unit]], Rewrite]:
    """
    Return a decorator that makes a rewrite of the function that changes a whole model.

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
    Return a decorator that makes a rewrite of the function that changes one layer.

    The function gets each layer of a class of Keras and returns it as the target has it.
    """

    def declare(change: Callable[[Unit, ConversionContext], Unit]) -> Rewrite:
        def change_layers(root: Unit, context: ConversionContext) -> Unit:
            return map_units(
                root,
                lambda unit: (
                    change(unit, context) if unit.role is Role.LAYER and not unit.custom else unit
                ),
            )

        return Rewrite(
            name=change.__name__,
            applies=applies,
            apply=change_layers,
            doc=inspect.cleandoc(change.__doc__ or ""),
            after=after,
        )

    return declare
