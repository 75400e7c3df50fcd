"""``policytool policies``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from policytool.cli import completion, options
from policytool.cli.arguments import ReferenceArguments
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit
from policytool.releases import policy
from policytool.releases.generations import GENERATIONS, Generation
from policytool.reports.layout import View, wrap
from policytool.reports.page import Cell, Column, Row, Table, Tone
from policytool.reports.terminal import table_lines
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from policytool.releases.policy import Policy


@declare_command(
    "policies",
    ReferenceArguments,
    positional=[
        Positional(
            "name",
            "A policy, such as mixed_float16.",
            required=False,
            shell_complete=completion.policies,
        )
    ],
    changes={"format": {"type": click.Choice(["table", "json"])}},
)
def command(terminal: ReferenceArguments, *, name: str | None) -> int:
    """
    Explain all dtype policies, or one policy (NAME) and its format in each release.
    """
    policies = (
        [policy.policy_from_name(name)]
        if name
        else [policy.policy_from_name(listed) for listed in policy.LISTED]
    )
    view = options.view(terminal.color)
    if terminal.format == "json":
        text = json.dumps(
            {
                "version": 1,
                "policies": [
                    _facts(dtype_policy, formats=name is not None) for dtype_policy in policies
                ],
            },
            indent=2,
        )
    else:
        text = "\n".join(
            _policy_lines(policies[0], view) if name else _policy_table(policies, view)
        )
    click.echo(text, color=terminal.color != "never")
    return Exit.CLEAN


def _policy_table(policies: list[Policy], view: View) -> list[str]:
    columns = (
        Column(title="policy", minimum=26),
        Column(title="compute", minimum=8),
        Column(title="variable", minimum=8),
        Column(title="since", minimum=10),
        Column(title="until", minimum=9),
        Column(title="use instead", minimum=11),
    )
    rows = []
    for dtype_policy in policies:
        life = policy.lifecycle(dtype_policy)
        rows.append(
            (
                Cell(text=dtype_policy.name),
                Cell(text=dtype_policy.compute_dtype or "input's"),
                Cell(text=dtype_policy.variable_dtype or "input's"),
                Cell(text=life.introduced),
                Cell(text=life.removed or "", tone=Tone.BAD),
                Cell(text=life.replacement or ""),
            )
        )
    return [
        *table_lines(Table(columns=columns, rows=tuple(Row(cells=cells) for cells in rows)), view),
        "",
        *wrap(
            "",
            "Any dtype name is also a policy. Quantized names are <mode>_from_<policy>. "
            "`policytool policies NAME` shows the format of a policy in each release.",
            view,
            "dim",
        ),
    ]


def _policy_lines(explained: Policy, view: View) -> list[str]:
    life = policy.lifecycle(explained)
    casts = explained.should_cast_variables and explained.compute_dtype
    facts = [
        (
            f"computes in {explained.compute_dtype or 'the dtype of its first input'}"
            f"{',' if casts else ' and'} stores variables in "
            f"{explained.variable_dtype or 'the dtype of its first input'}"
            f"{', and casts them before use' if casts else ''}"
        ),
        f"since {life.introduced}"
        + (f", deprecated in {life.deprecated}" if life.deprecated else "")
        + (f", an error since {life.removed}" if life.removed else ""),
    ]
    if explained.quantization:
        facts.append(
            f"quantized in mode {explained.quantization.mode} from {explained.quantization.source}"
        )
    if life.replacement:
        facts.append(f"replacement: {life.replacement}")
    if explained.name == "mixed_float16":
        facts.append(
            "losses are scaled dynamically: by the policy in TF 2.0 to 2.3 and in the experimental "
            "API up to TF 2.8, and by the optimizer in TF 2.4 and later"
        )
    lines = [view.paint(explained.name, "title")]
    for fact in facts:
        lines += wrap("", fact, view)
    lines.append("")
    longest = max(len(generation.title) for generation in GENERATIONS) + 2
    for generation in GENERATIONS:
        format_text, style = _format_text(generation, explained)
        lines += wrap(f"{generation.title:{longest}}", format_text, view, style)
    return lines


def _format_text(generation: Generation, dtype_policy: Policy) -> tuple[str, str]:
    try:
        return json.dumps(generation.render(dtype_policy)), ""
    except SpellingError as error:
        return f"not supported: {error}", "dim"


def _facts(dtype_policy: Policy, *, formats: bool) -> dict[str, Any]:
    life = policy.lifecycle(dtype_policy)
    facts: dict[str, Any] = {
        "name": dtype_policy.name,
        "compute_dtype": dtype_policy.compute_dtype,
        "variable_dtype": dtype_policy.variable_dtype,
        "should_cast_variables": dtype_policy.should_cast_variables,
        "quantization": {
            "mode": dtype_policy.quantization.mode,
            "source": dtype_policy.quantization.source,
        }
        if dtype_policy.quantization
        else None,
        "introduced": life.introduced,
        "deprecated": life.deprecated,
        "removed": life.removed,
        "replacement": life.replacement,
    }
    if formats:
        facts["formats"] = {
            generation.id: _format_values(generation, dtype_policy) for generation in GENERATIONS
        }
    return facts


def _format_values(generation: Generation, dtype_policy: Policy) -> dict[str, Any]:
    try:
        return {"value": generation.render(dtype_policy)}
    except SpellingError as error:
        return {"error": str(error)}
