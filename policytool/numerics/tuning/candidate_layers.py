"""
The candidate layers of ``tune``, which can be kept in float32 or converted: the options of
``migrate`` for a set of them, and the measurements of a diagnosis that show which to keep first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from policytool.migration import planning
from policytool.migration.plan import planned_model
from policytool.migration.planning import decisions, keep
from policytool.migration.planning.options import QUANTIZATIONS, Assignment, checked_policy
from policytool.numerics.tuning.results import LayerEvidence
from policytool.numerics.verdicts import origins
from policytool.numerics.verdicts.origins import Choices
from policytool.releases import policy
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer
    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall


_OUTPUTS: Final = frozenset({keep.OUTPUT, keep.SHAPED})
"""Reasons to keep output layers, which are candidates only with ``--include outputs``."""


class Candidates(Struct, frozen=True, kw_only=True):
    """The layers among which a search selects those to keep in float32."""

    options: Options
    """The user's options of ``migrate``, which convert all candidates except those in ``rules``."""

    paths: tuple[str, ...]
    """The paths of the candidates, in the order of the model."""

    classes: Mapping[str, str]
    rules: Mapping[str, str]
    """The candidates that ``migrate`` keeps in float32 by default, with the reason."""

    fixed: Mapping[str, str]
    """Layers that stay in float32 and are not candidates, with the reason."""

    saved_bytes: Mapping[str, int] = field(default_factory=dict)
    """The bytes that the quantization of each candidate saves; empty for policies."""

    def policies(self, kept: frozenset[str]) -> dict[str, str]:
        """
        Return the policies to set so that these candidates stay in float32 and all others are
        converted, by path.
        """
        policy = self.options.to or ""
        return {
            path: "float32" if path in kept else policy
            for path in self.paths
            if path in kept or path in self.rules
        }

    def keeping(self, kept: frozenset[str]) -> Options:
        """Return the options that keep these candidates in float32 and convert all others."""
        added = (
            Assignment(pattern=path, policy=policy) for path, policy in self.policies(kept).items()
        )
        return replace(self.options, assignments=(*self.options.assignments, *added))


def tuned_policy(name: str | None) -> str:
    """
    Return the policy of the layers that a search converts.

    :raises UsageError: if the name is missing, is not a policy that a layer can have, or is a
        policy that does not compute in 16 bits.
    """
    if name is None:
        raise UsageError(
            "the policy of the converted layers is missing; add --to mixed_float16 or --to "
            "mixed_bfloat16"
        )
    if name in QUANTIZATIONS:
        return name
    policy_name = checked_policy(name, "--to")
    if policy.policy_from_name(policy_name).compute_dtype not in HALVES:
        raise UsageError(
            f"--to {policy_name} does not compute in 16 bits, so there is nothing to tune; use "
            "mixed_float16, mixed_bfloat16, float16 or bfloat16"
        )
    return policy_name


def quantizable(options: Options, layers: Iterable[Mapping[str, Any]]) -> Candidates:
    """
    Return the candidates of a quantization.

    :param layers: the layers that Keras quantizes, as the child process lists them
    """
    classes = {layer["path"]: layer["class_name"] for layer in layers}
    return Candidates(
        options=options,
        paths=tuple(classes),
        classes=classes,
        rules={},
        fixed={},
        saved_bytes={layer["path"]: layer["before"] - layer["after"] for layer in layers},
    )


def candidates(loaded: LoadedModel, options: Options) -> Candidates:
    """
    Return the candidates of a model: the layers that have a policy in the file, and that would
    compute in 16 bits if the options applied to all layers.

    :raises UsageError: if the options contradict the model, or no layer would be converted.
    :raises ModelFileError: if the policies of the model cannot be changed in this way.
    """
    kept = {layer.path: layer.reason for layer in planning.draft(loaded, options).kept}
    fixed = {path: reason for path, reason in kept.items() if reason in _OUTPUTS}
    assigned = decisions.matches(loaded, options.assignments)
    rules = {
        layer.path: kept[layer.path]
        for index, layer in _layers_with_policy(loaded)
        if layer.path in kept and layer.path not in fixed and index not in assigned
    }
    draft_candidates = Candidates(
        options=options, paths=tuple(rules), classes={}, rules=rules, fixed=fixed
    )
    converted = converted_model(loaded, draft_candidates.keeping(frozenset()))
    paths = {
        layer.path: layer.class_name or ""
        for index, layer in _layers_with_policy(loaded)
        if converted.layers[index].compute_dtype in HALVES
        and index not in assigned
        and not layer_facts(layer.class_name).is_op_layer
        and not layer_facts(layer.class_name).is_model
    }
    if not paths:
        raise UsageError(
            f"no layer of {loaded.document.path} would compute in 16 bits under --to {options.to}; "
            "use --include outputs to include output layers, or --include exceptions to include "
            "layers with an explicit policy"
        )
    return replace(
        draft_candidates,
        paths=tuple(paths),
        classes=paths,
        rules={path: reason for path, reason in rules.items() if path in paths},
    )


def _layers_with_policy(loaded: LoadedModel) -> Iterator[tuple[int, Layer]]:
    """Yield the layers with a separate policy in the file, which cells of RNNs do not have."""
    for index, layer in enumerate(loaded.layers):
        if (
            loaded.can_say(index)
            and loaded.is_floating(index)
            and not loaded.is_input(index)
            and index not in loaded.makers
            and loaded.sites[index].attribute not in decisions.CELLS
        ):
            yield index, layer


def converted_model(loaded: LoadedModel, options: Options) -> LoadedModel:
    """
    Return the model as ``migrate`` converts it.

    :raises ModelFileError: if its policies cannot be changed in this way.
    """
    plan = planning.draft(loaded, replace(options, retrace=loaded.document.format == "savedmodel"))
    if plan.refusals:
        raise ModelFileError(loaded.document.path, plan.refusals[0].code, plan.refusals[0].message)
    return planned_model(loaded, plan)


def evidence(check: Check, paths: Iterable[str]) -> dict[str, LayerEvidence]:
    """Return the measurements of each layer that was called."""
    calls = group_pairs((call.path, call) for call in check.runs[0].calls)
    return {path: _evidence_of_calls(calls[path]) for path in paths if path in calls}


def rankings(check: Check, paths: tuple[str, ...]) -> Iterator[Mapping[str, float]]:
    """
    Yield estimates of the loss of each layer: its effect on the outputs of the model and the error
    of its calls. If the effect was not measured, the first and the last layers are tried too: if
    many small errors add up, the effect of a layer depends on the number of layers after it.
    """
    effects = _losses(check.runs[0], paths, origins.call_effect)
    _add_rounded_inputs(check.runs[0], Choices(paths=paths), effects)
    if any(effects.values()):
        yield effects
    yield _losses(check.runs[0], paths, origins.call_loss)
    if not any(effects.values()):
        yield {path: float(-place) for place, path in enumerate(paths)}
        yield {path: float(place) for place, path in enumerate(paths)}


def _losses(
    run: CheckRun, paths: tuple[str, ...], loss: Callable[[LayerCall], float]
) -> dict[str, float]:
    """
    Return the loss of each layer. The losses of ops and inner layers count for the layer that
    determines their dtype.
    """
    choices = Choices(paths=paths)
    loss_by_path = dict.fromkeys(paths, 0.0)
    for place, call in enumerate(run.calls):
        if call.is_model:
            continue
        for path in origins.deciding_layers(run, place, choices):
            loss_by_path[path] = math.hypot(loss_by_path[path], loss(call))
    return loss_by_path


def _add_rounded_inputs(run: CheckRun, choices: Choices, effects: dict[str, float]) -> None:
    """
    Raise the effect of layers to that of the rounding of their outputs in a layer that uses them.
    The sensitivity of the model to the outputs says nothing about it if these are integers.
    """
    for place, call in enumerate(run.calls):
        effect = origins.rounding_effect(call)
        if effect and not call.is_model:
            for producer in origins.rounding_producers(run.calls, place):
                for path in origins.deciding_layers(run, producer, choices):
                    effects[path] = effects[path] or effect


def decided_calls(check: Check, paths: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """
    Return, for each layer, the calls that cause errors and whose dtype the layer determines. These
    are ops that use its outputs, and layers inside it, which have no policy in the file.
    """
    run, choices = _failed_run(check), Choices(paths=paths)
    calls_by_path = group_pairs(
        (path, run.calls[charge.call].place)
        for charge in origins.charges(run)
        for path in origins.deciding_layers(run, charge.call, choices)
        if run.calls[charge.call].path not in paths
    )
    return {path: tuple(places) for path, places in calls_by_path.items()}


def groups(paths: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    """Return a group for each outermost layer that contains other layers, with these layers."""
    choices = Choices(paths=paths)
    outer: list[frozenset[str]] = []
    for path in paths:
        group = choices.unit(path)
        if len(group) > 1 and not any(group <= other for other in outer):
            outer.append(group)
    return tuple(outer)


def _evidence_of_calls(calls: list[LayerCall]) -> LayerEvidence:
    """Return the measurements of the calls of one layer."""
    outputs = [output for call in calls for output in call.outputs]
    measured = [output.accumulated for output in outputs if output.accumulated is not None]
    error = max(map(origins.own_error, calls), default=math.inf)
    return LayerEvidence(
        error=error if math.isfinite(error) and any(map(_is_measured, outputs)) else None,
        is_finite=not any(metrics.overflow for metrics in measured) and math.isfinite(error),
        largest=_largest(metrics.largest_reference for metrics in measured),
        headroom=min(
            (metrics.headroom for metrics in measured if metrics.headroom is not None), default=None
        ),
        flushed=_largest(metrics.flushed for metrics in measured),
    )


def _is_measured(output: CheckedOutput) -> bool:
    return output.own is not None or output.isolated is not None


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _failed_run(check: Check) -> CheckRun:
    return next((run for run in check.runs if not run.verdict.passed), check.runs[0])
