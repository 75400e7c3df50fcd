"""Rules that stand in for others: one of each kind, which find what tests need in any model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import rules
from policytool.rules import BY_ID, Needs, Rule
from policytool.rules.base import Fix, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from policytool.rules import AuditOptions, RuleInput
    from policytool.rules.base import Finding


def _saying(
    name: str, remedy: Remedy | None = None, only: Callable[[RuleInput], bool] = lambda _: True
) -> Callable[[RuleInput, AuditOptions], Iterator[Finding]]:
    """Return a check that finds something at each layer with a mixed policy."""

    def check(case: RuleInput, _question: AuditOptions) -> Iterator[Finding]:
        rule = next(rule for rule in rules.RULES if rule.name == name)
        for layer in case.model.layers:
            if (layer.policy or "").startswith("mixed_") and only(case):
                yield rule.finding(f"{layer.path} is mixed", path=layer.path, remedy=remedy)

    return check


def rule(
    identifier: str,
    name: str,
    *,
    needs: Needs | None = None,
    severity: Severity = Severity.WARNING,
    remedy: Remedy | None = None,
) -> Rule:
    """Return a rule that finds every mixed layer."""
    return Rule(
        id=identifier,
        name=name,
        severity=severity,
        fix=remedy.fix if remedy is not None else None,
        check=_saying(name, remedy),
        doc="Stands in for a rule.",
        example="any",
        needs=needs,
    )


REAL: Final = BY_ID["PT101"]
NOTE: Final = rule("PT301", "mixed-at-all", severity=Severity.NOTE)
WIDENED: Final = rule("PT302", "widened", remedy=Remedy(fix=Fix.UNSAFE, to="float32"))
SCALED: Final = rule("PT201", "scale-kept", remedy=Remedy(fix=Fix.UNSAFE, keep_loss_scale=True))
TRACED: Final = rule("PT401", "traced", remedy=Remedy(fix=Fix.UNSAFE, retrace=True))
TARGETED: Final = rule("PT501", "refused-somewhere", needs=Needs.TARGET, severity=Severity.ERROR)


def use(monkeypatch: pytest.MonkeyPatch, *standing: Rule) -> None:
    """Make these the rules that there are."""
    listed = tuple(sorted(standing, key=lambda one: one.id))
    monkeypatch.setattr(rules, "RULES", listed)
    monkeypatch.setattr(rules, "BY_ID", {item.id: item for item in listed})
