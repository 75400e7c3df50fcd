"""
The two sides of a check as the child process takes them: what is loaded, with which library, and
with which policies.

Policies are changed by migrate's plan. A file's changed copy lies in a temporary directory; a
SavedModel and an architecture are built from a changed config instead, because a SavedModel's graph
would keep its dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from policytool.formats import ambiguity, format_detection
from policytool.formats.edits import WriteOptions
from policytool.migration import planning
from policytool.migration.planning.planned_document import apply_edits
from policytool.model import reading, untrusted_code
from policytool.support.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policytool.formats.discovery import Input
    from policytool.formats.document import Document
    from policytool.migration.plan import Plan
    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.files.opening import Identity
    from policytool.support.text.jsontext import Json

ARCHITECTURES: Final = frozenset({"json", "yaml"})
"""Formats that hold no weights."""

GRAPH: Final = "graph"
"""How a SavedModel is run that no Keras can build anew."""

_SUFFIXES: Final = {"h5": ".h5", "keras": ".keras"}
"""Keras picks the reader by the suffix; that of an unpacked model is the one without."""

_ROUNDING: Final = ("int8", "int4", "float8")
"""
Modes in which quantised layers of Keras 3 may round their inputs; in others they dequantise their
weights and compute in floats.
"""

_NOT_RUN: Final = {
    "weights": (
        "contains only weights; check the architecture of the model and specify this file with "
        "--weights"
    ),
    "keras-metadata": (
        "contains only metadata, without weights or a graph; specify the SavedModel's directory"
    ),
    "tfjs": "is a TensorFlow.js model, which Keras cannot run; convert it to HDF5 first",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckSource:
    """A file that may be run."""

    input: Input
    document: Document
    loaded: LoadedModel | None
    """The model in it; None for a SavedModel that is a graph alone."""


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

    files: tuple[Identity, ...] = ()
    """What the model was read from, which the child compares with what it loads."""

    dequantized: tuple[str, ...] = ()
    """The modes of quantised layers that run as if they were not quantised."""

    @property
    def is_graph(self) -> bool:
        """Whether the model runs as the graph that the file holds."""
        return bool(self.job["how"] == GRAPH)


def read_source(found: Input, *, trust: bool, custom_objects: bool = False) -> CheckSource:
    """
    Return a file that may be run.

    :param custom_objects: whether the user names modules that define classes
    :raises ModelFileError: for what cannot be read or run, and for what needs trust.
    """
    document = format_detection.document(found.path, found.display_path)
    ambiguity.refuse(document)
    if document.format in _NOT_RUN:
        raise ModelFileError(found.display_path, "not-runnable", _NOT_RUN[document.format])
    loaded = reading.load_model(document) if document.config_part is not None else None
    reasons = (
        untrusted_code.of_file(document)
        if loaded is None
        else untrusted_code.reasons_not_to_run(loaded)
    )
    message = None if trust else untrusted_code.refusal(reasons, custom_objects=custom_objects)
    if message is not None:
        raise ModelFileError(found.display_path, "runs-code", message)
    return CheckSource(input=found, document=document, loaded=loaded)


def check_weights(weights: Path | None, *sources: CheckSource, trust: bool) -> tuple[Identity, ...]:
    """
    Make sure that something takes the weights that are named, and that they lie in their file, and
    return the identity of what was checked.

    :raises UsageError: where each model has its own.
    :raises ModelFileError: where they lead out of their file, and nobody trusts them.
    """
    if weights is None:
        return ()
    if not any(source.document.format in ARCHITECTURES for source in sources):
        raise UsageError(
            "--weights is only for architectures (JSON, YAML), but "
            f"{sources[-1].input.display_path} has its own weights"
        )
    path = (
        weights if weights.exists() else weights.with_name(f"{weights.name}.index")
    )  # TensorFlow calls a checkpoint by the name without its suffix
    if trust or not format_detection.is_model(path):
        return ()
    document = format_detection.document(path, str(weights))
    message = untrusted_code.refusal(untrusted_code.of_file(document))
    if message is not None:
        raise ModelFileError(str(weights), "runs-code", message)
    return document.files


def prepare_side(
    source: CheckSource,
    options: Options,
    scratch: Path,
    weights: Path | None = None,
    *,
    dequantize: bool = False,
) -> PreparedSide:
    """
    Return a side of the check: the model with its policies changed as the options say.

    :param dequantize: whether quantised layers compute in floats with dequantised weights
    :param scratch: a directory of this side's own, in which changed copies are made
    :param weights: where the weights of an architecture are
    :raises ModelFileError: for what cannot be changed so, and what cannot be written.
    :raises UsageError: for options that contradict the model.
    """
    found, loaded = source.input, source.loaded
    if loaded is None:
        return PreparedSide(
            job={"how": GRAPH},
            loaded=None,
            plan=None,
            policy=options.to,
            files=source.document.files,
        )
    plan = planning.draft(loaded, replace(options, retrace=loaded.document.format == "savedmodel"))
    if plan.refusals:
        raise ModelFileError(
            found.display_path,
            plan.refusals[0].code,
            "; ".join(refusal.message for refusal in plan.refusals[:3]),
        )
    wanted = loaded
    if plan.edits or plan.casts:
        wanted = reading.load_model(apply_edits(loaded.document, plan.edits, plan.casts))
    job: dict[str, Any] = {"family": loaded.family, "policy": wanted.layers[0].policy}
    match loaded.document.format:
        case "savedmodel" if loaded.document.nodes:
            job |= _rebuild_job(found.local_path, loaded, wanted)
        case form if form in ARCHITECTURES:
            job |= {
                "how": "config",
                "config": _without_compile_config(wanted.document.config),
                "weights": str(weights.resolve()) if weights is not None else None,
            }
        case _:
            job |= {"how": "saved", "path": str(_copy_changed(found, plan, scratch))}
    modes = _rounding_modes(wanted) if dequantize else ()
    return PreparedSide(
        job={**job, "dequantize": bool(modes)},
        loaded=wanted,
        plan=plan,
        policy=options.to,
        files=source.document.files,
        dequantized=modes,
    )


def _rounding_modes(loaded: LoadedModel) -> tuple[str, ...]:
    found = {
        layer.quantization.mode.partition("/")[0]
        for layer in loaded.layers
        if layer.quantization is not None
    }
    return tuple(mode for mode in _ROUNDING if mode in found)


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


def _rebuild_job(path: Path, before: LoadedModel, wanted: LoadedModel) -> dict[str, Any]:
    from policytool.numerics import reexport  # protobuf, for SavedModels alone

    return {
        **reexport.build_arguments(before, wanted),
        "how": "rebuilt",
        "path": str(path.resolve()),
    }


def _copy_changed(found: Input, plan: Plan, scratch: Path) -> Path:
    """
    Return a path by which Keras reads the file as what it is: a changed copy, or a link to the
    original where nothing changes.
    """
    target = scratch / ("model" if found.local_path.is_dir() else f"model{_SUFFIXES[plan.format]}")
    if not (plan.edits or plan.casts or plan.state is not None):
        target.symlink_to(found.local_path.resolve(), target_is_directory=found.local_path.is_dir())
        return target
    from policytool.formats import rewriting  # h5py, where a copy is written

    changes = rewriting.Changes(edits=plan.edits, casts=plan.casts, state=plan.state)
    rewriting.write(
        found.local_path,
        target,
        changes,
        document_format=plan.format,
        options=WriteOptions(shown=plan.path),
    )
    return target
