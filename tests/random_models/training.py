"""How random models are compiled: optimizers, schedules, losses and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.random_models.description import Training

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.drawing import Draw

_OPTIMIZERS: Final[Mapping[str, Mapping[str, tuple[Any, ...]]]] = {
    "SGD": {"momentum": (0.0, 0.9), "nesterov": (False, True)},
    "Adam": {"amsgrad": (False, True), "beta_1": (0.9, 0.8), "epsilon": (1e-7, 1e-5)},
    "AdamW": {"weight_decay": (0.004, 0.01)},
    "RMSprop": {"momentum": (0.0, 0.5), "centered": (False, True), "rho": (0.9, 0.95)},
    "Adagrad": {"initial_accumulator_value": (0.1, 0.2)},
    "Adadelta": {"rho": (0.95, 0.9)},
    "Adamax": {"beta_2": (0.999, 0.99)},
    "Nadam": {"beta_1": (0.9, 0.8)},
    "Ftrl": {"learning_rate_power": (-0.5, -0.6), "l1_regularization_strength": (0.0, 0.01)},
    "Lion": {"beta_1": (0.9, 0.95)},
    "Adafactor": {"clip_threshold": (1.0, 2.0)},
}
_OFTEN: Final = ("Adam", "Adam", "Adam", "SGD", "RMSprop", "AdamW")
_SHARED: Final[tuple[dict[str, Any], ...]] = (
    *({} for _ in range(8)),
    {"clipnorm": 1.0},
    {"clipvalue": 0.5},
    {"global_clipnorm": 2.0},
    {"use_ema": True, "ema_momentum": 0.9},
    {"weight_decay": 0.01},
    {"name": "my_optimizer"},
)
_SCHEDULES: Final[tuple[dict[str, Any], ...]] = (
    {
        "class": "ExponentialDecay",
        "config": {"initial_learning_rate": 0.01, "decay_steps": 10, "decay_rate": 0.9},
    },
    {"class": "CosineDecay", "config": {"initial_learning_rate": 0.01, "decay_steps": 10}},
    {
        "class": "PiecewiseConstantDecay",
        "config": {"boundaries": [5, 10], "values": [0.1, 0.05, 0.01]},
    },
    {"class": "PolynomialDecay", "config": {"initial_learning_rate": 0.01, "decay_steps": 10}},
    {
        "class": "InverseTimeDecay",
        "config": {"initial_learning_rate": 0.01, "decay_steps": 10, "decay_rate": 0.5},
    },
)
_LOSSES: Final[tuple[Any, ...]] = (
    *("mse", "mae", "mean_squared_error", "categorical_crossentropy", "binary_crossentropy"),
    *("sparse_categorical_crossentropy", "kl_divergence", "hinge", "poisson"),
    {"class": "MeanSquaredError", "of": "losses"},
    {"class": "Huber", "of": "losses", "config": {"delta": 0.7}},
    {"class": "BinaryCrossentropy", "of": "losses", "config": {"from_logits": True}},
    {
        "class": "CategoricalCrossentropy",
        "of": "losses",
        "config": {"label_smoothing": 0.1, "name": "my_loss"},
    },
)
_METRICS: Final[tuple[Any, ...]] = (
    *("mae", "mse", "accuracy", "mean_absolute_error"),
    {"class": "MeanAbsoluteError", "of": "metrics", "config": {"name": "off"}},
    {"class": "RootMeanSquaredError", "of": "metrics"},
    {"class": "AUC", "of": "metrics"},
    {"class": "Precision", "of": "metrics", "config": {"thresholds": 0.4}},
    {"class": "SparseTopKCategoricalAccuracy", "of": "metrics", "config": {"k": 2}},
)
_TRAINABLE_LOSSES: Final = ("mse", "mae", {"class": "Huber", "of": "losses"})


def draw_training(draw: Draw, outputs: int, policy: str) -> Training:
    """Return what a model with some outputs is compiled with."""
    optimizer = _optimizer(draw)
    if policy == "mixed_float16" and draw.chance(0.3):
        key = "inner_optimizer"
        optimizer = {
            "class": "LossScaleOptimizer",
            "of": "optimizers" if draw.keras3 else "mixed_precision",
            "config": {key: optimizer},
        }
    step = draw.pick(("apply", "apply", "apply", "train", "none"))
    losses = _TRAINABLE_LOSSES if step == "train" else _LOSSES
    loss = draw.pick(losses)
    if outputs > 1 and draw.chance(0.5):
        loss = [draw.pick(losses) for _ in range(outputs)]
    weights = [draw.number_between(0.1, 2) for _ in range(outputs)]
    metrics: Any = None
    if outputs == 1 and step != "train" and draw.chance(0.6):
        metrics = [draw.pick(_METRICS) for _ in range(draw.whole(1, 2))]
    return Training(
        optimizer=optimizer,
        loss=loss,
        metrics=metrics,
        loss_weights=weights if isinstance(loss, list) and draw.chance(0.5) else None,
        weighted_metrics=["mae"] if outputs == 1 and draw.chance(0.1) else None,
        jit_compile=draw.pick((None, None, None, False)),
        step=step,
    )


def _optimizer(draw: Draw) -> dict[str, Any]:
    names = [*_OPTIMIZERS, *(("Lamb", "Muon") if draw.keras3 and draw.chance(0.2) else ())]
    name = draw.pick(_OFTEN if draw.chance(0.5) else names)
    options = {
        key: draw.pick(values)
        for key, values in _OPTIMIZERS.get(name, {}).items()
        if draw.chance(0.4)
    }
    config: dict[str, Any] = {**options, **draw.pick(_SHARED)}
    rate = draw.random.random()
    if rate < 0.15:
        schedule = draw.pick(_SCHEDULES)
        config["learning_rate"] = {**schedule, "of": "optimizers.schedules"}
    elif rate < 0.6:
        config["learning_rate"] = draw.pick((0.01, 0.001, 3e-4))
    if name in {"Lion", "Adafactor", "Muon"}:
        config.pop("weight_decay", None)
    legacy = not draw.keras3 and draw.chance(0.1)
    if legacy and name not in {"AdamW", "Lion", "Adafactor"}:
        config = {key: config[key] for key in (*options, "learning_rate") if key in config}
        return {"class": name, "of": "optimizers.legacy", "config": config}
    return {"class": name, "of": "optimizers", "config": config}
