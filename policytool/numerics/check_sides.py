"""
The job of a check: the two sides as the child process takes them (what is loaded, with which
library, and with which policies), the training that a file records, and the user's functions
(``MODULE:FUNCTION``), which the child imports.

Policies are changed by migrate's plan, in a copy. A SavedModel and an architecture are built from a
changed config instead, because a SavedModel's graph would keep its dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.migration import planning
from policytool.migration.plan import apply_edits
from policytool.migration.planning.training import model_policy
from policytool.model import reading
from policytool.model.optimizer_config import configuration
from policytool.releases.policy import loss_scale_values
from policytool.support import steps
from policytool.support.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.formats.discovery import Input
    from policytool.formats.document import Document
    from policytool.migration.plan import Plan
    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.numerics.hand_over import HandOver, PrivateCopy
    from policytool.support.text.jsontext import Json


ARCHITECTURES: Final = frozenset({"json", "yaml"})
"""Formats that hold no weights."""

GRAPH: Final = "graph"
"""How a SavedModel is run that no Keras can build anew."""

_ROUNDING: Final = ("int8", "int4", "float8")
"""
Modes in which quantised layers of Keras 3 may round their inputs; in others they dequantise their
weights and compute in floats.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckSource:
    """A file that may be run."""

    input: Input
    copy: PrivateCopy
    """What is run in its place."""

    @property
    def document(self) -> Document:
        """What was read of it."""
        return self.copy.document

    @property
    def loaded(self) -> LoadedModel | None:
        """The model in it; None for a SavedModel that is a graph alone."""
        return self.copy.loaded


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedSide:
    """One side."""

    job: Mapping[str, Any]
    """What the child gets."""

    loaded: LoadedModel | None
    """The model as it runs; None for a graph."""

    plan: Plan | None
    """
    What its policies were changed by; None for a graph, whose policy TensorFlow changes as a whole.
    """

    policy: str | None
    """The policy that its layers were given; None where they have those of the file."""

    dequantized: tuple[str, ...] = ()
    """The modes of quantised layers that run as if they were not quantised."""

    @property
    def is_graph(self) -> bool:
        """Whether the model runs as the graph that the file holds."""
        return bool(self.job["how"] == GRAPH)


def read_source(model_input: Input, hand_over: HandOver) -> CheckSource:
    """
    Return a private copy of a file that TensorFlow may run.

    :raises ModelFileError: if the file cannot be read or run, or needs trust.
    """
    return CheckSource(
        input=model_input, copy=hand_over.take(model_input.local_path, model_input.display_path)
    )


def read_weights(
    weights: Path | None, *sources: CheckSource, hand_over: HandOver
) -> PrivateCopy | None:
    """
    Return the weights that are named, for the architecture among the models.

    :raises UsageError: where each model has its own.
    :raises ModelFileError: for a file without weights, and without ``--trust`` for weights in
        another file.
    """
    if weights is None:
        return None
    if not any(source.document.format in ARCHITECTURES for source in sources):
        raise UsageError(
            "--weights is only for architectures (JSON, YAML), but "
            f"{sources[-1].input.display_path} has its own weights"
        )
    return hand_over.copy_weights(weights)


def prepare_side(
    source: CheckSource,
    options: Options,
    scratch: tuple[HandOver, Path],
    weights: PrivateCopy | None = None,
    *,
    dequantize: bool = False,
) -> PreparedSide:
    """
    Return a side of the check: the model with its policies changed as the options say.

    :param dequantize: whether quantised layers compute in floats with dequantised weights
    :param scratch: what makes changed copies, and a directory of this side's own for them
    :param weights: the weights of an architecture
    :raises ModelFileError: for what cannot be changed so, and what cannot be written.
    :raises UsageError: for options that contradict the model.
    """
    with steps.budget(source.input.display_path):
        return _prepare_side(source, options, scratch, weights, dequantize=dequantize)


def _prepare_side(
    source: CheckSource,
    options: Options,
    scratch: tuple[HandOver, Path],
    weights: PrivateCopy | None,
    *,
    dequantize: bool,
) -> PreparedSide:
    model_input, loaded = source.input, source.loaded
    if loaded is None:
        return PreparedSide(
            job={"how": GRAPH, "path": source.copy}, loaded=None, plan=None, policy=options.to
        )
    plan = planning.draft(loaded, replace(options, retrace=loaded.document.format == "savedmodel"))
    if plan.refusals:
        raise ModelFileError(
            model_input.display_path,
            plan.refusals[0].code,
            "; ".join(refusal.message for refusal in plan.refusals[:3]),
        )
    planned = planned_model(loaded, plan)
    job: dict[str, Any] = {"family": loaded.family, "policy": planned.layers[0].policy}
    match loaded.document.format:
        case "savedmodel" if loaded.document.nodes:
            from policytool.numerics import reexport  # protobuf, for SavedModels alone

            arguments = reexport.build_arguments(loaded, planned)
            job |= {**arguments, "how": "rebuilt", "path": source.copy}
        case form if form in ARCHITECTURES:
            job |= {
                "how": "config",
                "config": _without_compile_config(planned.document.config),
                "weights": weights,
            }
        case _:
            hand_over, folder = scratch
            job |= {"how": "saved", "path": hand_over.change(source.copy, planned, plan, folder)}
    modes = _rounding_modes(planned) if dequantize else ()
    return PreparedSide(
        job={**job, "dequantize": bool(modes)},
        loaded=planned,
        plan=plan,
        policy=options.to,
        dequantized=modes,
    )


def planned_model(loaded: LoadedModel, plan: Plan) -> LoadedModel:
    """Return the model with the changes of a plan."""
    if not (plan.edits or plan.casts):
        return loaded
    return reading.load_model(apply_edits(loaded.document, plan.edits, plan.casts))


def _rounding_modes(loaded: LoadedModel) -> tuple[str, ...]:
    stored_modes = {
        layer.quantization.mode.partition("/")[0]
        for layer in loaded.layers
        if layer.quantization is not None
    }
    return tuple(mode for mode in _ROUNDING if mode in stored_modes)


def _without_compile_config(config: Json) -> Json:
    """
    Return an architecture without the training configuration that Keras 3 writes beside it, which
    its loader would compile the model with.
    """
    return (
        {key: value for key, value in config.items() if key != "compile_config"}
        if isinstance(config, dict)
        else config
    )


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
    known = config if isinstance(config, dict) else {}
    return {
        "loss": known.get("loss"),
        "loss_weights": known.get("loss_weights"),
        "recorded": loss_scale_values(scale),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class UserFunction:
    """A function by the name of its module and its own."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def toml(self) -> str:
        """Return it as it is written in a settings file."""
        return f'"{self}"'


def function_named(text: str) -> UserFunction | None:
    """Return the function that ``MODULE:FUNCTION`` names; None for text of another form."""
    module, colon, name = text.partition(":")
    is_function = colon and name.isidentifier() and all(map(str.isidentifier, module.split(".")))
    return UserFunction(module=module, name=name) if is_function else None


def file_or_function(text: str) -> Path | UserFunction:
    """
    Return what a text names: an existing file, a function if the text has the form of one, else a
    file that does not exist.
    """
    path, function = Path(text), function_named(text)
    return path if function is None or path.exists() else function
