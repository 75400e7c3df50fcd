"""
The loss that a model is trained with, as its own library computes it, and targets that fit it.

A recorded loss is one that the library has by its name, or one of the classes and functions that
the user has registered. It is built from plain values alone: nothing of the file runs. Where it
cannot be built, mean squared error stands in for it, and why is told.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..library import KERAS3, is_serialized, items_of, name_and_config, sentence
from ..tensors import dtype_name, is_floating

if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

    from ..library import Library

SUBSTITUTE = "MeanSquaredError"
_NO_LOSSES = ("deserialize", "get", "serialize", "Loss", "Reduction")
"""Names among the losses that are not losses."""

ALIASES = {
    "bce": "binary_crossentropy",
    "kld": "kl_divergence",
    "kullback_leibler_divergence": "kl_divergence",
    "logcosh": "log_cosh",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "mse": "mean_squared_error",
    "msle": "mean_squared_logarithmic_error",
}
"""Short names that ``compile`` accepts, and that some releases lack among their losses."""

_TARGETS = {
    "classes": (
        "categorical_generalized_cross_entropy",
        "circle",
        "sparse_categorical_crossentropy",
    ),
    "one-hot": ("categorical_crossentropy", "categorical_focal_crossentropy", "categorical_hinge"),
    "distribution": ("kl_divergence",),
    "binary": (
        "binary_crossentropy",
        "binary_focal_crossentropy",
        "dice",
        "hinge",
        "squared_hinge",
        "tversky",
    ),
    "counts": ("poisson",),
    "positive": ("mean_absolute_percentage_error", "mean_squared_logarithmic_error"),
}
"""The kind of targets of each loss; all others have normally distributed targets."""

_KINDS = {name.replace("_", ""): kind for kind, names in _TARGETS.items() for name in names}
_LEFT_OUT = ("fn", "dtype")
"""
Keys of a loss' config that are no options of its formula; Keras 3 computes losses in float32
whatever the file says, unless a user made it otherwise.
"""


class Unbuildable(Exception):  # noqa: N818  # it says why another loss stands in
    """The reason why a recorded loss cannot be built, as a part of a sentence."""


@dataclass(eq=False)
class OutputLossSpec:
    """The loss of one output of the model."""

    output: str
    weight: float | None = None
    loss: Any = None
    """The loss as an argument of ``compile``; None if the output has no loss."""
    name: str | None = None
    source: str = "none"
    """``recorded``, ``substitute`` or ``none``."""
    targets: str | None = None
    why: str | None = None
    """The reason if it is not the recorded loss."""

    def take(self, loss: Any, name: str, source: str) -> None:
        """Set the loss of the output."""
        self.loss, self.name, self.source = loss, name, source
        self.targets = _KINDS.get(name.replace("_", "").lower(), "normal")

    def to_json(self) -> dict[str, Any]:
        """Return a description of the loss."""
        return {
            "output": self.output,
            "loss": self.name,
            "source": self.source,
            "targets": self.targets,
            "weight": self.weight,
            "why": self.why,
        }


def parts(
    library: Library, names: Sequence[str], outputs: Sequence[Any], options: Mapping[str, Any]
) -> list[OutputLossSpec]:
    """
    Return the loss of each output: the recorded loss if it can be built, else a substitute.

    ``outputs`` are the tensors that the model returns, or their specs. An output that is not a
    float tensor has no loss.
    """
    count = len(outputs)
    reason = "the file does not record a loss" if options.get("loss") is None else None
    try:
        recorded, weights = (
            _spread(options.get("loss"), names),
            _spread(options.get("loss_weights"), names),
        )
    except Unbuildable as error:
        recorded, weights, reason = [None] * count, [None] * count, str(error)
    output_parts = []
    for name, output, recorded_loss, weight in zip(names, outputs, recorded, weights):
        part = OutputLossSpec(name, None if weight is None else float(weight))
        output_parts.append(part)
        if not is_floating(output):
            part.why = "the output is {}, which has no gradient".format(dtype_name(output))
        elif reason is not None:
            substitute(library, part, reason)
        elif recorded_loss is not None:  # an output that the recorded loss leaves out has none
            try:
                part.take(*build_loss(library, recorded_loss), "recorded")
            except Unbuildable as error:
                substitute(library, part, str(error))
    return output_parts


def substitute(library: Library, part: OutputLossSpec, reason: str) -> None:
    """Use mean squared error as the loss of an output."""
    part.take(getattr(library.keras.losses, SUBSTITUTE)(), SUBSTITUTE, "substitute")
    part.why = reason


def draw_targets(part: OutputLossSpec, output: Any, random: Any) -> Any:
    """
    Return synthetic targets for an output as a NumPy array; an output without a loss gets normally
    distributed values, which are not used.
    """
    shape = [int(size) for size in output.shape]
    last = shape[-1] if shape else 1
    if part.targets == "classes":
        return random.randint(0, max(last, 1), size=shape[:-1]).astype("int32")
    if part.targets == "one-hot":
        return np.eye(max(last, 1), dtype="float32")[
            random.randint(0, max(last, 1), size=shape[:-1])
        ]
    if part.targets == "distribution":
        weights = np.exp(random.standard_normal(size=shape))
        return (weights / weights.sum(axis=-1, keepdims=True)).astype("float32")
    if part.targets == "binary":
        return random.randint(0, 2, size=shape).astype("float32")
    if part.targets == "counts":
        return random.poisson(1.0, size=shape).astype("float32")
    values = random.standard_normal(size=shape).astype("float32")
    return np.abs(values) if part.targets == "positive" else values


def compile_losses(
    library: Library, model: Any, outputs: Any, parts: Sequence[OutputLossSpec]
) -> None:
    """
    Compile a model with its losses, and with an optimizer that is not used; ``outputs`` are the
    nested outputs of the model.
    """
    losses: Any = [part.loss for part in parts]
    weights: Any = [1.0 if part.weight is None else part.weight for part in parts]
    if len(parts) == 1:
        losses, weights = losses[0], weights[0]
    elif isinstance(outputs, dict):
        losses, weights = (
            library.tf.nest.pack_sequence_as(outputs, flat) for flat in (losses, weights)
        )
    if all(part.weight is None for part in parts):
        weights = None
    options = {"jit_compile": False} if library.family == KERAS3 else {}
    library.keras.Model.compile(
        model, optimizer="sgd", loss=losses, loss_weights=weights, **options
    )  # not the class's own ``compile``, which may have other arguments


def total(library: Library, model: Any, inputs: Any, targets: Any, outputs: Any) -> Any:
    """
    Return the loss that ``train_step`` differentiates, including added and regularization losses.
    Keras 2 computes it in the dtype of the prediction, and Keras 3 in float32.
    """
    if library.family == KERAS3:
        return library.keras.Model.compute_loss(
            model, x=inputs, y=targets, y_pred=outputs, sample_weight=None
        )
    return model.compiled_loss(
        targets, outputs, None, regularization_losses=model.losses
    )  # what ``compute_loss`` is from TF 2.9 on


def build_loss(library: Library, recorded_loss: Any) -> tuple[Any, str]:
    """
    Return a recorded loss, a function or an object, and its name.

    :raises Unbuildable: if the library does not have the loss, or the loss is more than a name and
        plain values.
    """
    name, config = name_and_config(recorded_loss)
    if not isinstance(name, str):
        raise Unbuildable("the recorded loss has an unknown format")
    class_name = name.rpartition(">")[2]
    class_name = ALIASES.get(class_name.lower(), class_name)
    loss = library.custom.get(name, library.custom.get(class_name))
    if loss is None and class_name not in _NO_LOSSES and not class_name.startswith("_"):
        loss = getattr(library.keras.losses, class_name, None)
    if not callable(loss):
        text = "{} has no loss {}; specify a custom loss with --custom-objects"
        raise Unbuildable(text.format(library.versions["library"], name[:100]))
    return (
        (_instance(library, loss, config or {}), class_name)
        if inspect.isclass(loss)
        else (loss, class_name)
    )


def _spread(recorded: Any, names: Sequence[str]) -> list[Any]:
    """
    Return the recorded loss, or weight, of each output; the file has one for all outputs, a list
    with one for each, or a dict by name.
    """
    recorded = items_of(recorded)
    if isinstance(recorded, dict) and not is_serialized(recorded):
        unknown = sorted(set(recorded) - set(names))
        if unknown:
            text = "the recorded loss refers to outputs that do not exist in the model: {}"
            raise Unbuildable(text.format(", ".join(unknown[:5])))
        return [recorded.get(name) for name in names]
    if isinstance(recorded, (list, tuple)):
        if len(recorded) != len(names):
            text = "the file records {} losses or weights, but the model has {} outputs"
            raise Unbuildable(text.format(len(recorded), len(names)))
        return list(recorded)
    return [recorded] * len(names)


def _instance(library: Library, loss_class: Any, config: Any) -> Any:
    """Return an object of a class of losses, from the plain values of its config."""
    if not isinstance(config, dict) or not _plain(
        [value for key, value in config.items() if key not in _LEFT_OUT]
    ):
        text = "the config of the recorded {} contains values other than numbers, strings and lists"
        raise Unbuildable(text.format(loss_class.__name__))
    options = {key: value for key, value in config.items() if key not in _LEFT_OUT}
    if library.family == KERAS3 and options.get("reduction") == "auto":
        options["reduction"] = (
            "sum_over_batch_size"  # what Keras 2 takes auto for outside of a strategy
        )
    try:
        return loss_class(**options)
    except Exception as error:  # the constructor of a custom class can raise anything
        text = "the recorded {} cannot be built: {}"
        raise Unbuildable(text.format(loss_class.__name__, sentence(error))) from error


def _plain(value: Any) -> bool:
    """
    Return whether a value consists only of numbers, strings and lists of them. Keras would look up
    other objects, and run code of the file.
    """
    if isinstance(value, (list, tuple)):
        return all(_plain(element) for element in value)
    return value is None or isinstance(value, (bool, int, float, str))
