"""What a file records of its training, as far as a backward step needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policytool.migration.planning.loss_scale import model_policy
from policytool.model.optimizer_config import configuration
from policytool.releases.policy import loss_scale_values

if TYPE_CHECKING:
    from policytool.model.loaded_model import LoadedModel


def recorded_training(loaded: LoadedModel) -> dict[str, Any]:
    """
    Return the losses and the loss scale of a file.

    The optimizer's scale wins over that of the model's policy, as it does in training; layer
    policies scale nothing.
    """
    optimizer = loaded.optimizer
    scale = optimizer.loss_scale if optimizer is not None else None
    policy = model_policy(loaded)
    if scale is None and policy is not None:
        scale = policy.effective_loss_scale
    config = configuration(loaded.document)
    losses = {
        name: config.get(name) if isinstance(config, dict) else None
        for name in ("loss", "loss_weights")
    }
    return {**losses, "recorded": loss_scale_values(scale)}
