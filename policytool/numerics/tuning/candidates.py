"""Which layers of a file may be kept or converted, and what ``migrate`` is asked each time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policytool.migration import planning
from policytool.migration.planning import set_patterns
from policytool.migration.planning.keep import outputs
from policytool.migration.planning.options import Assignment, checked_policy
from policytool.migration.planning.planned_document import apply_edits
from policytool.model import reading
from policytool.releases import policy
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.support.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer

FLOAT32: Final = "float32"
_CELLS: Final = frozenset({"cell", "cells"})
_OUTPUTS: Final = frozenset({outputs.OUTPUT, outputs.SHAPED})
"""Why layers stay in float32 that are no candidates: ``--include outputs`` makes them some."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """The layers that a search chooses from."""

    options: Options
    """Those of the user, by which every candidate but those of a rule is converted."""

    paths: tuple[str, ...]
    """In the order of the model."""

    classes: Mapping[str, str]
    rules: Mapping[str, str]
    """The candidates that ``migrate`` keeps in float32 by default, with the reason."""

    fixed: Mapping[str, str]
    """Layers that stay in float32 and are no candidates, with the reason."""

    def policies(self, kept: frozenset[str]) -> dict[str, str]:
        """
        Return the policies to set so that these candidates stay in float32 and all others are
        converted, by path.
        """
        policy = self.options.to or ""
        return {
            path: FLOAT32 if path in kept else policy
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

    :raises UsageError: without one, for names that no layer can have, and for policies that do not
        compute in 16 bits.
    """
    if name is None:
        raise UsageError(
            "the policy of the converted layers is missing; add --to mixed_float16 or --to "
            "mixed_bfloat16"
        )
    found = checked_policy(name, "--to")
    if policy.policy_from_name(found).compute_dtype not in HALVES:
        raise UsageError(
            f"--to {found} does not compute in 16 bits, so there is nothing to tune; use "
            "mixed_float16, mixed_bfloat16, float16 or bfloat16"
        )
    return found


def candidates(loaded: LoadedModel, options: Options) -> Candidates:
    """
    Return the candidates of a model: the layers that compute in 16 bits if the options apply to
    all of them, and whose policy the file holds.

    :raises UsageError: for options that contradict the model, and if nothing is to be converted.
    :raises ModelFileError: for a model whose policies cannot be changed so.
    """
    kept = {one.path: one.reason for one in planning.draft(loaded, options).kept}
    fixed = {path: reason for path, reason in kept.items() if reason in _OUTPUTS}
    assigned = set_patterns.matches(loaded, options.assignments)
    rules = {
        layer.path: kept[layer.path]
        for index, layer in _separate(loaded)
        if layer.path in kept and layer.path not in fixed and index not in assigned
    }
    found = Candidates(options=options, paths=tuple(rules), classes={}, rules=rules, fixed=fixed)
    converted = _converted(loaded, found.keeping(frozenset()))
    paths = {
        layer.path: layer.class_name or ""
        for index, layer in _separate(loaded)
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
        found,
        paths=tuple(paths),
        classes=paths,
        rules={path: reason for path, reason in rules.items() if path in paths},
    )


def _separate(loaded: LoadedModel) -> Iterator[tuple[int, Layer]]:
    """Yield the layers that have a policy of their own in the file: no cells of RNNs."""
    for index, layer in enumerate(loaded.layers):
        if (
            loaded.can_say(index)
            and loaded.is_floating(index)
            and not loaded.is_input(index)
            and index not in loaded.makers
            and loaded.sites[index].attribute not in _CELLS
        ):
            yield index, layer


def _converted(loaded: LoadedModel, options: Options) -> LoadedModel:
    plan = planning.draft(loaded, replace(options, retrace=loaded.document.format == "savedmodel"))
    if plan.refusals:
        raise ModelFileError(loaded.document.path, plan.refusals[0].code, plan.refusals[0].message)
    if not (plan.edits or plan.casts):
        return loaded
    return reading.load_model(apply_edits(loaded.document, plan.edits, plan.casts))
