"""What was measured, as JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from policytool.numerics.verdicts import loss_scales
from policytool.releases.policy import loss_scale_values

if TYPE_CHECKING:
    from policytool.numerics.check_results.gradients import GradientReductions, Gradients
    from policytool.numerics.check_results.metrics import Metrics


def metrics(found: Metrics | None) -> dict[str, Any] | None:
    """Return how far apart two tensors are; None where that was not measured."""
    if found is None:
        return None
    both = {name: _both(getattr(found, name)) for name in ("nan", "infinite", "pair")}
    return {**asdict(found), **both}


def _both(found: tuple[float, float] | None) -> dict[str, float] | None:
    return None if found is None else {"reference": found[0], "candidate": found[1]}


def gradients(found: Gradients) -> dict[str, Any]:
    """
    Return what a backward step gave under every scale that was tried, and what follows from it.
    """
    decided = loss_scales.decision(found)
    return {
        "recorded": loss_scale_values(found.recorded),
        "outputs": [asdict(one) for one in found.outputs],
        "reference_loss": found.reference_loss,
        "variables": [{**asdict(one), "shape": list(one.shape)} for one in found.variables],
        "trials": [
            {
                "scale": trial.scale,
                "loss": trial.loss,
                "total": _reductions(trial.total),
                "variables": [_reductions(one) for one in trial.variables],
            }
            for trial in found.trials
        ],
        "dynamic": asdict(found.dynamic),
        "workable": {"lowest": found.workable[0], "highest": found.workable[1]}
        if found.workable is not None
        else None,
        "quiet": list(found.quiet),
        "own": list(found.own),
        "random": list(found.random),
        "unconnected": list(found.unconnected),
        "decision": {
            "need": decided.need.value,
            "matters": decided.matters,
            "suggested": decided.suggested,
            "losing": list(decided.losing),
            "sentences": list(decided.sentences),
        },
    }


def _reductions(found: GradientReductions) -> dict[str, Any]:
    return {**asdict(found), "relative_error": found.relative_error}
