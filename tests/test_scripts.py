"""The scripts in ``fixtures/`` and ``docs/generators/`` use names that policytool has."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from typing import TYPE_CHECKING, Final

from tests.helpers.cases import for_each
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPTS: Final = tuple(sorted((*ROOT.glob("fixtures/*.py"), *ROOT.glob("docs/generators/*.py"))))


def missing_names(text: str) -> Iterator[str]:
    """Yield the names that a script takes from policytool and that are not there."""
    tree = ast.parse(text)
    modules = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
            continue
        if node.module.partition(".")[0] != "policytool":
            continue
        source = importlib.import_module(node.module)
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            if _is_module(full):
                modules[alias.asname or alias.name] = importlib.import_module(full)
            elif not hasattr(source, alias.name):
                yield full
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
            and not hasattr(modules[node.value.id], node.attr)
        ):
            yield f"{modules[node.value.id].__name__}.{node.attr}"


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # below something that is no package
        return False


@for_each("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_scripts_use_names_that_exist(script: Path) -> None:
    """Types are checked in the package and its tests only: a renamed function is found here."""
    assert not [*missing_names(script.read_text(encoding="utf-8"))]


def test_a_name_that_is_gone_is_found() -> None:
    """An imported name, and an attribute of an imported module."""
    text = "from policytool.model import reading\nfrom policytool.support.errors import Gone\n"
    assert [*missing_names(f"{text}reading.gone()\n")] == [
        "policytool.support.errors.Gone",
        "policytool.model.reading.gone",
    ]
