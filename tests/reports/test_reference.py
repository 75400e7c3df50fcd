"""The reference of rules, from docstrings: plain text, Markdown, ``explain`` and the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from markdown_it import MarkdownIt

from policytool.reports import View, topics
from policytool.reports.topics import Block, BlockKind
from policytool.rules import RULES
from tests.conftest import run
from tests.helpers import example_audits
from tests.helpers.cases import for_each
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from policytool.rules import Rule

EVERY: Final = (*RULES, *example_audits.RULES)
PAGE: Final = (ROOT / "docs/reference/rules.md").read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    """Return a page's headings of the second rank as GitHub makes anchors of them."""
    return [
        re.sub(r"[^\w -]", "", line[3:]).replace(" ", "-").lower()
        for line in text.splitlines()
        if line.startswith("## ")
    ]


def test_a_docstring_is_paragraphs_items_and_blocks() -> None:
    """Lines that are broken in the source flow, what is indented or ruled stays as it is."""
    kinds = [block.kind for block in topics.blocks(example_audits.SPELLED.doc)]
    literal = [BlockKind.PARAGRAPH, BlockKind.LITERAL, BlockKind.LITERAL, BlockKind.PARAGRAPH]
    assert kinds == [
        BlockKind.PARAGRAPH,
        BlockKind.PARAGRAPH,
        BlockKind.ITEM,
        BlockKind.ITEM,
        *literal,
    ]
    result = topics.blocks("One,\ntwo:\n- three\n  four\n- five\nsix.\n")
    assert [block.text for block in result] == ["One, two:", "three four", "five", "six."]
    assert topics.blocks("As in::\n\n    a\n      b\n")[1] == Block(
        kind=BlockKind.LITERAL, text="a\n  b"
    )


def test_code_is_code_and_nothing_else_is_markup() -> None:
    """Code is in backticks, also on terminals; Markdown parsers read other words unchanged."""
    text = topics.as_text(example_audits.SPELLED.doc)
    assert "Policies have a format that `Keras 3` does not read." in text
    assert "- one thing, which goes on below;\n- `another` thing." in text
    assert '\n    {"dtype": "mixed_float16"}\n' in text
    assert "As in:\n" in text
    result = MarkdownIt("commonmark").render(topics.as_markdown(example_audits.SPELLED))
    assert (
        "names <code>policytool.releases.policy.Policy</code>, &lt;angles&gt;, a*star* and "
        "snake_case"
    ) in result
    assert '<a href="https://example.org/a_b?c=d">https://example.org/a_b?c=d</a>, and' in result
    assert "<li>one thing, which goes on below;</li>" in result
    assert (
        '<pre><code class="language-text">{&quot;dtype&quot;: &quot;mixed_float16&quot;}' in result
    )


@for_each("rule", EVERY, ids=lambda rule: rule.id)
def test_every_rule_is_explained_in_every_form(rule: Rule) -> None:
    """Each form has all words of the docstring, no reStructuredText, and lines that fit."""
    text, markdown = topics.as_text(rule.doc), topics.as_markdown(rule)
    lines = topics.as_lines(rule, View(width=80))
    for shown in (text, markdown, "\n".join(lines)):
        assert not re.search(r":\w+:`|``[^`\n]", shown.replace("```", "")), shown
        assert "\n\n\n" not in shown
    words = set(re.findall(r"\w+", re.sub(r":\w+:`~?", "", rule.doc)))
    for shown in (text, "\n".join(lines)):
        assert words <= set(re.findall(r"\w+", shown))
    assert not [line for line in lines if len(line) > 80 and max(map(len, line.split())) < 40]
    assert "html" not in {token.type for token in MarkdownIt("commonmark").parse(markdown)}
    assert rule.example.split()[0] in markdown


def test_page_has_every_rule_under_its_anchor() -> None:
    """Each rule is listed with a link to its heading, which is also the link in the help."""
    anchors = headings(PAGE)
    for rule in RULES:
        assert topics.anchor(rule) in anchors
        assert f"[{rule.id} {rule.name}](#{topics.anchor(rule)})" in PAGE
        assert topics.as_markdown(rule, with_sources=False) in PAGE
    assert not re.search(r"^Sources?:", PAGE, re.MULTILINE)


def test_generator_keeps_the_cells_of_the_table() -> None:
    """No summary ends a cell of the page."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| [PT")]
    assert len(rows) == len(RULES)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


# The command


@pytest.mark.parametrize("columns", ["80", "120", "200"])
def test_all_rules_are_listed_with_their_summary(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Id, name, severity, fix and the complete summary fit the terminal."""
    monkeypatch.setenv("COLUMNS", columns)
    ended = run("explain", "rules")
    assert (ended.code, ended.err) == (0, "")
    assert max(map(len, ended.out.splitlines())) <= int(columns)
    result = " ".join(ended.out.split())
    for rule in RULES:
        assert f"{rule.id} {rule.name} {rule.severity.value}" in result
        if columns == "80":
            assert topics.plain(rule.summary) in result


def test_colour_and_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours only where they are wanted."""
    plain = run("explain", "rules")
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = run("explain", "rules")
    assert "\x1b[" not in plain.out
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured.out) == plain.out != coloured.out


@pytest.mark.parametrize("asked", ["PT101", "pt101", "experimental-policy", "experimental_policy"])
def test_rule_is_shown_by_id_or_name(asked: str) -> None:
    """The complete reference of the rule is printed."""
    ended = run("explain", asked)
    assert ended.code == 0
    assert ended.out.startswith("PT101 experimental-policy\n")
    assert "Sources:" in ended.out
    assert "Example" in ended.out


@pytest.mark.parametrize("asked", ["PT1O1", "experimental-polcy", "expermental"])
def test_an_unknown_rule_is_a_usage_error_that_names_the_nearest(asked: str) -> None:
    """Exit code 2, and one sentence."""
    ended = run("explain", asked)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: Unknown topic {asked!r}.")
    assert ended.err.count("\n") == 1
    assert "Did you mean 'PT101'?" in ended.err or "'experimental-policy'?" in ended.err


def test_json_has_every_rule_with_every_key() -> None:
    """The same for all of them and for one."""
    every, one = (
        run("explain", "rules", "--format", "json").json,
        run("explain", "PT101", "--format", "json").json,
    )
    assert every["version"] == one["version"] == 1
    assert [rule["id"] for rule in every["rules"]] == [rule.id for rule in RULES]
    assert one["rules"] == [rule for rule in every["rules"] if rule["id"] == "PT101"]
    for rule in every["rules"]:
        assert set(rule) == {
            "id",
            "name",
            "family",
            "severity",
            "fix",
            "needs",
            "summary",
            "description",
            "example",
            "references",
        }
        assert rule["description"].startswith(rule["summary"])
