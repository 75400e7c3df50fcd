"""The reports of explain: golden files, the schema, and what has to be in them."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final

import jsonschema
import pytest

from policytool.reports import View
from policytool.reports.explanations import EXPLANATION_REPORTERS, headline
from policytool.support import project
from policytool.troubleshooting.entries import Explanation, explain_text
from tests.contracts.reporter_contract import compared

MESSAGE: Final = (
    "Traceback (most recent call last):\n"
    '  File "load.py", line 3, in <module>\n'
    "    keras.models.load_model(path)\n"
    "AttributeError: 'str' object has no attribute 'quantization_mode'\n"
)
SEVERAL: Final = (
    "ValueError: Unknown layer: Functional\n\n"
    "During handling of the above exception, another exception occurred:\n\n"
    "ValueError: Unknown layer: MyLayer. Please ensure this object is passed"
)
HOSTILE: Final = (
    "::error::x ##[error] \x1b]0;t\x07\u202e<script>|`#1` @you https://evil.example "
    "'str' object has no attribute 'quantization_mode'"
)
CASES: Final = {
    "one": explain_text(MESSAGE),
    "several": explain_text(SEVERAL),
    "hostile": explain_text(HOSTILE),
    "none": Explanation(matches=()),
}


def rendered(reporter: str, found: Explanation, view: View | None = None) -> str:
    """Return an explanation as a reporter shows it."""
    (one,) = (one for one in EXPLANATION_REPORTERS if one.name == reporter)
    return one.render(found, view or View())


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", CASES)
def test_tables_are_the_golden_ones_and_fit(name: str, width: int) -> None:
    """Only the address may be longer than the width; it is broken then."""
    text = rendered("table", CASES[name], View(width=width))
    compared(text, f"explain-{name}.{width}.txt")
    assert max((len(line) for line in text.splitlines()), default=0) <= width


@pytest.mark.parametrize("name", CASES)
def test_json_is_the_golden_one_and_of_the_schema(name: str) -> None:
    """The report for programs."""
    text = rendered("json", CASES[name])
    compared(text, f"explain-{name}.json")
    schema = json.loads(
        resources.files("policytool.reports.schemas")
        .joinpath("explain.schema.json")
        .read_text(encoding="utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("name", CASES)
def test_markdown_is_the_golden_one(name: str) -> None:
    """The report for pull requests."""
    compared(rendered("markdown", CASES[name]), f"explain-{name}.md")


@pytest.mark.parametrize("reporter", ["table", "markdown", "html", "json"])
def test_reports_link_to_the_page_only(reporter: str) -> None:
    """Sources are on the page."""
    text = rendered(reporter, CASES["one"], View(width=200))
    assert project.page("how-to/troubleshooting.md") in text
    assert "github.com" not in text


@pytest.mark.parametrize("reporter", ["table", "markdown", "json"])
def test_a_hostile_message_is_only_shown(reporter: str) -> None:
    """Nothing moves the cursor, and nothing is a command to a CI runner."""
    text = rendered(reporter, CASES["hostile"])
    assert all(line.isprintable() and not line.startswith("::") for line in text.split("\n"))
    if reporter != "json":
        assert "##[" not in text
        assert "<script>" not in text or reporter == "table"


def test_the_headline_names_the_best_entry() -> None:
    """And the number of others."""
    values: dict[str, Any] = {name: headline(found) for name, found in CASES.items()}
    assert values["one"].startswith("quantization-mode (95%): AttributeError")
    assert values["several"].endswith("; 1 more")
    assert values["none"] == "no known error message matches"
