"""
The parts of a check's job: the two sides (the file, the library and the policies of each), the
training config of the file, and the user's functions (``MODULE:FUNCTION``), which the child
process imports.

The plan of ``migrate`` changes the policies in a copy of the file. A SavedModel and an architecture
are built from a changed config instead, because the graph of a SavedModel would keep its dtypes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats import format_detection, keras_hub
from policytool.migration import planning
from policytool.migration.plan import planned_model
from policytool.migration.planning import decisions
from policytool.migration.planning.options import Options
from policytool.migration.planning.training import model_policy
from policytool.model.optimizer_config import configuration
from policytool.numerics.workers import check_memory
from policytool.releases.policy import loss_scale_values
from policytool.releases.releases import KERAS2, KERAS3
from policytool.support import steps
from policytool.support.errors import ModelFileError, UsageError, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.discovery import Input
    from policytool.formats.document import Document
    from policytool.migration.plan import Plan
    from policytool.model.loaded_model import LoadedModel
    from policytool.numerics.hand_over import HandOver, PrivateCopy
    from policytool.support.text.jsontext import Json


ARCHITECTURES: Final = frozenset({"json", "yaml"})
"""Formats without weights."""

GRAPH: Final = "graph"
"""The value of ``how`` in the job for a SavedModel that Keras cannot rebuild from configs."""

LITE: Final = "lite"
"""The value of ``how`` in the job for a TensorFlow Lite file."""

_ROUNDING: Final = ("int8", "int4", "float8")
"""
Quantization modes in which layers of Keras 3 may round their inputs. In other modes, they
dequantize their weights and compute in floats.
"""


class CheckSource(Struct, frozen=True, kw_only=True):
    """A file that TensorFlow may run."""

    input: Input
    copy: PrivateCopy
    """The private copy, which TensorFlow runs."""

    @property
    def document(self) -> Document:
        """The content of the copy."""
        return self.copy.document

    @property
    def loaded(self) -> LoadedModel | None:
        """
        The model in the copy; None for a SavedModel of which only the graph runs, because it has no
        Keras objects.
        """
        is_graph = self.document.format == "savedmodel" and not self.document.nodes
        return None if is_graph else self.copy.loaded


class PreparedSide(Struct, frozen=True, kw_only=True):
    """The reference or the candidate, ready to run."""

    job: Mapping[str, Any]
    """The part of the job for this side."""

    loaded: LoadedModel | None
    """The model with its changed policies; None for a graph."""

    plan: Plan | None
    """
    The plan that changes the policies; None for a graph, which TensorFlow changes as a whole.
    """

    policy: str | None
    """The policy that the check sets for the layers; None if they keep those of the file."""

    dequantized: tuple[str, ...] = ()
    """The quantization modes of layers that run dequantized, in floats."""

    @property
    def is_graph(self) -> bool:
        """Whether the model runs as the graph in the file."""
        return bool(self.job["how"] == GRAPH)


def read_source(
    model_input: Input, hand_over: HandOver, policies: Sequence[str | None] = (None,)
) -> CheckSource:
    """
    Return a private copy of a file that TensorFlow may run.

    :param policies: the policies under which it runs; None for those of the file
    :raises ModelFileError: if the file cannot be read or run, or needs trust; for a KerasHub
        preset, also if its weights need more memory than the machine has.
    """
    path, shown = model_input.local_path, model_input.display_path
    if keras_hub.is_preset(path):
        with steps.budget(shown):
            check_memory(format_detection.document(path, shown), policies)
    return CheckSource(input=model_input, copy=hand_over.take(path, shown, converts=True))


def read_weights(
    weights: Path | None, *sources: CheckSource, hand_over: HandOver
) -> PrivateCopy | None:
    """
    Return a copy of the weights file that the user specified for an architecture; None without one.

    :raises UsageError: if none of the models is an architecture.
    :raises ModelFileError: if the file contains no weights, or if it refers to other files and
        ``--trust`` is not set.
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
    Return a side of the check: the model with the policies that the options set.

    :param dequantize: whether quantized layers compute in floats with dequantized weights
    :param scratch: the creator of copies, and a directory for the changed copy of this side
    :param weights: the weights of an architecture
    :raises ModelFileError: if the policies cannot be changed, or the copy cannot be written.
    :raises UsageError: if the options contradict the model.
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
    """Do the same as :func:`prepare_side`, without its budget of steps."""
    model_input, loaded = source.input, source.loaded
    if loaded is None:
        return PreparedSide(
            job={"how": GRAPH, "path": source.copy}, loaded=None, plan=None, policy=options.to
        )
    if options.quantizes:
        quantization = _quantization(source, loaded, options)
        side = _prepare_side(source, Options(), scratch, weights, dequantize=False)
        return replace(side, job={**side.job, "quantize": quantization}, policy=options.to)
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
        case "savedmodel":
            from policytool.numerics import reexport  # protobuf, for SavedModels alone

            arguments = reexport.build_arguments(loaded, planned)
            job |= {**arguments, "how": "rebuilt", "path": source.copy}
        case form if form in ARCHITECTURES:
            job |= {
                "how": "config",
                "config": _without_compile_config(planned.document.config),
                "weights": weights,
            }
        case keras_hub.FORMAT.document_format:
            job |= {
                "how": "preset",
                "config": planned.document.config,
                "path": source.copy,
                "weights": keras_hub.weights_path(source.copy.path).name,
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


def _quantization(source: CheckSource, loaded: LoadedModel, options: Options) -> dict[str, Any]:
    """
    Return the part of a side's job with which the child process quantizes a model.

    :raises ModelFileError: if Keras 3 cannot load the model with its weights.
    """
    assert options.to is not None  # noqa: S101  # it is the mode
    if loaded.family != KERAS3:
        raise ModelFileError(
            source.input.display_path,
            "not-quantizable",
            f"is a Keras 2 model, and only Keras 3 quantizes layers to {options.to}; convert it "
            "first with `policytool migrate --target keras3`",
        )
    if loaded.document.format in ARCHITECTURES:
        raise ModelFileError(
            source.input.display_path,
            "not-quantizable",
            f"is an architecture, and --to {options.to} quantizes stored weights; add them with "
            "`policytool migrate --target keras3 --weights`",
        )
    matched = decisions.matches(loaded, options.assignments)
    return {"mode": options.to, "kept": [loaded.layers[index].path for index in sorted(matched)]}


def lite_side(source: CheckSource, options: Options) -> PreparedSide:
    """
    Return a TensorFlow Lite file as a side, compared by its outputs.

    :raises UsageError: if options change its policies.
    """
    if options.to is not None or options.assignments:
        raise UsageError(
            f"{source.input.display_path} is a TensorFlow Lite model, whose policies cannot "
            "change; remove --to and --set"
        )
    job = {"how": LITE, "path": source.copy, "family": KERAS2, "policy": None}
    return PreparedSide(job=job, loaded=None, plan=None, policy=None)


def _rounding_modes(loaded: LoadedModel) -> tuple[str, ...]:
    stored_modes = {
        layer.quantization.mode.partition("/")[0]
        for layer in loaded.layers
        if layer.quantization is not None
    }
    return tuple(mode for mode in _ROUNDING if mode in stored_modes)


def _without_compile_config(config: Json) -> Json:
    """
    Return the config of an architecture without its training config, with which Keras 3 would
    compile the model.
    """
    return (
        {key: value for key, value in config.items() if key != "compile_config"}
        if isinstance(config, dict)
        else config
    )


def recorded_training(loaded: LoadedModel) -> dict[str, Any]:
    """
    Return the losses and the loss scale that a file records.

    The loss scale of the optimizer takes precedence over that of the model's policy, as in
    training. Policies of layers have no loss scale.
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


class UserFunction(Struct, frozen=True, kw_only=True):
    """A Python function of the user: the names of its module and of the function."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def toml(self) -> str:
        """Return the function as a value of a settings file."""
        return f'"{self}"'


def function_named(text: str) -> UserFunction | None:
    """Return the function of a text ``MODULE:FUNCTION``; None if the text has another form."""
    module, colon, name = text.partition(":")
    is_function = colon and name.isidentifier() and all(map(str.isidentifier, module.split(".")))
    return UserFunction(module=module, name=name) if is_function else None


def file_or_function(text: str) -> Path | UserFunction:
    """
    Return the file or function that a text names: an existing file, or else a function if the text
    is ``MODULE:FUNCTION``, or else a file that does not exist.
    """
    path, function = Path(text), function_named(text)
    return path if function is None or path.exists() or array_file(path) != path else function


def array_file(path: Path) -> Path:
    """Return the file of ``FILE.npz:KEY``, which names one array; any other path itself."""
    file, _, key = str(path).rpartition(":")
    return Path(file) if key and file.endswith(".npz") and not path.exists() else path


def parse_batches(batches: int | str | None) -> tuple[int | None, int | None]:
    """
    Return the number of batches and the examples per batch that ``--batches`` sets, each None if
    it does not.

    :raises UsageError: for a text of another form, and for zero.
    """
    if batches is None:
        return None, None
    match = re.fullmatch(r"([1-9][0-9]{0,8})?(?:x([1-9][0-9]{0,8}))?", str(batches))
    if not match or not match[0]:
        raise UsageError(
            f"the batches {short(str(batches))!r} are neither a number, such as 4, nor a number "
            "with the examples per batch, such as 4x32 or x32"
        )
    count, size = (int(number) if number else None for number in match.groups())
    return count, size
