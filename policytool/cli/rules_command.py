"""``policytool rules``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from policytool import rules
from policytool.cli import completion, options
from policytool.cli.arguments import ReferenceArguments
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit
from policytool.reports import rule_reference
from policytool.reports.fields import json_text
from policytool.reports.layout import wrap
from policytool.rules.base import Severity
from policytool.support.errors import UsageError
from policytool.support.text.phrases import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.reports.layout import View
    from policytool.rules import Rule

_STYLES: Final = {Severity.ERROR: "bad", Severity.WARNING: "half", Severity.NOTE: "dim"}
_WIDE: Final = 120


@declare_command(
    "rules",
    ReferenceArguments,
    positional=[
        Positional(
            "rule",
            "The ID or the name of a rule.",
            required=False,
            metavar="[RULE]",
            shell_complete=completion.rules,
        )
    ],
    changes={"format": {"type": click.Choice(["table", "json"])}},
)
def command(terminal: ReferenceArguments, *, rule: str | None) -> int:
    """
    List the audit rules, or explain one RULE (ID or name) with its rationale, sources and an
    example.
    """
    selected_rules = rules.RULES if rule is None else (rule_from_text(rule),)
    view = options.view(terminal.color)
    if terminal.format == "json":
        click.echo(
            json_text(
                {
                    "version": 1,
                    "rules": [rule_reference.values(selected) for selected in selected_rules],
                },
                unicode=view.unicode,
            ),
            nl=False,
        )
        return Exit.CLEAN
    lines = (
        _rule_list(selected_rules, view)
        if rule is None
        else rule_reference.as_lines(selected_rules[0], view)
    )
    click.echo("\n".join(lines), color=terminal.color != "never")
    return Exit.CLEAN


def rule_from_text(text: str) -> Rule:
    """
    Return the rule with this ID or name, in any capitalization.

    :raises UsageError: for any other text; the message suggests a similar ID or name.
    """
    by = {key: rule for rule in rules.RULES for key in (rule.id.lower(), rule.name)}
    normalized = text.lower().replace("_", "-")
    if normalized in by:
        return by[normalized]
    known = [word for rule in rules.RULES for word in (rule.id, rule.name)]
    raise UsageError(
        f"unknown rule {text!r}{did_you_mean(normalized, known)} Run `policytool rules` for a list"
    )


def _rule_list(listed_rules: Sequence[Rule], view: View) -> list[str]:
    """
    Return the list of rules. The summary of a rule is in the same line if the terminal is wide
    enough, otherwise below it.
    """
    longest = max(len(rule.name) for rule in listed_rules)
    column = "finding" if view.width >= _WIDE else ""
    title = f"  {'id':7}{'name':{longest + 2}}{'severity':10}{'fix':8}{column}"
    lines = [view.paint(title.rstrip(), "title")]
    for rule in listed_rules:
        fix = rule.fix.value if rule.fix else ""
        label = f"{rule.id:7}{rule.name:{longest + 2}}{rule.severity.value:10}{fix:8}"
        summary = rule_reference.plain(rule.summary) + (
            f" Needs {rule.needs.value}." if rule.needs else ""
        )
        rows = (
            wrap(label, summary, view)
            if view.width >= _WIDE
            else [f"  {label}".rstrip(), *wrap("", summary, view, "dim", indent=9)]
        )
        lines += [
            rows[0].replace(
                rule.severity.value, view.paint(rule.severity.value, _STYLES[rule.severity]), 1
            ),
            *rows[1:],
        ]
    hint = (
        "`policytool rules ID` explains a rule, with sources and an example. A safe fix leaves "
        "predictions unchanged; an unsafe fix changes numerics or training."
    )
    return [*lines, "", *wrap("", hint, view, "dim")]
