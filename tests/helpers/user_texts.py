"""Every text that policytool shows to its users, with the place that it comes from."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from policytool.cli.main import COMMANDS, cli
from policytool.rules import RULES
from tests.helpers.source_tree import parse, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent.parent
_MEASURED: Final = frozenset(
    f"{page}.md"
    for page in (
        *("applications", "attacks", "behaviour", "compatibility", "conversions"),
        *("crashes", "fuzzing", "limits", "load", "masks", "migrated", "benchmarks"),
    )
)
"""Pages whose tables are measurements; only their prose counts."""

Text = tuple[str, str]
"""A place, and the words that users read there, on one line."""


def all_texts() -> Iterator[Text]:
    """Yield every text, with whitespace collapsed."""
    for texts in (
        *(help_texts, rule_texts, golden_texts, page_texts, message_texts),
        workflow_texts,
    ):
        for place, text in texts():
            yield place, " ".join(text.split())


def help_texts() -> Iterator[Text]:
    """Yield the help of every command, as the terminal shows it."""
    for name in (None, *COMMANDS):
        context = click.Context(cli, info_name="policytool", terminal_width=10_000)
        command = cli if name is None else cli.get_command(context, name)
        assert command is not None
        place = f"help of {name}" if name else "help"
        # A command keeps its help option, with the names that the first context has for it.
        settings = {**command.context_settings, "terminal_width": 10_000}
        yield place, command.get_help(click.Context(command, info_name=name, **settings))


def rule_texts() -> Iterator[Text]:
    """Yield the name, the summary and the description of every rule."""
    for rule in RULES:
        yield f"rule {rule.id}", f"{rule.name.replace('-', ' ')}. {rule.doc}"


def golden_texts() -> Iterator[Text]:
    """Yield the reports that tests compare with; the public interface is names, not text."""
    for path in sorted((ROOT / "tests/golden").iterdir()):
        if path.name != "public_api.txt":
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def page_texts() -> Iterator[Text]:
    """Yield the pages of the documentation, without tables of measurements."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        lines = path.read_text(encoding="utf-8").splitlines()
        yield (
            path.relative_to(ROOT).as_posix(),
            "\n".join(
                line for line in lines if path.name not in _MEASURED or not line.startswith("|")
            ),
        )


def workflow_texts() -> Iterator[Text]:
    """Yield the action, the workflows and the forms for GitHub, and the hook for pre-commit."""
    for path in (
        *(ROOT / name for name in ("action.yml", ".pre-commit-hooks.yaml")),
        *sorted(path for path in (ROOT / ".github").rglob("*") if path.is_file()),
    ):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def message_texts() -> Iterator[Text]:
    """Yield the string literals of the package that have at least two words."""
    for path in sorted((ROOT / "policytool").rglob("*.py")):
        for line, text in _literals(walk(parse(path.read_text(encoding="utf-8")))):
            if re.search(r"\w+ \w+", text):
                yield f"{path.relative_to(ROOT).as_posix()}:{line}", text


def _literals(nodes: tuple[ast.AST, ...]) -> Iterator[tuple[int, str]]:
    """Yield the string literals that are no docstrings; values in f-strings become ``{}``."""
    hidden = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    hidden |= {id(part) for text in joined for part in text.values}
    for text in joined:
        parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in text.values)
        yield text.lineno, "".join(map(str, parts))
    for node in nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in hidden
        ):
            yield node.lineno, node.value
