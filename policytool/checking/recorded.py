"""What a file records of its training, as far as a backward step needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policytool.policy import Dynamic, Fixed
from policytool.training import configuration

if TYPE_CHECKING:
    from policytool.reading import Analysis


def training(analysis: Analysis) -> dict[str, Any]:
    """Return the losses and the loss scale of a file; the optimizer's scale wins over the model's policy, as it does in training."""
    model = analysis.model
    scale = model.optimizer.loss_scale if model.optimizer is not None else None
    config = configuration(analysis.document)
    losses = {name: config.get(name) if isinstance(config, dict) else None for name in ("loss", "loss_weights")}
    return {**losses, "recorded": _told(scale if scale is not None else model.layers[0].loss_scale)}


def _told(scale: Dynamic | Fixed | None) -> dict[str, Any] | None:
    match scale:
        case Fixed(value=value):
            return {"kind": "fixed", "value": value}
        case Dynamic():
            return {"kind": "dynamic", "initial": scale.initial, "growth_steps": scale.growth_steps, "multiplier": scale.multiplier}
    return None
