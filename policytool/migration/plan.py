"""
What migrate is about to do to one file, as a value: made by pure code, shown before any write, and
obeyed by the writers.

A plan names every JSON value that changes with what stood there, every stored tensor that is cast,
and what happens to the optimizer's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policytool.formats.new_model import Content
    from policytool.model.model import Address, Verdict
    from policytool.support.text.jsontext import Json


class Kind(StrEnum):
    """What an edit changes for whoever loads the file."""

    SPELLING = "spelling"
    """Nothing but who can read it."""

    NUMERICS = "numerics"
    """What a layer computes in or stores its variables in."""

    TRAINING = "training"
    """How training goes on: loss scaling, the optimizer and its state."""

    STORAGE = "storage"
    """How a tensor is stored."""


class Absent(Enum):
    """Where no value stands: before an addition, after a removal."""

    ABSENT = auto()


ABSENT = Absent.ABSENT

REWRITTEN: Final = frozenset(
    {"h5", "keras", "json", "yaml", "tfjs", "savedmodel", "keras-metadata"}
)
"""The document formats that plans are made for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """One JSON value that changes."""

    kind: Kind
    address: Address
    path: str | None
    """The layer it belongs to; None for the optimizer."""

    before: Json | Absent
    after: Json | Absent
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cast:
    """One stored tensor that gets another dtype."""

    tensor: tuple[str, ...]
    """Where it is stored, as :attr:`policytool.formats.document.Tensor.path` has it."""

    path: str | None
    """The layer it belongs to; None for the optimizer's state."""

    before: str
    after: str
    """Keras' dtype names, as stored."""

    reason: str
    through: str | None = None
    """
    A dtype that values are rounded to on the way, where the file cannot store the one the layer has
    (bfloat16 as float32).
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One variable of the optimizer's state in a ``.keras`` file, as it will be stored."""

    tensor: tuple[str, ...]
    """Its new place, e.g. ``("optimizer", "vars", "4")``."""

    source: tuple[str, ...] | None = None
    """The place whose values it takes over, bit for bit; None where it starts from ``value``."""

    dtype: str | None = None
    value: float | None = None


class Severity(StrEnum):
    """How much a note matters."""

    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Something to know about the plan: what is lost, what was left alone, and why."""

    severity: Severity
    code: str
    """Stable and machine-readable, such as ``loss-scale-dropped``."""

    message: str
    path: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A layer that does not follow ``--to``, and why."""

    path: str
    policy: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a file cannot be migrated as asked: the layer, the reason, and what to do."""

    code: str
    message: str
    path: str | None = None


WEIGHT_REWRITE: Final = "weight-rewrite"
"""The code of a refusal that ``--allow-weight-rewrite`` lifts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One thing that a conversion writes otherwise than the source has it."""

    code: str
    """Stable and machine-readable, such as ``key-dropped``."""

    text: str
    """What became of what, as a sentence part: ``batch_shape becomes batch_input_shape``."""

    path: str | None = None
    """The layer; None where it is the model or the file as a whole."""


class Proof(StrEnum):
    """How sure it is that a converted layer computes what it did."""

    PROVEN = "proven"
    """
    Layers of its class and arguments were converted, run in both libraries, and gave the same.
    """

    BEST_EFFORT = "best-effort"
    """Nothing known speaks against it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversion:
    """How a model is written for a loader that does not take it as it is."""

    target: str
    """The loader, such as ``keras3.15``."""

    content: Content
    changes: tuple[Change, ...] = ()
    proofs: tuple[tuple[str, Proof], ...] = ()
    """By class name, how sure its conversion is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Everything that a migration does to one file."""

    path: str
    """The file, as reports show it."""

    format: str
    generation: str | None
    suffix: str
    """
    What the default name of the output has before its suffix: ``migrated``, the policy or the
    target.
    """

    base_policy: str | None = None
    """The policy that ``--to`` replaces; None where nothing is retargeted."""

    edits: tuple[Edit, ...] = ()
    casts: tuple[Cast, ...] = ()
    state: tuple[Slot, ...] | None = None
    """The optimizer's state as it will stand in a ``.keras`` file; None where it stays as it is."""

    kept: tuple[Kept, ...] = ()
    notes: tuple[Note, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    loaders_before: tuple[Verdict, ...] = ()
    loaders_after: tuple[Verdict, ...] = ()
    conversion: Conversion | None = None
    """The file that is written anew for a target; None where the source's own file is edited."""

    retrace: bool = False
    """
    Whether the model is built and traced anew, which changes a SavedModel's graph whatever becomes
    of its metadata.
    """

    @property
    def is_empty(self) -> bool:
        """Whether the file needs nothing."""
        return not (
            self.edits
            or self.casts
            or self.state is not None
            or self.refusals
            or self.retrace
            or self.conversion is not None
        )
