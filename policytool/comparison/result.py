"""
What differs between two saved models, A and B, as values.

Each thing that can be said of one model is either equal, spelled differently and the same in
meaning, different, in one of them only, or not compared, with the reason: what a file cannot hold
is no difference, and what was not read is never called equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policytool.model.model import Variable, Writer
    from policytool.support.text.jsontext import Absent, Json


class Aspect(StrEnum):
    """What a change is about."""

    CLASS = "class"
    NAME = "name"
    PLACE = "place"
    """The parent that holds the layer."""

    ORDER = "order"
    """The layer's place among its siblings."""

    SHARED = "shared"
    """The further places of a shared layer."""

    POLICY = "policy"
    COMPUTE = "compute-dtype"
    VARIABLE = "variable-dtype"
    LOSS_SCALE = "loss-scale"
    QUANTIZATION = "quantization"
    AUTOCAST = "autocast"
    TRACED = "traced-dtypes"
    WIRING = "wiring"
    """The layers whose outputs it takes."""

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
"""What is decided by a layer's policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueChange:
    """One thing that A and B say differently."""

    aspect: Aspect
    key: str | None = None
    """The key of a config, or the argument of a signature."""

    a: Json | Absent
    b: Json | Absent
    spelling: bool = False
    """Whether both mean the same, and only the spelling differs."""


class Pairing(StrEnum):
    """What made two layers one."""

    ROOT = "root"
    """Both are the model itself."""

    PATH = "path"
    """The same names from the root down."""

    NAME = "name"
    """The same name in the file, below the same layer, where built names differ."""

    POSITION = "position"
    """
    The same place among the layers of one parent that no name pairs, the same class, and variables
    of the same shapes.
    """

    MOVED = "moved"
    """
    The same name, class and variables' shapes under another parent, and no other such layer in
    either model.
    """

    SHARED = "shared"
    """One of several places of a layer that the other file tells to be shared."""


class Presence(StrEnum):
    """Which of the two has something."""

    BOTH = "both"
    A = "a"
    B = "b"


class ComparisonVerdict(StrEnum):
    """How the values of two variables compare."""

    EQUAL = "equal"
    """The same bytes."""

    ROUNDED = "rounded"
    """One is the other, cast to its dtype."""

    DIFFERENT = "different"
    NOT_COMPARED = "not-compared"


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueComparison:
    """What a comparison of stored values found."""

    verdict: ComparisonVerdict
    rounded: Presence | None = None
    """Which of the two is the other rounded; both where the cast loses nothing either way."""

    elements: int | None = None
    differing: int | None = None
    """How many elements differ."""

    largest: float | None = None
    """
    The largest absolute difference of elements that are finite in both; None where no number says
    it.
    """

    reason: str | None = None
    """Why they were not compared, or why they differ where no elements were counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VariablePair:
    """A variable in both models, or in one."""

    a: Variable | None
    b: Variable | None
    values: ValueComparison
    paired: str | None = None
    """
    By what: ``name``, ``order`` among those of one shape, or ``slot``, what an optimizer keeps of
    two weights that are paired; None for a variable of one file.
    """

    @property
    def presence(self) -> Presence:
        """Which of the two has it."""
        return Presence.BOTH if self.a and self.b else Presence.A if self.a else Presence.B

    @property
    def differs(self) -> bool:
        """Whether the models differ in it, as far as it was compared."""
        if self.a is None or self.b is None:
            return self.values.verdict is not ComparisonVerdict.NOT_COMPARED
        return (
            self.values.verdict in {ComparisonVerdict.DIFFERENT, ComparisonVerdict.ROUNDED}
            or self.a.shape != self.b.shape
            or self.a.dtype != self.b.dtype
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerPair:
    """A layer in both models, or in one."""

    a: str | None
    """Its path in A."""

    b: str | None
    class_name: str | None
    """A's, or B's for a layer that is only there."""

    paired: Pairing | None = None
    listed: bool = True
    """
    Whether both files can have such a layer listed; where one cannot, a layer in the other is no
    difference.
    """

    changes: tuple[ValueChange, ...] = ()
    variables: tuple[VariablePair, ...] = ()

    @property
    def path(self) -> str:
        """The path in A, or in B where A has none."""
        return self.a if self.a is not None else self.b or ""

    @property
    def presence(self) -> Presence:
        """Which of the two has it."""
        return (
            Presence.BOTH
            if self.a is not None and self.b is not None
            else Presence.A
            if self.a is not None
            else Presence.B
        )

    @property
    def differences(self) -> tuple[ValueChange, ...]:
        """The changes beyond spelling."""
        return tuple(change for change in self.changes if not change.spelling)

    @property
    def differs(self) -> bool:
        """Whether the models differ in it."""
        return (
            (self.presence is not Presence.BOTH and self.listed)
            or bool(self.differences)
            or any(variable.differs for variable in self.variables)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of the model other than its layers: the optimizer, or one signature."""

    name: str
    presence: Presence
    changes: tuple[ValueChange, ...] = ()
    variables: tuple[VariablePair, ...] = ()

    @property
    def differences(self) -> tuple[ValueChange, ...]:
        """The changes beyond spelling."""
        return tuple(change for change in self.changes if not change.spelling)

    @property
    def differs(self) -> bool:
        """Whether the models differ in it."""
        return (
            self.presence is not Presence.BOTH
            or bool(self.differences)
            or any(variable.differs for variable in self.variables)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two models."""

    path: str
    format: str
    generation: str | None
    writer: Writer


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonNote:
    """What was not compared, and why."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two models, and all that was compared of them, equal or not."""

    a: Side
    b: Side
    layers: tuple[LayerPair, ...]
    optimizer: Section | None = None
    """None where neither has one, or where one of the files can hold none."""

    signatures: tuple[Section, ...] = ()
    notes: tuple[ComparisonNote, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the models differ in anything that was compared."""
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
        """How much is spelled differently and means the same."""
        sections = (*self.signatures, *([self.optimizer] if self.optimizer else []))
        changes = [
            *(change for layer in self.layers for change in layer.changes),
            *(change for section in sections for change in section.changes),
        ]
        return sum(change.spelling for change in changes)
