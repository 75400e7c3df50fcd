"""The reports of ``inspect --summary``."""

from __future__ import annotations

import copy
import json
import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest
from hypothesis import given
from markdown_it import MarkdownIt
from msgspec.structs import replace

from policytool.commands import inspect as inspection
from policytool.commands.inspect import Failure
from policytool.commands.summary import OTHER, FleetSummary, SummaryRequest, model_record, summarize
from policytool.formats import discovery
from policytool.model.model import Model
from policytool.reports import View
from policytool.reports.layout import width_of
from policytool.reports.summaries import SUMMARY_REPORTERS
from tests.contracts.report_contract import ReportContract, validator, without_style
from tests.contracts.reporter_contract import MODELS, compared, named, rendered_by
from tests.helpers.drawn_models import models
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.places import places, value_at

if TYPE_CHECKING:
    from policytool.commands.inspect import SelectedInspection

pytestmark = pytest.mark.usefixtures("in_the_root")

FAILURE: Final = Failure(path="models/=broken.h5", code="truncated", message="the file is cut")


def _summary(*results: Model | Failure | None, every_release: bool = False) -> FleetSummary:
    """Return the summary of models, with their records."""
    request = SummaryRequest(every_release=every_release)
    return summarize(
        (
            model_record(result, request) if isinstance(result, Model) else result
            for result in results
        ),
        request,
        keeps_records=True,
    )


@cache
def _results() -> tuple[Model | Failure | None, ...]:
    paths = [str(FIXTURES / name) for name in (*MODELS, "tf2.3", "keras3.15")]
    return tuple(map(inspection.attempt, discovery.inputs(paths)))


@cache
def _case(name: str) -> FleetSummary:
    results = _results()
    return {
        "many": lambda: _summary(*results, FAILURE),
        "releases": lambda: _summary(*results[: len(MODELS)], every_release=True),
        "one": lambda: _summary(results[0]),
        "failure": lambda: _summary(FAILURE, None),
    }[name]()


_rendered = partial(rendered_by, SUMMARY_REPORTERS)


class TestSummaries(ReportContract):
    name = "summary"
    reporters = tuple(reporter for reporter in SUMMARY_REPORTERS if reporter.name != "parquet")
    cases: ClassVar = {
        name: partial(_case, name) for name in ("many", "releases", "one", "failure")
    }
    widths = (80, 120, 200)
    suffixes: ClassVar = {"markdown": "md", "csv": "csv", "json": "json"}


def test_index_page_is_the_golden_one() -> None:
    """The page of a directory, without its style and script, which all pages have."""
    render = named(SUMMARY_REPORTERS, "html")
    assert render.render_directory is not None
    files = render.render_directory(_case("many"), View())
    assert [*files] == ["index.html"]
    compared(without_style(files["index.html"]), "summary-many.html")


@THOROUGH
@given(models())
def test_no_line_is_wider_whatever_the_names(selected: SelectedInspection) -> None:
    """However long the names of models and policies are."""
    (model,) = selected.inspection.models
    text = _rendered("table", _summary(replace(model, path=model.path * 40)), View(width=60))
    assert max(map(width_of, text.splitlines())) <= 60


@THOROUGH
@given(models())
def test_markup_in_names_is_text(selected: SelectedInspection) -> None:
    """No policy or path becomes HTML or Markdown."""
    summary = _summary(*selected.inspection.models)
    tags = set(re.findall(r"<(\w+)", _rendered("html", summary)))
    assert tags <= set(re.findall(r"<(\w+)", _rendered("html", _case("many"))))
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(_rendered("markdown", summary))
    assert not [
        inline.type
        for token in tokens
        for inline in token.children or ()
        if inline.type in {"link_open", "image", "html_inline"}
        and inline.content not in {"<code>", "</code>"}
    ]


@THOROUGH
@given(models())
def test_every_report_of_drawn_models_is_of_the_schema(selected: SelectedInspection) -> None:
    validator("summary").validate(
        json.loads(_rendered("json", _summary(*selected.inspection.models)))
    )


# JSON


@THOROUGH
def test_schema_is_strict() -> None:
    """A missing key and an undocumented key are both errors, at every place."""
    report = json.loads(_rendered("json", _case("many")))
    for steps, value in places(report):
        if not isinstance(value, dict) or any(isinstance(step, int) and step for step in steps):
            continue
        for change in (*value, "surprise"):
            changed = copy.deepcopy(report)
            found = value_at(changed, steps)
            if found.pop(change, None) is None and change == "surprise":
                found[change] = 1
            assert not validator("summary").is_valid(changed), (steps, change)


@THOROUGH
@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        (["models"], -1),
        (["formats", 0, "format"], "onnx"),
        (["savings", 0, "policy"], "int8"),
        (["releases", 0, "reasons", 0, "verdict"], "loads"),
        (["releases", 0, "reasons", 0, "cause"], "weather"),
        (["failures", 0, "code"], "Not A Code"),
    ],
)
def test_schema_refuses_wrong_values(steps: list[Any], wrong: object) -> None:
    """The schema tells right from wrong."""
    report = json.loads(_rendered("json", _case("many")))
    value_at(report, steps[:-1])[steps[-1]] = wrong
    assert not validator("summary").is_valid(report)


# what people read


def test_first_line_counts_the_models_that_load() -> None:
    """The counts are for the newest tf_keras and the newest Keras, also with all releases."""
    for case, line in (
        ("one", "1 model; 1 loads in tf_keras 2.21; 0 load in Keras 3.15"),
        ("releases", "6 models; 4 load in tf_keras 2.21; 1 loads in Keras 3.15"),
    ):
        assert _rendered("table", _case(case)).splitlines()[0] == line


def test_reasons_that_are_not_shown_are_counted() -> None:
    """HTML has them all."""
    summary = _case("many")
    (release,) = (release for release in summary.releases if release.release == "keras3.15")
    assert len(release.reasons) > 10
    left = release.reasons[10:]
    text = " ".join(_rendered("table", summary, View(width=200)).split())
    plural = "s" if len(left) > 1 else ""
    assert f": {len(left)} other reason{plural}" in text
    page = _rendered("html", summary)
    assert "other reason" not in page
    assert all(item.reason.split("`")[0] in page for item in left)


def test_reasons_above_the_limit_are_counted_as_other() -> None:
    """These reasons are not the text of a verdict."""
    summary = _case("one")
    (*rest, last) = summary.releases
    reasons = tuple(replace(reason, reason=OTHER, cause=None) for reason in last.reasons)
    changed = replace(summary, releases=(*rest, replace(last, reasons=reasons)))
    assert "1 model: other reasons" in _rendered("table", changed)


def test_summary_without_a_model_has_no_table() -> None:
    """Failures are on stderr, and also in Markdown and HTML."""
    assert _rendered("table", _case("failure")) == ""
    assert "the file is cut" in _rendered("markdown", _case("failure"))
    assert "the file is cut" in _rendered("html", _case("failure"))
