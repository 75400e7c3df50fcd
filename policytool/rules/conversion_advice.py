"""
What ``migrate --target`` does about a model that a loader refuses, or computes otherwise: the same
plan that migrate would make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.migration.plan import WEIGHT_REWRITE
from policytool.migration.planning.options import Options
from policytool.releases.releases import release_name

if TYPE_CHECKING:
    from policytool.migration.plan import Plan
    from policytool.rules.base import RuleInput


def advice(case: RuleInput, target: str, otherwise: str) -> str | None:
    """
    Return what to do so that a loader takes the model; None if migrate converts it, which the
    command of the model says.

    :param otherwise: what to do where migrate does not convert it
    """
    plan, _ = _plan(case, target)
    if plan is None or (plan.conversion is None and not plan.refusals):
        return otherwise
    if plan.refusals:
        return f"migrate cannot convert the model: {plan.refusals[0].message}; {otherwise}"
    left = next(
        (verdict.not_judged for verdict in plan.loaders_after if verdict.loader == target), None
    )
    unknown = f"compatibility of the converted model with {release_name(target)} is unknown: {left}"
    return unknown if left else None


def doubt_advice(case: RuleInput, target: str, otherwise: str) -> str:
    """Return what to do so that a release loads the model for certain."""
    plan, option = _plan(case, target)
    if plan is None or plan.conversion is None or plan.refusals:
        return advice(case, target, otherwise) or otherwise
    left = advice(case, target, otherwise)
    return f"migrate --target {target}{option} converts the model{f'; {left}' if left else ''}"


def _plan(case: RuleInput, target: str) -> tuple[Plan | None, str]:
    """
    Return migrate's plan, and the option beside ``--target`` that it needs; no plan for what has no
    config, and for what is only planned itself.
    """
    if case.loaded is None or case.is_planned:
        return None, ""
    from policytool.migration.convert import conversion_plan

    plan = conversion_plan.plan(case.loaded, Options(target=target), None)
    if plan.refusals and all(refusal.code == WEIGHT_REWRITE for refusal in plan.refusals):
        allowed = conversion_plan.plan(
            case.loaded, Options(target=target, allow_weight_rewrite=True), None
        )
        if not allowed.refusals:
            return allowed, " --allow weight-rewrite"
    return plan, ""
