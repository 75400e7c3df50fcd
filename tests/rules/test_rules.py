"""What holds of all rules together."""

from __future__ import annotations

import importlib
import pkgutil
import re

from policytool import rules
from policytool.rules import FAMILIES, RULES, Rule


def test_ids_and_names_are_used_once_and_in_order() -> None:
    """An id belongs to one rule, and the rules of a family are sorted by id."""
    ids = [rule.id for rule in RULES]
    assert ids == sorted(set(ids))
    assert len({rule.name for rule in RULES}) == len(RULES)
    for prefix, (_, _, found) in FAMILIES.items():
        assert all(rule.id.startswith(prefix) for rule in found)


def test_every_rule_of_the_package_is_in_its_family() -> None:
    """A rule outside the module of its family would never run."""
    families = {name: listed for name, _, listed in FAMILIES.values()}
    for info in pkgutil.iter_modules(rules.__path__):
        module = importlib.import_module(f"policytool.rules.{info.name}")
        declared = {name: value for name, value in vars(module).items() if isinstance(value, Rule)}
        assert {rule.id for rule in declared.values()} == {
            rule.id for rule in families.get(info.name, ())
        }
        assert all(name.replace("_", "-") == rule.name for name, rule in declared.items())


def test_every_rule_explains_itself() -> None:
    """The reference has a summary, a reason with its source, and an example."""
    for rule in RULES:
        assert rule.id[:3] in FAMILIES
        assert re.fullmatch(r"PT[1-9][0-9]{2}", rule.id)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
        summary, *reasons = rule.doc.strip().split("\n\n")
        assert summary.endswith("."), rule.id
        assert reasons, rule.id
        assert "Source" in rule.doc, rule.id
        assert rule.example, rule.id
