"""
The reference at the terminal: rules, policies, limits and releases, each as a list and alone, as
lines and as JSON values.

What the reference says of a rule, from the docstring of its function: at the terminal, as Markdown,
and as JSON values.

The docstrings are plain text with a little of reStructuredText: paragraphs, lists, indented blocks,
and code between double backticks.
"""

from __future__ import annotations

import json
import re
import textwrap
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from policytool import rules
from policytool.numerics.environments import cache_directory, environments
from policytool.releases import policy, releases
from policytool.releases.generations import GENERATIONS
from policytool.releases.releases import RELEASES, TFJS, get, is_known, release_name
from policytool.reports.fields import json_text
from policytool.reports.layout import View, wrap
from policytool.reports.page import Cell, Column, Row, Table, Tone
from policytool.reports.reporter import Reporter
from policytool.reports.terminal import table_lines
from policytool.rules import FAMILIES, RULES
from policytool.rules.base import Severity
from policytool.support.errors import PolicyNameError, SpellingError
from policytool.support.limits import BYTES, ENVIRONMENT_BYTES, LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from policytool.releases.generations import Generation
    from policytool.releases.policy import Policy
    from policytool.releases.releases import Release
    from policytool.rules import Rule
    from policytool.support.limits import Limit

_CODE: Final = re.compile(r"``(.+?)``|:\w+:`~?([^`]+)`", re.DOTALL)
_ADDRESS: Final = re.compile(r"(https?://[^\s,;()]*[^\s,;().])")
_MARKUP: Final = re.compile(r"[\\`*\[\]<>#|~]|(?<![^\W_])_|_(?![^\W_])")
_RULED: Final = re.compile(r"=+( +=+)+")
"""The lines of a simple table, which keeps its own layout."""

FIXES: Final = {
    None: "no fix",
    "safe": "safe fix (predictions unchanged)",
    "unsafe": "unsafe fix (numerics or training change)",
}


_STYLES: Final = {Severity.ERROR: "bad", Severity.WARNING: "half", Severity.NOTE: "dim"}
_WIDE: Final = 120
"""The minimum width of a terminal in which the summary of a rule is next to its name."""


_SOURCES: Final = ("Source:", "Sources:")
"""How the last paragraph of a rule's docstring starts."""


class BlockKind(Enum):
    """The kind of a block of text."""

    PARAGRAPH = auto()
    ITEM = auto()
    LITERAL = auto()


class Block(Struct, frozen=True, kw_only=True):
    """A piece of a docstring."""

    kind: BlockKind
    text: str


def blocks(doc: str) -> list[Block]:
    """Return the paragraphs, list items and indented blocks of a docstring."""
    doc_blocks: list[Block] = []
    for part in re.split(r"\n[ \t]*\n", textwrap.dedent(doc).strip("\n")):
        lines = part.rstrip().splitlines()
        if all(line.startswith(" ") for line in lines) or any(
            _RULED.fullmatch(line.strip()) for line in lines
        ):
            doc_blocks.append(Block(kind=BlockKind.LITERAL, text=textwrap.dedent(part.rstrip())))
        else:
            doc_blocks += _flowing(lines)
    return doc_blocks


def _flowing(lines: list[str]) -> Iterator[Block]:
    """Yield a part's paragraph and items, each in one line."""
    kind, words = BlockKind.PARAGRAPH, list[str]()
    for line in lines:
        item = line.lstrip().startswith(("- ", "* "))
        if item or (kind is BlockKind.ITEM and not line.startswith(" ")):
            if words:
                yield Block(kind=kind, text=" ".join(words))
            kind, words = BlockKind.ITEM if item else BlockKind.PARAGRAPH, []
        words.append(line.strip()[2:].strip() if item else line.strip())
    text = " ".join(words)
    yield Block(kind=kind, text=f"{text[:-2].rstrip()}:" if text.endswith("::") else text)


def plain(text: str) -> str:
    """Return text with its code between single backticks."""
    return _CODE.sub(lambda match: f"`{match[1] or match[2]}`", text)


def markdown(text: str) -> str:
    """Return text as Markdown with code and links; all other markup is escaped."""
    pieces = []
    end = 0
    for match in _CODE.finditer(text):
        pieces += [_escape(text[end : match.start()]), f"`{match[1] or match[2]}`"]
        end = match.end()
    return "".join([*pieces, _escape(text[end:])])


def _escape(text: str) -> str:
    pieces = _ADDRESS.split(text)  # every second one is an address
    return "".join(
        f"<{piece}>" if position % 2 else _MARKUP.sub(r"\\\g<0>", piece)
        for position, piece in enumerate(pieces)
    )


def family(rule: Rule) -> tuple[str, str]:
    """Return the name and the topic of a rule's family."""
    name, topic, _ = FAMILIES[rule.id[:3]]
    return name, topic


def anchor(rule: Rule) -> str:
    """Return the anchor of a rule's heading on the page of rules."""
    return f"{rule.id.lower()}-{rule.name}"


def facts(rule: Rule) -> tuple[str, ...]:
    """Return a rule's severity, family, fix, and the option that it needs, in words."""
    need_words = (f"needs {rule.needs.value}",) if rule.needs else ()
    return (
        rule.severity.value,
        family(rule)[0],
        FIXES[rule.fix.value if rule.fix else None],
        *need_words,
    )


def values(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON values."""
    return {
        "id": rule.id,
        "name": rule.name,
        "family": family(rule)[0],
        "severity": rule.severity.value,
        "fix": rule.fix.value if rule.fix else None,
        "needs": rule.needs.value if rule.needs else None,
        "summary": plain(rule.summary),
        "description": as_text(rule.doc),
        "example": rule.example,
        "references": list(rule.references),
    }


def as_text(doc: str) -> str:
    """Return a docstring as plain text, a line per paragraph and item."""
    return _join((block.kind, _TEXTS[block.kind].format(_text(block))) for block in blocks(doc))


_TEXTS: Final = {BlockKind.PARAGRAPH: "{}", BlockKind.ITEM: "- {}", BlockKind.LITERAL: "{}"}


def _text(block: Block) -> str:
    return (
        textwrap.indent(block.text, "    ")
        if block.kind is BlockKind.LITERAL
        else plain(block.text)
    )


def as_markdown(rule: Rule, *, with_sources: bool = True) -> str:
    """Return the reference of a rule, without its heading, as Markdown without HTML."""
    facts_line = f"*{' · '.join(facts(rule))}*"
    texts_by_kind = (
        (block.kind, _block_markdown(block))
        for block in blocks(rule.doc)
        if with_sources or not block.text.startswith(_SOURCES)
    )
    return (
        _join(
            [
                (BlockKind.PARAGRAPH, facts_line),
                *texts_by_kind,
                (BlockKind.PARAGRAPH, "Example:"),
                (BlockKind.LITERAL, _fence(rule.example)),
            ]
        )
        + "\n"
    )


def _block_markdown(block: Block) -> str:
    return (
        _fence(block.text)
        if block.kind is BlockKind.LITERAL
        else _TEXTS[block.kind].format(markdown(block.text))
    )


def _fence(text: str) -> str:
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`+", text))])
    return f"{fence}text\n{text.strip()}\n{fence}"


def as_lines(rule: Rule, view: View) -> list[str]:
    """Return the whole reference of a rule for a terminal."""
    separator = " · " if view.unicode else " - "
    lines = [
        view.paint(f"{rule.id} {rule.name}", "title"),
        *wrap("", separator.join(facts(rule)), view, "dim"),
        "",
    ]
    text = _join((block.kind, "\n".join(_lines(block, view))) for block in blocks(rule.doc))
    return [
        *lines,
        *text.split("\n"),
        "",
        f"  {view.paint('Example', 'title')}",
        *_lines(Block(kind=BlockKind.LITERAL, text=rule.example.strip()), view),
    ]


def list_lines(view: View) -> list[str]:
    """
    Return a line for each rule, with its summary next to the name in a wide terminal, and below it
    otherwise.
    """
    longest = max(len(rule.name) for rule in RULES)
    column = "finding" if view.width >= _WIDE else ""
    title = f"  {'id':7}{'name':{longest + 2}}{'severity':10}{'fix':8}{column}"
    lines = [view.paint(title.rstrip(), "title")]
    for rule in RULES:
        fix = rule.fix.value if rule.fix else ""
        label = f"{rule.id:7}{rule.name:{longest + 2}}{rule.severity.value:10}{fix:8}"
        summary = plain(rule.summary) + (f" Needs {rule.needs.value}." if rule.needs else "")
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
        "`policytool explain ID` explains a rule, with sources and an example. A safe fix leaves "
        "predictions unchanged; an unsafe fix changes numerics or training."
    )
    return [*lines, "", *wrap("", hint, view, "dim")]


def _lines(block: Block, view: View) -> list[str]:
    if block.kind is not BlockKind.LITERAL:
        return wrap("- " * (block.kind is BlockKind.ITEM), plain(block.text), view)
    return [
        line
        for text in block.text.splitlines()
        for line in wrap("", text.lstrip(), view, indent=4 + len(text) - len(text.lstrip()))
    ]


def _join(pieces: Iterable[tuple[BlockKind, str]]) -> str:
    """
    Return pieces as one text: the items of a list below each other, an empty line between all
    others.
    """
    text, previous = "", None
    for kind, piece in pieces:
        text += (
            "" if previous is None else "\n" if kind is previous is BlockKind.ITEM else "\n\n"
        ) + piece
        previous = kind
    return text


LISTS: Final = {
    "rules": "the rules of audit",
    "policies": "the dtype policies",
    "limits": "the limits for reading files",
    "releases": "the releases of Keras and TensorFlow",
}
"""The topics that are lists, each with a description of its items."""


class Topic(NamedTuple):
    """The reference for a name."""

    kind: str
    """The list that it belongs to, which is also the key of its JSON values."""

    lines: Callable[[View], list[str]]
    values: Sequence[dict[str, Any]]
    """The JSON values of each item; several for a list."""


def _json(topic: Topic, view: View) -> str:
    return json_text({"version": 1, topic.kind: topic.values}, unicode=view.unicode)


TOPIC_REPORTERS: Final[tuple[Reporter[Topic], ...]] = (
    Reporter(name="table", render=lambda topic, view: "\n".join((*topic.lines(view), ""))),
    Reporter(name="json", render=_json),
)
"""The reporters of topics."""


def topic_from_name(name: str) -> Topic | None:
    """
    Return the topic of a name, in any capitalization; None if there is none.

    :param name: a list, the ID or name of a rule, a policy, a limit, a release or its alias
    """
    name = name.lower()
    if name in LISTS:
        return _list(name)
    if (rule := _rule(name.replace("_", "-"))) is not None:
        return Topic("rules", lambda view: as_lines(rule, view), [values(rule)])
    if name in LIMITS:
        limit = LIMITS[name]
        return Topic(
            "limits", lambda view: list(_limit_lines([limit], view)), [_limit_values(limit)]
        )
    if is_known(release_id := releases.without_alias(name)):
        release = get(release_id)
        return Topic(
            "releases", lambda view: _release_lines(release, view), [_release_values(release)]
        )
    try:
        named = policy.policy_from_name(name)
    except PolicyNameError:
        return None
    return Topic("policies", lambda view: _policy_lines(named, view), [_policy_formats(named)])


def names() -> Iterator[str]:
    """Yield the names of all topics but quantized policies, whose names are combinations."""
    yield from LISTS
    for rule in rules.RULES:
        yield from (rule.id, rule.name)
    yield from policy.LISTED
    yield from LIMITS
    yield from (name for name in releases.names() if name != TFJS)
    yield from (release.id for release in RELEASES if not release.measured)


def _list(name: str) -> Topic:
    match name:
        case "rules":
            rule_values = [values(rule) for rule in rules.RULES]
            return Topic(name, list_lines, rule_values)
        case "policies":
            policies = [policy.policy_from_name(listed) for listed in policy.LISTED]
            return Topic(
                name,
                lambda view: _policies_lines(policies, view),
                [_policy_values(listed) for listed in policies],
            )
        case "limits":
            limits = list(LIMITS.values())
            return Topic(
                name,
                lambda view: list(_limit_lines(limits, view)),
                [_limit_values(limit) for limit in limits],
            )
    return Topic(name, _releases_lines, [_release_values(release) for release in RELEASES])


def _rule(name: str) -> rules.Rule | None:
    return next((rule for rule in rules.RULES if name in (rule.id.lower(), rule.name)), None)


# Limits


def _limit_lines(limits: Sequence[Limit], view: View) -> Iterator[str]:
    """Yield the value and the reason of each limit, with aligned columns."""
    amounts = [
        limit.amount(limit.default) + ("" if limit.unit == BYTES else f" {limit.unit}")
        for limit in limits
    ]
    longest, widest = max(len(limit.name) for limit in limits), max(map(len, amounts))
    for limit, amount in zip(limits, amounts, strict=True):
        reason = (
            f"{limit.reason} This limit cannot be raised because it is {limit.fixed}."
            if limit.fixed
            else limit.reason
        )
        yield from wrap(f"{limit.name:{longest}}  {amount:{widest}}  ", reason, view)


def _limit_values(limit: Limit) -> dict[str, Any]:
    return {
        "name": limit.name,
        "value": limit.default,
        "unit": limit.unit,
        "reason": limit.reason,
        "fixed": limit.fixed or None,
    }


# Releases


def _releases_lines(view: View) -> list[str]:
    """Return a line for each value of ``--target``, the newest releases first."""
    described = releases.descriptions()
    longest = max(len(name) for name, _ in described) + 2
    lines = [line for name, text in described for line in wrap(f"{name:{longest}}", text, view)]
    hint = (
        "--target of `audit` and `migrate` accepts these names. `policytool explain NAME` shows "
        "the formats of a release."
    )
    lines += ["", *wrap("", hint, view, "dim"), ""]
    sizes = {name: environment.size for name, environment in environments().items()}
    rows = [
        f"{name:{longest}}{ENVIRONMENT_BYTES.amount(size):9}{environments()[name].directory}"
        for name, size in sizes.items()
        if size is not None
    ]
    title = (
        f"Environments for --python RELEASE ({', '.join(environments())}), which uv makes in "
        f"{cache_directory()}:"
    )
    return [*lines, *wrap("", title, view), *(f"  {row}" for row in rows or ["none yet"])]


def _release_lines(release: Release, view: View) -> list[str]:
    facts = {
        "--target": "yes" if release.measured else _target(release.id) or "no",
        "tested": "yes" if release.measured else "no",
        "configs": release.generation.title,
        "files": ", ".join(_FILE_FORMATS[name] for name in release.formats),
        "keras_version": f"{release.keras_version}*"
        if release.keras_version.endswith(".")
        else release.keras_version,
    }
    if (environment := environments().get(release.id)) is not None:
        facts["--python"] = (
            f"{ENVIRONMENT_BYTES.amount(environment.installed)} with Python {environment.python}"
        )
    lines = [view.paint(f"{release.id}: {release_name(release.id)}", "title")]
    for label, text in facts.items():
        lines += wrap(f"{label:15}", text, view)
    lines += ["", *wrap("", "Policies in a config of this release:", view)]
    longest = max(map(len, policy.LISTED)) + 2
    for name in policy.LISTED:
        text, style = _policy_format(release.generation, policy.policy_from_name(name))
        lines += wrap(f"{name:{longest}}", text, view, style)
    return lines


_FILE_FORMATS: Final = {"keras": ".keras", "h5": "HDF5", "json": "JSON"}


def _target(name: str) -> str | None:
    """Return the description of files for a release; None if it cannot be a target."""
    return next((text for target, text in releases.descriptions() if target == name), None)


def _release_values(release: Release) -> dict[str, Any]:
    return {
        "name": release.id,
        "title": release_name(release.id),
        "target": _target(release.id),
        "tested": release.measured,
        "config_format": release.generation.id,
        "file_formats": list(release.formats),
        "keras_version": release.keras_version,
        "environment": _environment_values(release.id),
    }


def _environment_values(release_id: str) -> dict[str, Any] | None:
    """Return the environment of a release for ``--python``; None if it has none."""
    environment = environments().get(release_id)
    if environment is None:
        return None
    return {
        "python": environment.python,
        "download_bytes": environment.download,
        "installed_bytes": environment.installed,
        "directory": str(environment.directory),
        "exists": environment.size is not None,
    }


# Policies


def _policies_lines(policies: Sequence[Policy], view: View) -> list[str]:
    columns = (
        Column(title="policy", minimum=26),
        Column(title="compute", minimum=8),
        Column(title="variable", minimum=8),
        Column(title="since", minimum=10),
        Column(title="until", minimum=9),
        Column(title="use instead", minimum=11),
    )
    rows = []
    for listed in policies:
        life = policy.lifecycle(listed)
        rows.append(
            (
                Cell(text=listed.name),
                Cell(text=listed.compute_dtype or "input's"),
                Cell(text=listed.variable_dtype or "input's"),
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
            "`policytool explain NAME` shows the format of a policy in each release.",
            view,
            "dim",
        ),
    ]


def _policy_lines(named: Policy, view: View) -> list[str]:
    life = policy.lifecycle(named)
    casts = named.should_cast_variables and named.compute_dtype
    facts = [
        (
            f"computes in {named.compute_dtype or 'the dtype of its first input'}"
            f"{',' if casts else ' and'} stores variables in "
            f"{named.variable_dtype or 'the dtype of its first input'}"
            f"{', and casts them before use' if casts else ''}"
        ),
        f"since {life.introduced}"
        + (f", deprecated in {life.deprecated}" if life.deprecated else "")
        + (f", an error since {life.removed}" if life.removed else ""),
    ]
    if named.quantization:
        facts.append(
            f"quantized in mode {named.quantization.mode} from {named.quantization.source}"
        )
    if life.replacement:
        facts.append(f"replacement: {life.replacement}")
    if named.name == "mixed_float16":
        facts.append(
            "losses are scaled dynamically: by the policy in TF 2.0 to 2.3 and in the experimental "
            "API up to TF 2.8, and by the optimizer in TF 2.4 and later"
        )
    lines = [view.paint(named.name, "title")]
    for fact in facts:
        lines += wrap("", fact, view)
    lines.append("")
    longest = max(len(generation.title) for generation in GENERATIONS) + 2
    for generation in GENERATIONS:
        text, style = _policy_format(generation, named)
        lines += wrap(f"{generation.title:{longest}}", text, view, style)
    return lines


def _policy_format(generation: Generation, named: Policy) -> tuple[str, str]:
    """Return a policy as configs of a generation have it, and the style of the text."""
    try:
        return json.dumps(generation.render(named)), ""
    except SpellingError as error:
        return f"not supported: {error}", "dim"


def _policy_values(named: Policy) -> dict[str, Any]:
    life = policy.lifecycle(named)
    return {
        "name": named.name,
        "compute_dtype": named.compute_dtype,
        "variable_dtype": named.variable_dtype,
        "should_cast_variables": named.should_cast_variables,
        "quantization": {"mode": named.quantization.mode, "source": named.quantization.source}
        if named.quantization
        else None,
        "introduced": life.introduced,
        "deprecated": life.deprecated,
        "removed": life.removed,
        "replacement": life.replacement,
    }


def _policy_formats(named: Policy) -> dict[str, Any]:
    """Return the values of a policy with its format in each generation."""

    def rendered(generation: Generation) -> dict[str, Any]:
        try:
            return {"value": generation.render(named)}
        except SpellingError as error:
            return {"error": str(error)}

    formats = {generation.id: rendered(generation) for generation in GENERATIONS}
    return {**_policy_values(named), "formats": formats}
