"""What several rules about training ask of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning import loss_scale
from policytool.model.compatibility import training_incompatibilities
from policytool.model.tree import Unspelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.planning.loss_scale import LossScaleVerdict
    from policytool.model.compatibility.training_incompatibilities import TrainingEvidence
    from policytool.rules.base import AuditOptions, RuleInput

_KEEP_SCALES: Final = frozenset({"tf2.1", "tf2.2", "tf2.3"})
"""The loaders that give a policy its loss scale back."""


def loss_scale_verdict(case: RuleInput, options: AuditOptions) -> LossScaleVerdict | None:
    """
    Return what dropping the policies' loss scales comes to; None where they have none, or where the
    targets keep them.
    """
    if case.loaded is None or (options.targets and _KEEP_SCALES.issuperset(options.targets)):
        return None
    return loss_scale.verdict(case.loaded)


def evidence(case: RuleInput) -> TrainingEvidence | None:
    """Return what is judged of the training configuration; None where there is none."""
    return (
        None
        if case.loaded is None
        else training_incompatibilities.evidence(
            case.document, case.loaded.placed, keras3=case.loaded.is_keras3
        )
    )


def takers(case: RuleInput, options: AuditOptions) -> Iterator[str]:
    """
    Yield the targets that are not known to refuse the training configuration; of the others PT205
    and the rules about loading speak.
    """
    refusing = {
        verdict.loader: verdict.training is None or verdict.training.reason is not None
        for verdict in case.model.loaders
    }
    yield from (target for target in options.targets if not refusing.get(target, True))


def computes_in_float16(case: RuleInput) -> bool | None:
    """
    Return whether some layer computes in float16; None where the file does not prove that none
    does.
    """
    if case.loaded is None:
        return None
    unknown = False
    for index, layer in enumerate(case.model.layers):
        if layer.compute_dtype == "float16" or "float16" in layer.traced_dtypes:
            return True
        site = case.loaded.sites[index]
        unsaid = layer.compute_dtype is None and (
            not site.is_model or site.spelled is not Unspelled.ABSENT
        )
        unknown = unknown or layer.opaque or unsaid
    return None if unknown else False
