"""
Reads plans that were saved with ``--format json``, compares them with their files, and applies
them.

A plan file is not trusted, like any other input. Writers compare every value with the old value in
the plan, so a plan for a different or a changed file has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.commands.batch.isolation import failure_from
from policytool.commands.batch.task import WRITE_GRACE, Task
from policytool.commands.destinations import Destination, touched_paths
from policytool.commands.migrate import LOST, Result, Work, apply_plan
from policytool.commands.remote_migration import with_local_copy
from policytool.formats import format_detection
from policytool.migration.plan import Plan, Refusal, planned_model
from policytool.migration.planning import rebuilt_layers
from policytool.model import reading
from policytool.model.model import Source
from policytool.numerics.tensorflow_run import TensorFlowRun, TensorFlowTools
from policytool.support import limits, steps
from policytool.support.errors import ModelFileError, UsageError, WorkerError
from policytool.support.files import opening, remote_path
from policytool.support.files.remote_path import AnyPath  # noqa: TC001  # TASK evaluates annotations
from policytool.support.text import codec, jsontext
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.document import Address, Document
    from policytool.model.model import Model

VERSION: Final = 1


class SavedPlan(Struct, frozen=True, kw_only=True):
    """A plan, and the file to apply it to."""

    plan: Plan
    path: AnyPath
    shown: str | None = None
    """The path in reports if it differs, such as the URL of a local copy."""

    @property
    def display_path(self) -> str:
        """The path as reports show it."""
        return self.shown or str(self.path)


class SavedPlanRequest(Struct, frozen=True, kw_only=True):
    """The options for each plan."""

    destination: Destination
    details: bool = True
    """Whether a report needs the layers and the documents that change."""


def attempt(
    saved: SavedPlan, request: SavedPlanRequest, tools: TensorFlowTools | None = None
) -> Result:
    """
    Apply one saved plan, and return the outcome.

    :raises UsageError: if the output is not valid.
    """

    def act(path: AnyPath, destination: Destination) -> Result:
        copy = replace(saved, path=path, shown=saved.display_path)
        with steps.budget(saved.display_path):
            return _attempt(copy, replace(request, destination=destination), tools)

    return with_local_copy(saved.path, saved.display_path, request.destination, act)


def _attempt(saved: SavedPlan, request: SavedPlanRequest, tools: TensorFlowTools | None) -> Result:
    """Check that a plan still matches its file, and apply it."""
    plan, path = saved.plan, saved.path
    try:
        document = format_detection.document(path, saved.display_path)
        _check(document, plan)
        loaded = reading.load_model(document)
        changed, unchanged = (
            planned_model(loaded, plan).model,
            loaded.model,
        )
        _check_policies(unchanged, changed)
        current = Plan(
            path=document.path,
            format=document.format,
            generation=plan.generation,
            suffix=plan.suffix,
            base_policy=plan.base_policy,
            edits=plan.edits,
            casts=plan.casts,
            state=plan.state,
            loaders_before=unchanged.loaders,
            loaders_after=rebuilt_layers.loaders(document, plan.edits, changed.loaders),
            retrace=plan.retrace,
        )
        run = (
            TensorFlowRun(plan=current, loaded=loaded, source=path, tools=tools)
            if tools is not None
            else None
        )
        return apply_plan(
            Work(plan=current, source=path, loaded=loaded, run=run, details=request.details),
            request.destination,
        )
    except (ModelFileError, WorkerError) as error:
        return failure_from(saved.display_path, error)


def places(saved: SavedPlan, request: SavedPlanRequest) -> frozenset[AnyPath]:
    """Return the files and directories that are read or written for a plan."""
    return touched_paths(saved.path, saved.plan.suffix, request.destination, several=False)


TASK: Final = Task(
    module=__name__,
    attempt=attempt,
    shown=lambda saved: saved.display_path,
    lost=LOST,
    time=limits.WRITE_SECONDS,
    grace=WRITE_GRACE,
    places=places,
)
"""The migration of one file by its saved plan."""


def read_plans(file: Path) -> tuple[Plan, ...]:
    """
    Return the plans of a file that ``migrate --format json`` wrote.

    :raises UsageError: if the file cannot be read, or contains no such plans.
    """
    try:
        value, _ = jsontext.parse(opening.read_user_file(file, limits.JSON_BYTES))
    except opening.TooLargeError as error:
        raise UsageError(f"--plan {file} has {error.excess}") from error
    except OSError as error:
        raise UsageError(f"--plan {file} cannot be read: {error.strerror}") from error
    except jsontext.JsonError as error:
        raise UsageError(f"--plan {file} {error}") from error
    try:
        if not isinstance(value, dict) or value["version"] != VERSION:
            raise UsageError(
                f"--plan {file} is not a version {VERSION} plan; expected the output of "
                "migrate --preview --format json"
            )
        if not isinstance(value["plans"], list):
            raise TypeError("expected a list")
        return tuple(_plan(item) for item in value["plans"])
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"--plan {file} is not a plan ({type(error).__name__}: {error}); expected "
            "the output of migrate --preview --format json"
        ) from error


def plans_with_paths(plans: tuple[Plan, ...], paths: tuple[str, ...]) -> list[SavedPlan]:
    """
    Return plans with the files to apply them to; without paths, the file in each plan.

    :raises UsageError: for a path without a plan.
    """
    if not paths:
        return [SavedPlan(plan=plan, path=remote_path.from_text(plan.path)) for plan in plans]
    if len(plans) == 1 and len(paths) == 1:
        return [SavedPlan(plan=plans[0], path=remote_path.from_text(paths[0]))]
    plan_by_path = {plan.path: plan for plan in plans}
    missing = [path for path in paths if path not in plan_by_path]
    if missing:
        raise UsageError(
            f"the saved plan does not cover {missing[0]}; it covers "
            f"{', '.join(list(plan_by_path)[:5]) or 'no file'}"
        )
    return [SavedPlan(plan=plan_by_path[path], path=remote_path.from_text(path)) for path in paths]


def _check(document: Document, plan: Plan) -> None:
    """
    Check that a plan matches a file.

    :raises ModelFileError: if a value of the file differs from the old value in the plan, or if the
        plan is blocked.
    """
    if document.format != plan.format:
        raise ModelFileError(
            document.path,
            "plan-stale",
            (f"is {document.format}, but the plan is for {plan.format}; run again with --preview"),
        )
    if plan.refusals:  # a blocked plan contains the reason
        raise ModelFileError(
            document.path,
            "plan-blocked",
            f"has a blocked plan: {plan.refusals[0].message}",
        )
    for edit in plan.edits:
        if _value_at(document, edit.address) != edit.before:
            raise ModelFileError(
                document.path,
                "plan-stale",
                f"has a value at {edit.address.part} {edit.address.pointer} that differs from "
                "the plan; run again with --preview",
            )
    nodes = (node.variable for node in document.nodes.values() if node.variable is not None)
    stored = {
        tensor.path: tensor.dtype for tensor in (*(document.tensors or ()), *document.state, *nodes)
    }
    for cast in plan.casts:
        if stored.get(cast.tensor) != cast.before:
            raise ModelFileError(
                document.path,
                "plan-stale",
                f"does not store {'/'.join(cast.tensor)} as {cast.before}, the dtype that the "
                "plan expects; run again with --preview",
            )
    for slot in plan.state or ():
        if slot.source is not None and slot.source not in stored:
            raise ModelFileError(
                document.path,
                "plan-stale",
                (
                    f"does not store {'/'.join(slot.source)}, which the plan requires; run "
                    "again with --preview"
                ),
            )


def _check_policies(before: Model, after: Model) -> None:
    """
    Check that a plan gives no layer an unknown policy.

    :raises ModelFileError: if it does, because the user edited the plan.
    """
    known = {layer.path for layer in before.layers if layer.source is not Source.UNKNOWN}
    unknown_policy = next(
        (
            layer.path
            for layer in after.layers
            if layer.source is Source.UNKNOWN and layer.path in known
        ),
        None,
    )
    if unknown_policy is not None:
        raise ModelFileError(
            before.path,
            "plan-invalid",
            f"the plan was edited and contains an unknown policy for {unknown_policy}; run again "
            "with --preview",
        )


def _value_at(document: Document, address: Address) -> Any:  # noqa: ANN401  # JSON of any shape, or its absence
    if address.part not in document.parts or not address.pointer:
        return ABSENT
    try:
        holder, key = jsontext.place(document.parts[address.part], address.pointer)
        return holder[key]
    except (LookupError, TypeError, ValueError):
        return ABSENT


_READ: Final = {
    **{name: name for name in ("path", "format", "suffix", "base_policy", "casts", "state")},
    "generation": "written_by",
    "refusals": "blockers",
}
"""The key of each field of a plan in the JSON report."""

_DTYPES: Final = frozenset({"float16", "bfloat16", "float32", "float64", None})


def _plan(item: Any) -> Plan:  # noqa: ANN401  # checked here
    """
    Return one plan of the JSON report.

    :raises KeyError: if a key is missing.
    :raises TypeError: if a value has the wrong type.
    :raises ValueError: if an edit has an unknown kind.
    :raises UsageError: if the plan contains a conversion, which cannot be applied.
    """
    if isinstance(item, dict) and item.get("conversion") is not None:
        raise UsageError(
            f"--plan contains a conversion of {item['path']}, but --plan cannot apply conversions; "
            f"run migrate --target {item['conversion']['target']} again"
        )
    edits = [{**edit, "address": edit} for edit in item["edits"]]
    plan = codec.read(Plan, {**{name: item[key] for name, key in _READ.items()}, "edits": edits})
    if (
        not {dtype for cast in plan.casts for dtype in (cast.before, cast.after, cast.through)}
        <= _DTYPES
    ):
        raise TypeError("expected a float dtype")
    unexplained = item["status"] == "blocked" and not plan.refusals
    refusal = Refusal(code="blocked", message="the plan was blocked when it was created", path=None)
    return replace(
        plan,
        retrace=item.get("retrace") is True and plan.format == "savedmodel",
        refusals=(refusal,) if unexplained else plan.refusals,
    )
