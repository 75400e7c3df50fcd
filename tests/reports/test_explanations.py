"""The reports of explain: golden files, the schema, and what has to be in them."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

import pytest

from policytool.reports import View
from policytool.reports.explanations import EXPLANATION_REPORTERS, headline
from policytool.support import project
from policytool.troubleshooting.entries import Explanation, explain_text
from tests.contracts.report_contract import ReportContract
from tests.contracts.reporter_contract import rendered_by

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


rendered = partial(rendered_by, EXPLANATION_REPORTERS)


class TestExplanations(ReportContract):
    name = "explain"
    reporters = EXPLANATION_REPORTERS
    cases: ClassVar = {name: partial(CASES.__getitem__, name) for name in CASES}
    widths = (80, 120)
    page = "several"

    def is_too_wide(self, line: str, width: int) -> bool:
        """Addresses of pages are not broken, so that they can be copied."""
        return not line.startswith(f"  {project.URL}/") and super().is_too_wide(line, width)


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
    """The headline also contains the number of other entries."""
    values: dict[str, Any] = {name: headline(found) for name, found in CASES.items()}
    assert values["one"].startswith("policy-format: The model stores the `Policy`")
    assert values["several"].endswith("; 1 more")
    assert values["none"] == "no known error message matches"
