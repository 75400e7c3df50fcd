"""What a rewrite is, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.log import Log
    from policytool.migration.convert.target import Target
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
    """One concern."""

    name: str
    applies: Callable[[ConversionContext], bool]
    apply: Callable[[Unit, ConversionContext], Unit]
    after: tuple[str, ...] = ()
    """The names of the rewrites whose work it needs, which stand before it."""
