"""What holds of all rules together."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from policytool import rules
from policytool.rules import FAMILIES, RULES, Rule
from tests.contracts.rule_contract import RuleContract

if TYPE_CHECKING:
    from collections.abc import Iterator


def _tried(contract: type[RuleContract] = RuleContract) -> Iterator[str]:
    for subclass in contract.__subclasses__():
        if "id" in vars(subclass):
            yield subclass.id
        yield from _tried(subclass)


def test_ids_and_names_are_used_once_and_in_order() -> None:
    """An id stands for one rule, and the families' rules are listed by their ids."""
    ids = [rule.id for rule in RULES]
    assert ids == sorted(set(ids))
    assert len({rule.name for rule in RULES}) == len(RULES)
    for prefix, (_, _, found) in FAMILIES.items():
        assert all(rule.id.startswith(prefix) for rule in found)


def test_every_rule_of_the_package_is_in_its_family() -> None:
    """A rule that is declared outside the module of its family would never be run."""
    families = {name: listed for name, _, listed in FAMILIES.values()}
    for info in pkgutil.iter_modules(rules.__path__):
        module = importlib.import_module(f"policytool.rules.{info.name}")
        declared = {name: value for name, value in vars(module).items() if isinstance(value, Rule)}
        assert {rule.id for rule in declared.values()} == {
            rule.id for rule in families.get(info.name, ())
        }
        assert all(name.replace("_", "-") == rule.name for name, rule in declared.items())


def test_every_rule_was_tried_on_files() -> None:
    """
    Each rule has a contract with files in which it finds something and files in which it must not.
    """
    for found in pkgutil.iter_modules(importlib.import_module("tests.rules").__path__):
        importlib.import_module(f"tests.rules.{found.name}")
    assert {rule.id for rule in rules.RULES} == set(_tried())
