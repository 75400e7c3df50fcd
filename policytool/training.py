"""The optimizer a file was saved with, and its loss scale, in every spelling of ``LossScaleOptimizer``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.errors import SpellingError
from policytool.generations import _spelling
from policytool.model import Optimizer
from policytool.policy import Auto, Dynamic, Fixed, Unscaled

if TYPE_CHECKING:
    from policytool.document import Document
    from policytool.jsontext import Json

WRAPPERS: Final = frozenset({"LossScaleOptimizer", "LossScaleOptimizerV1", "LossScaleOptimizerV3"})
ALIASES: Final = {
    name.lower(): name
    for name in ("Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "Ftrl", "Lamb", "Lion", "Muon", "Nadam", "RMSprop", "SGD", "TFOptimizer")
}
"""What ``compile("adam")`` stands for: Keras looks the lower-cased name up among its optimizers (``keras.optimizers.get``)."""

_MAX_WRAPPERS: Final = 8


def optimizer_config(document: Document) -> Json:
    """Return the serialised optimizer: of HDF5's ``training_config``, a SavedModel's root, or Keras 3's ``compile_config``; None for none."""
    holders: list[Json] = [document.parts.get(document.training_part or "")]
    root = document.parts.get(document.config_part or "")
    if isinstance(root, dict):
        holders += [root.get("training_config"), root.get("compile_config")]
    for holder in holders:
        if isinstance(holder, dict):
            for key in ("optimizer_config", "optimizer"):
                if holder.get(key) is not None:
                    return holder[key]
    return None


def read(config: Json) -> Optimizer | None:
    """
    Return the optimizer of a serialised one; a bare name stands for its defaults.

    :raises SpellingError: for what no release writes.
    """
    if config is None:
        return None
    if isinstance(config, str):
        return Optimizer(class_name=ALIASES.get(config.lower(), config))
    scale: Dynamic | Fixed | None = None
    for _ in range(_MAX_WRAPPERS):
        class_name, inner = _spelling.class_and_config(config)
        name = class_name.rpartition(">")[2]
        if name not in WRAPPERS:
            factor = inner.get("loss_scale_factor")
            if scale is None and factor is not None:
                scale = Fixed(value=_spelling.number(inner, "loss_scale_factor"))
            return Optimizer(class_name=name, loss_scale=scale)
        scale = scale or _scale(inner)
        config = inner.get("optimizer", inner.get("inner_optimizer"))
        if isinstance(config, str):
            return Optimizer(class_name=ALIASES.get(config.lower(), config), loss_scale=scale)
    raise SpellingError(f"the optimizer is wrapped more than {_MAX_WRAPPERS} times")


def _scale(config: dict[str, Json]) -> Dynamic | Fixed | None:
    if _spelling.LOSS_SCALE in config:  # TF 2.0 to 2.3
        scale = _spelling.parse_loss_scale(config)
        return None if isinstance(scale, Auto | Unscaled) else scale
    initial = _spelling.number(config, "initial_scale", Dynamic().initial)
    if config.get("dynamic", True) is False:
        return Fixed(value=initial)
    return Dynamic(initial=initial, growth_steps=_spelling.whole(config, "dynamic_growth_steps", Dynamic().growth_steps))
