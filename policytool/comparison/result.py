"""
The result of a comparison of two saved models, A and B.

A part of the models is equal, has a different format with the same meaning, differs, is in one
model only, or is not compared for a stated reason. A part that the format of a file cannot store is
not a difference, and values that were not read are not reported as equal.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from policytool.model.model import Layer, Variable, Writer
    from policytool.support.text.jsontext import Absent, Json

NO_VALUES: Final = "--no-values is set"
"""The reason why no values were compared, if the user asked for it."""


class Aspect(StrEnum):
    """The property of a layer, optimizer or signature that differs."""

    CLASS = "class"
    NAME = "name"
    PLACE = "place"
    """The parent that contains the layer."""

    ORDER = "order"
    """The position of the layer among its siblings."""

    SHARED = "shared"
    """The places of a shared layer."""

    POLICY = "policy"
    COMPUTE = "compute-dtype"
    VARIABLE = "variable-dtype"
    LOSS_SCALE = "loss-scale"
    QUANTIZATION = "quantization"
    AUTOCAST = "autocast"
    TRACED = "traced-dtypes"
    WIRING = "wiring"
    """The layers whose outputs are the inputs of the layer."""

    CONFIG = "config"
    """A key of a config."""

    SIGNATURE = "signature"


POLICIES: Final = frozenset(
    {
        Aspect.POLICY,
        Aspect.COMPUTE,
        Aspect.VARIABLE,
        Aspect.LOSS_SCALE,
        Aspect.QUANTIZATION,
        Aspect.AUTOCAST,
    }
)
"""The properties that the policy of a layer determines."""


class ValueChange(Struct, frozen=True, kw_only=True):
    """A value that differs between A and B."""

    aspect: Aspect
    key: str | None = None
    """The key of a config, or the argument of a signature."""

    a: Json | Absent
    b: Json | Absent
    is_format_only: bool = False
    """Whether only the format differs, and both values have the same meaning."""


class Pairing(StrEnum):
    """How two layers were paired."""

    ROOT = "root"
    """Both are the model itself."""

    PATH = "path"
    """Both have the same path."""

    NAME = "name"
    """Both have the same name in the file and the same parent, but different built names."""

    POSITION = "position"
    """
    Both have the same parent, class and shapes of variables, and the same position among the layers
    that no name pairs.
    """

    MOVED = "moved"
    """
    Both have the same name, class and shapes of variables, but different parents. No other layer of
    either model has them.
    """

    SHARED = "shared"
    """One file lists a shared layer at each of its places, and the other file lists it once."""


class Presence(StrEnum):
    """The models that contain a layer, a variable or another part."""

    BOTH = "both"
    A = "a"
    B = "b"


class ComparisonVerdict(StrEnum):
    """The result of comparing the values of two variables."""

    EQUAL = "equal"
    """The bytes are equal."""

    ROUNDED = "rounded"
    """The values of one variable are those of the other, cast to its dtype."""

    DIFFERENT = "different"
    NOT_COMPARED = "not-compared"


class ValueComparison(Struct, frozen=True, kw_only=True):
    """The result of a comparison of stored values."""

    verdict: ComparisonVerdict
    rounded: Presence | None = None
    """
    The model whose values are the rounded values of the other; both if the casts are exact in both
    directions.
    """

    elements: int | None = None
    differing: int | None = None
    """The number of elements that differ."""

    largest: float | None = None
    """
    The largest absolute difference of elements that are finite in both; None if there are none, or
    if the values are not numbers.
    """

    reason: str | None = None
    """Why values were not compared, or why they differ although no elements were counted."""


class VariablePair(Struct, frozen=True, kw_only=True):
    """A variable in both models, or in one."""

    a: Variable | None
    b: Variable | None
    values: ValueComparison
    paired: str | None = None
    """
    How the variables were paired: by ``name``, by ``order`` among variables of the same shape, or
    as a ``slot`` of an optimizer, whose weights are paired. None for a variable of one model.
    """

    known_as: str | None = None
    """The name of the variable in its layer, if the file contains only its number."""

    @property
    def name(self) -> str:
        """The name in A, or in B if A has none or only a number."""
        names = [variable.name for variable in (self.a, self.b) if variable is not None]
        named = (name for name in names if not name.isdecimal())
        return self.known_as or next(named, "".join(names[:1]))

    @property
    def presence(self) -> Presence:
        """The models that contain the variable."""
        return Presence.BOTH if self.a and self.b else Presence.A if self.a else Presence.B

    @property
    def differs(self) -> bool:
        """Whether a compared property of the variable differs."""
        if self.a is None or self.b is None:
            return self.values.verdict is not ComparisonVerdict.NOT_COMPARED
        return (
            self.values.verdict in {ComparisonVerdict.DIFFERENT, ComparisonVerdict.ROUNDED}
            or self.a.shape != self.b.shape
            or self.a.dtype != self.b.dtype
        )


class LayerPair(Struct, frozen=True, kw_only=True):
    """A layer in both models, or in one."""

    a: str | None
    """The path in A."""

    b: str | None
    class_name: str | None
    """The class in A, or in B for a layer that is only in B."""

    paired: Pairing | None = None
    listed: bool = True
    """
    Whether the formats of both files can list such a layer. If not, a layer in only one file is not
    a difference.
    """

    changes: tuple[ValueChange, ...] = ()
    variables: tuple[VariablePair, ...] = ()

    @property
    def path(self) -> str:
        """The path in A, or in B for a layer that is only in B."""
        return self.a if self.a is not None else self.b or ""

    @property
    def presence(self) -> Presence:
        """The models that contain the layer."""
        return (
            Presence.BOTH
            if self.a is not None and self.b is not None
            else Presence.A
            if self.a is not None
            else Presence.B
        )

    @property
    def differences(self) -> tuple[ValueChange, ...]:
        """The changes, without those of formats only."""
        return tuple(change for change in self.changes if not change.is_format_only)

    @property
    def differs(self) -> bool:
        """Whether the layer differs between the models."""
        return (
            (self.presence is not Presence.BOTH and self.listed)
            or bool(self.differences)
            or any(variable.differs for variable in self.variables)
        )


class Section(Struct, frozen=True, kw_only=True):
    """A part of the model other than its layers: the optimizer, or one signature."""

    name: str
    presence: Presence
    changes: tuple[ValueChange, ...] = ()
    variables: tuple[VariablePair, ...] = ()

    @property
    def differences(self) -> tuple[ValueChange, ...]:
        """The changes, without those of formats only."""
        return tuple(change for change in self.changes if not change.is_format_only)

    @property
    def differs(self) -> bool:
        """Whether the section differs between the models."""
        return (
            self.presence is not Presence.BOTH
            or bool(self.differences)
            or any(variable.differs for variable in self.variables)
        )


class Side(Struct, frozen=True, kw_only=True):
    """One of the two models."""

    path: str
    format: str
    generation: str | None
    writer: Writer
    connected_layers: tuple[Layer, ...] = ()
    """The layers with their inputs; empty if the file has no configs."""


class ComparisonNote(Struct, frozen=True, kw_only=True):
    """A note about a part that was not compared, and the reason."""

    code: str
    message: str


class Comparison(Struct, frozen=True, kw_only=True):
    """The comparison of two models, including their equal parts."""

    a: Side
    b: Side
    layers: tuple[LayerPair, ...]
    optimizer: Section | None = None
    """The optimizer; None if neither model has one, or if one of the formats cannot store it."""

    signatures: tuple[Section, ...] = ()
    notes: tuple[ComparisonNote, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether any compared part of the models differs."""
        sections = (*self.signatures, *([self.optimizer] if self.optimizer else []))
        return any(layer.differs for layer in self.layers) or any(
            section.differs for section in sections
        )

    @property
    def variables(self) -> tuple[VariablePair, ...]:
        """The variables of all layers."""
        return tuple(variable for layer in self.layers for variable in layer.variables)

    @property
    def spellings(self) -> int:
        """The number of values that differ only in their format."""
        sections = (*self.signatures, *([self.optimizer] if self.optimizer else []))
        changes = [
            *(change for layer in self.layers for change in layer.changes),
            *(change for section in sections for change in section.changes),
        ]
        return sum(change.is_format_only for change in changes)
