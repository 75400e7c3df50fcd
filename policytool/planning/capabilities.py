"""
What the real libraries can do with a layer class under a policy.

``data/layer_dtypes.json`` is what they said themselves (``fixtures/layer_dtypes.py`` asks them): for each release and case, ``Class`` or
``Class[arguments]``, the policies under which it cannot be built or run, the variables that do not have the policy's variable dtype, and the
outputs that do not have its compute dtype.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

Facts = dict[str, Any]


@cache
def measured() -> Facts:
    """Return the data."""
    text = Path(__file__).parent.with_name("data").joinpath("layer_dtypes.json").read_text(encoding="utf-8")
    data: Facts = json.loads(text)
    return data


def trouble(library: str, class_name: str, policy: str) -> str | None:
    """
    Return why a layer of the class cannot be built or run under a policy, whatever its arguments; None where it can.

    Trouble that goes away with another initialiser is not the class's own: :func:`undrawable` tells of it.
    """
    cases = _cases(library, class_name)
    chosen = [cases[class_name]] if class_name in cases else list(cases.values())
    messages = [_own_trouble(facts.get(policy, {})) for facts in chosen]
    return messages[0] if messages and all(messages) else None


def undrawable(library: str, initializer: str, dtype: str) -> str | None:
    """Return why an initialiser cannot make variables of a dtype, which loading asks of it; None where it can."""
    found = measured()["initializers"].get(library, {}).get(initializer, {}).get(dtype)
    return str(found) if found else None


def variable_dtype(library: str, class_name: str, policy: str, variable: str) -> str | None:
    """Return the dtype of a variable that its class does not keep in the policy's variable dtype; None for all others."""
    for facts in _cases(library, class_name).values():
        found = facts.get(policy, {}).get("variables", {}).get(variable)
        if found:
            return str(found)
    return None


def output_dtype(library: str, class_name: str, argument: str | None, policy: str) -> str | None:
    """Return what a layer gives that does not give its compute dtype; None for all others."""
    facts = _cases(library, class_name).get(f"{class_name}[{argument}]" if argument else class_name, {})
    found = facts.get(policy, {}).get("output")
    return found if isinstance(found, str) else None


@cache
def _cases(library: str, class_name: str) -> dict[str, Facts]:
    """Return the cases of a class that differ from what one would expect."""
    every: dict[str, Facts] = measured().get(library, {})
    known = [case for case in measured()["measured"].get(library, []) if case.partition("[")[0] == class_name]
    return {case: every.get(case, {}) for case in known}


def _own_trouble(facts: Facts) -> str | None:
    if "fails" not in facts or "ok" in {facts.get("zeros"), facts.get("glorot_uniform")}:
        return None
    return str(facts["message"])
