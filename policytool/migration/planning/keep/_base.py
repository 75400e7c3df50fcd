"""What a rule is that keeps layers in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.releases.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepRule:
    """Which layers stay in float32 when a model goes to a 16-bit policy."""

    name: str
    find: Callable[[LoadedModel, Policy], Iterator[tuple[int, str]]]
    """
    Yield sites with the reason, for a model and the policy it is to have.

    It depends on the model's structure, never on its present policies.
    """


def float_inputs(loaded: LoadedModel, index: int) -> bool:
    """Return whether floats come in at an input layer: whether its dtype is a float, or unsaid."""
    layer = loaded.layers[index]
    return layer.compute_dtype is None or "float" in layer.compute_dtype
