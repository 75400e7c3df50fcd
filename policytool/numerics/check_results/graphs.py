"""What TensorFlow's own automatic mixed precision made of a saved graph."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # for the codec
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptScope:
    """A scope of a graph, such as a layer's, with ops that stay float32."""

    scope: str
    ops: Mapping[str, int]
    """These ops by type."""

    is_whole: bool
    """Whether none of its ops were changed."""


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

    kept: tuple[KeptScope, ...] = ()
    """The scopes with ops that it left in float32, in the order of the graph."""

    unchanged: str | None
    """
    Why nothing differs, as a sentence, where it changed nothing; such a run shows nothing of the
    policy.
    """

    @property
    def dtype(self) -> str:
        """The 16-bit dtype that it converts to."""
        return "bfloat16" if self.option.endswith(("bfloat16", "_mkl")) else "float16"
