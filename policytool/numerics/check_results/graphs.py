"""What TensorFlow's own automatic mixed precision made of a saved graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphRewrite:
    """What one pass changed in the graph of one signature."""

    option: str
    """
    The pass, as TensorFlow's RewriterConfig calls it, such as
    ``auto_mixed_precision_onednn_bfloat16``.
    """

    said: str
    """The same in words, with what it stands for where it only emulates."""

    ops: int
    """How many ops it took to 16 bits; those of loops that are functions among them."""

    total: int
    """How many ops had a float32 type before, without those that only pass on what others made."""

    casts: int
    """How many casts it added."""

    narrow_before: int
    """How many ops had a 16-bit type before: the plain graph is no float32 reference then."""

    by_type: Mapping[str, int]
    """The ops that it changed, by their type."""

    unchanged: str | None
    """
    Why nothing differs, as a sentence, where it changed nothing; such a run shows nothing of the
    policy.
    """


def rewrite_from_json(found: Mapping[str, Any]) -> GraphRewrite:
    """Return what the child process says of a rewrite."""
    return GraphRewrite(
        option=found["option"],
        said=found["said"],
        ops=found["ops"],
        total=found["total"],
        casts=found["casts"],
        narrow_before=found["narrow_before"],
        by_type=dict(found["by_type"]),
        unchanged=found["unchanged"],
    )
