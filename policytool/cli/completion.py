"""
Shell completion of values that Click does not know: rules, releases, policies and files. It never
reads a model.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from click.shell_completion import CompletionItem, get_completion_class, shell_complete

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

SHELLS: Final = ("bash", "zsh", "fish")


def answer(cli: click.Command, program: str, variable: str) -> int:
    """Print the possible completions of the word at the cursor, and return the exit code."""
    return shell_complete(cli, {}, program, variable, os.environ[variable])


def script(cli: click.Command, program: str, shell: str) -> str:
    """Return the script that a shell runs to enable completion."""
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise LookupError(shell)
    completion = completion_class(cli, {}, program, f"_{program.upper()}_COMPLETE")
    return completion.source_template % completion.source_vars()


def files(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer paths; the shell completes them."""
    return [CompletionItem(incomplete, type="file")]


def directories(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer directories; the shell completes them."""
    return [CompletionItem(incomplete, type="dir")]


def rules(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the ids of rules with their summaries, or the names that match the typed text."""
    from policytool.rules import RULES

    ids = _matching(((rule.id, rule.summary) for rule in RULES), incomplete.upper())
    return ids or _matching(((rule.name, rule.summary) for rule in RULES), incomplete)


def topics(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the topics of ``explain``; the IDs of rules in any capitalization."""
    from policytool.reports.topics import names

    items = [(name, None) for name in names()]
    return _matching(items, incomplete) or _matching(items, incomplete.upper())


def releases(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the target releases of ``audit``."""
    from policytool.releases.releases import names

    return _matching(((name, None) for name in names()), incomplete)


def targets(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """
    Offer the target releases of ``migrate``, including releases between the measured ones, each
    with its description.
    """
    from policytool.releases.releases import descriptions

    return _matching(descriptions(), incomplete)


def policies(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the policies that current releases support in a config."""
    from policytool.releases.policy import LISTED

    return _matching(((name, None) for name in LISTED), incomplete)


def metrics(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the metrics of Keras, including ``accuracy``, which Keras resolves by the shapes."""
    from policytool.releases.known_arguments import plain_metric_names

    return _matching(
        ((name, None) for name in sorted({"accuracy", *plain_metric_names()})), incomplete
    )


def limits(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the limits that can be raised, each with its purpose."""
    from policytool.support.limits import LIMITS

    return _matching(
        (
            (f"{limit.name}={limit.amount(limit.default, gap='')}", limit.reason)
            for limit in LIMITS.values()
            if not limit.fixed
        ),
        incomplete,
    )


def _matching(values: Iterable[tuple[str, str | None]], incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(value, help=help_) for value, help_ in values if value.startswith(incomplete)
    ]
