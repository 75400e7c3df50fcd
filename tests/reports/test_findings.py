"""The reports of ``audit``: golden files, the schema, and properties for any names of layers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections import Counter
from datetime import date
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from markdown_it import MarkdownIt
from msgspec.structs import replace

from policytool.commands import audit as auditing
from policytool.commands.audit import Audit
from policytool.commands.inspect import Failure
from policytool.formats import discovery
from policytool.reports import View, layout
from policytool.reports.findings import FINDING_REPORTERS, sarif
from policytool.reports.findings._page import remedies, with_fingerprints
from policytool.reports.layout import clean
from policytool.rules import RULES, AuditOptions
from policytool.rules.base import Audited, Fix, Remedy, Severity, fails, fingerprints
from policytool.rules.selection.suppressions import Suppression, Suppressions, suppress
from policytool.support import project
from tests.contracts.report_contract import ReportContract, strict_json, validator
from tests.contracts.reporter_contract import compared, rendered_by
from tests.helpers import example_audits
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.scripts import run_captured

if TYPE_CHECKING:
    from collections.abc import Callable

CASES: Final[dict[str, Callable[[], Audit]]] = {
    "real": example_audits.real,
    "made": example_audits.made,
}
SUFFIXES: Final = {
    "markdown": "md",
    "csv": "csv",
    "json": "json",
    "sarif": "sarif",
    "junit": "xml",
    "github": "github.txt",
}
NAMES: Final = tuple(reporter.name for reporter in FINDING_REPORTERS)


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in reports are relative to the working directory."""
    monkeypatch.chdir(ROOT)


def rendered(reporter: str, audit: Audit, view: View | None = None) -> str:
    """Return the report of an audit, with suppressed findings unless the view hides them."""
    return rendered_by(FINDING_REPORTERS, reporter, audit, view or View(suppressed=True))


# All of them


def test_first_reporter_is_the_default_and_each_has_a_golden_file() -> None:
    """The default is ``table``. Other tests cover ``html``."""
    assert NAMES[0] == "table"
    assert set(NAMES) == {"table", "html", *SUFFIXES}


class TestFindings(ReportContract):
    name = "audit"
    reporters = FINDING_REPORTERS
    cases = CASES
    widths = (80, 120, 200)
    suffixes = SUFFIXES
    page = "made"

    def is_too_wide(self, line: str, width: int) -> bool:
        """Long words without a space are not broken."""
        return (
            super().is_too_wide(line, width)
            and "octocat" not in line
            and max(map(len, line.split(" "))) < width // 2
        )


@pytest.mark.parametrize("reporter", NAMES)
def test_no_report_has_the_time(reporter: str) -> None:
    """The same models give the same report on every day."""
    text = rendered(reporter, example_audits.real())
    assert not re.search(r"\d\d:\d\d|20\d\d-\d\d", text)


@THOROUGH
@pytest.mark.parametrize("reporter", NAMES)
@given(audit=example_audits.audits())
def test_no_name_moves_the_cursor_or_ends_a_line(reporter: str, audit: Audit) -> None:
    """The text is printable UTF-8, and is empty or ends with one newline, for any names."""
    text = rendered(reporter, audit)
    if reporter not in {"json", "sarif"}:
        assert all(line.isprintable() for line in re.split("\r?\n", text))
    text.encode("utf-8")
    assert text == "" or (text.endswith("\n") and not text.endswith("\n\n"))


@pytest.mark.parametrize("reporter", NAMES)
def test_report_without_a_model_is_empty_for_people(reporter: str) -> None:
    """Formats for programs are still complete documents."""
    text = rendered(reporter, Audit(audited=(), rules=example_audits.RULES))
    assert bool(text) == (reporter in {"html", "csv", "json", "sarif", "junit"})


@pytest.mark.parametrize("reporter", ["json", "sarif", "junit", "markdown"])
def test_report_contains_every_finding_with_its_path(reporter: str) -> None:
    text = rendered(reporter, example_audits.made())
    for path in (
        "mlp/dense_a",
        "mlp/norm",
        "models/mlp.h5",
        "self_attention_layer_normalization",
        "truncated" if reporter != "markdown" else "12 bytes",
    ):
        assert path in text


# The table


def test_a_table_in_colour_is_the_golden_one() -> None:
    """Colours are severities, layers and commands."""
    view = View(width=120, colour=True, suppressed=True)
    compared(rendered("table", example_audits.made(), view), "audit-colour.120.txt")


def test_equal_messages_of_a_file_are_printed_once() -> None:
    """Files without findings are counted and not listed."""
    text = rendered("table", example_audits.made(), View(width=200))
    models = text.split("\n\n")
    assert models[1].count("has mixed_float16 in the format of TF 2.3") == 1
    assert "clean.keras" not in text
    assert models[0].startswith("Checked 6 models: 3 errors, 7 warnings, 3 notes in 4 models")


def test_single_model_has_its_fixes_and_no_chart_of_models() -> None:
    """The option ``--fix`` does not re-export a model, so such a fix does not count."""
    remedies_ = (Remedy(fix=Fix.SAFE), Remedy(fix=Fix.UNSAFE, retrace=True))
    found = tuple(example_audits.SPELLED.finding("x", remedy=remedy) for remedy in remedies_)
    model = Audited(path="a", format="savedmodel", generation=None, layers=1, findings=found)
    audit = Audit(audited=(model,), rules=example_audits.RULES)
    first, *_ = rendered("table", audit).splitlines()
    assert first == "Checked 1 model: 2 warnings; 1 fixable with --fix"
    assert "Findings by model" not in rendered("html", audit)


# What was let pass


@pytest.mark.parametrize("reporter", NAMES)
def test_suppressed_findings_are_shown_on_request(reporter: str) -> None:
    """
    JSON always contains suppressed findings. GitHub annotations never do, because GitHub would show
    these as alerts.
    """
    texts = {
        suppressed: rendered(
            reporter, example_audits.made(), View(width=200, suppressed=suppressed)
        )
        for suppressed in (False, True)
    }
    assert ("served by TF 2.3" in texts[True]) == (reporter != "github")
    assert ("served by TF 2.3" in texts[False]) == (reporter == "json")


def test_suppression_does_not_change_fingerprints() -> None:
    found = [
        example_audits.SPELLED.finding("it is spelled oddly", path=f"dense_{number}")
        for number in range(3)
    ]
    marks = fingerprints(found)
    assert len(set(marks)) == 3
    audited = Audited(path="a.h5", format="h5", generation=None, layers=3, findings=tuple(found))
    assert [mark for _, mark in with_fingerprints(audited)] == list(marks)
    suppression = Suppression(
        words=("PT198",), rules=frozenset({"PT198"}), layer="dense_0", reason="known"
    )
    set_apart = suppress(
        audited, Suppressions(directory="/", today=date(2026, 1, 1), entries=(suppression,))
    )
    assert with_fingerprints(set_apart) == list(zip(found[1:], marks[1:], strict=True))
    assert [one.fingerprint for one in set_apart.suppressed] == [marks[0]]


# Commands that fix


def test_fixes_of_a_rule_in_a_file_are_combined() -> None:
    """One command assigns the policies of several layers; other options are separate commands."""
    unsafe = [Remedy(fix=Fix.UNSAFE, assignments=((path, "float32"),)) for path in ("a", "b", "a")]
    keep = Remedy(fix=Fix.UNSAFE, keep_loss_scale=True)
    found = [example_audits.NUMBERS.finding("x", remedy=remedy) for remedy in (*unsafe, keep, None)]
    assert remedies(found) == [
        Remedy(fix=Fix.UNSAFE, assignments=(("a", "float32"), ("b", "float32"))),
        keep,
    ]
    retraced = replace(unsafe[1], retrace=True)
    traced = [
        example_audits.NUMBERS.finding("x", remedy=remedy) for remedy in (unsafe[0], retraced)
    ]
    assert remedies(traced) == [replace(retraced, assignments=(("a", "float32"), ("b", "float32")))]


@pytest.mark.parametrize(
    "word",
    [
        "a",
        "a b",
        "it's",
        '"',
        "$(id)",
        "`id`",
        "a\nb",
        "\x1b[2J",
        "\u202e",
        "ü",
        "a\\b",
        "\U0001f600",
        "x'\ny",
        "*",
        "~",
        "",
    ],
)
def test_shell_reads_quoted_words_unchanged(word: str) -> None:
    """Bash returns the word, and the quoted text is one printable line."""
    quoted = layout.quote(word)
    assert quoted.isprintable()
    done = subprocess.run(
        ["bash", "-c", f"printf %s {quoted}"],
        capture_output=True,
        check=True,
        timeout=60,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.decode() == word


def test_name_that_is_not_utf8_is_quoted_by_bytes() -> None:
    """The bytes are those of the operating system."""
    assert layout.quote("a\udcff") == "$'a\\xff'"


def test_long_command_is_broken_into_lines() -> None:
    """All lines except the last end in a backslash, and each fits the width."""
    words = (
        "policytool",
        "migrate",
        "m.h5",
        *(word for number in range(9) for word in ("--set", f"layer {number}=float32")),
    )
    lines = layout.lines(words, 40)
    assert len(lines) > 3
    assert max(map(len, lines)) <= 40
    done = run_captured(["bash", "-c", "printf '%s\\n' " + "\n".join(lines)])
    assert tuple(done.stdout.splitlines()) == words
    assert not [line for line in lines if line.endswith("--set \\")]
    assert layout.command(words) == shlex.join(words)
    assert layout.file("-m.h5") == "./-m.h5"


# JSON


@THOROUGH
@given(example_audits.audits())
def test_json_is_of_the_shipped_schema(audit: Audit) -> None:
    """Strict JSON, with totals that are those of the lists."""
    report = strict_json("audit", rendered("json", audit))
    found = Counter(
        finding["severity"] for model in report["models"] for finding in model["findings"]
    )
    assert report["summary"]["findings"] == {
        severity.value: found[severity.value] for severity in Severity
    }
    assert [model["path"] for model in report["models"]] == [
        audited.path for audited in audit.audited
    ]
    assert json.loads(rendered("json", audit, View(unicode=False))) == report


def test_the_schema_allows_nothing_else() -> None:
    """Nothing is added to a finding without the schema's knowing, and nothing is left out."""
    report = json.loads(rendered("json", example_audits.made()))
    validator("audit").validate(report)
    report["models"][0]["findings"][0]["more"] = 1
    assert not validator("audit").is_valid(report)
    del report["models"][0]["findings"][0]["more"], report["models"][0]["findings"][0]["rule"]
    assert not validator("audit").is_valid(report)


# SARIF


@THOROUGH
@given(example_audits.audits())
def test_sarif_contains_exactly_the_findings(audit: Audit) -> None:
    """Each finding is a result with its rule, file, layer, fingerprint and suppression."""
    (run,) = json.loads(rendered("sarif", audit))["runs"]
    rules = run["tool"]["driver"]["rules"]
    expected = [
        (finding, fingerprint)
        for audited in audit.audited
        for every in (audited.findings, [one.finding for one in audited.suppressed])
        for finding, fingerprint in zip(every, fingerprints(every), strict=True)
    ]
    for result, (finding, fingerprint) in zip(run["results"], expected, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.rule
        assert result["level"] == finding.severity.value
        assert "kind" not in result
        assert result["partialFingerprints"]["policytool/v1"] == fingerprint
        (location,) = result["locations"]
        assert ("logicalLocations" in location) == (finding.path is not None)
        assert re.fullmatch(
            r"[A-Za-z0-9%/._~:@?=&+-]+", location["physicalLocation"]["artifactLocation"]["uri"]
        )
        assert not re.search(r"(?<!\{)(\{\{)*\{\d", result["message"]["text"])
        assert "](" not in result["message"]["text"]
    assert sum("suppressions" in result for result in run["results"]) == sum(
        len(audited.suppressed) for audited in audit.audited
    )
    assert run["invocations"][0]["executionSuccessful"] == (not audit.failures)
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == len(audit.failures)


def test_sarif_contains_the_locations_of_files() -> None:
    """Paths are relative if they are in the working directory, and complete URLs otherwise."""
    (run,) = json.loads(rendered("sarif", example_audits.made()))["runs"]
    places = {
        json.dumps(result["locations"][0]["physicalLocation"]["artifactLocation"])
        for result in run["results"]
    }
    assert '{"uri": "models/mlp.h5", "uriBaseId": "%SRCROOT%"}' in places
    assert '{"uri": "file:///elsewhere/noted%20model.json"}' in places
    assert '{"uri": "s3://bucket/a%20b.keras"}' in places
    assert run["originalUriBaseIds"].keys() == {"%SRCROOT%"}


def test_sarif_keeps_the_address_of_a_registered_model() -> None:
    """The address has only one slash, and is not a file below the working directory."""
    audit = example_audits.made()
    moved = replace(audit, audited=(replace(audit.audited[0], path="models:/a b@c/data/m.h5"),))
    (run,) = json.loads(rendered("sarif", moved))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "models:/a%20b@c/data/m.h5"}


@pytest.mark.parametrize(
    ("model", "file"),
    [
        ("tf2.4/exp_mf16_fixed128", "saved_model.pb"),
        ("tf2.5/global_mixed_float16", "keras_metadata.pb"),
        ("tf1.15/global_mixed_float16.export", "assets/saved_model.json"),
        ("keras3.15/global_mixed_float16.export", "saved_model.pb"),
        ("keras3.15/unpacked.keras.d", "config.json"),
        ("tfjs4.22/default_float32_compiled", "model.json"),
    ],
)
def test_sarif_locates_findings_in_files(model: str, file: str) -> None:
    """In a directory, the location is the file with the config, or the graph without a config."""
    (found,) = discovery.inputs([f"fixtures/{model}/{file}"])
    finding = example_audits.SPELLED.finding("made for this test")
    audited = replace(auditing.audit_input(found, AuditOptions()), findings=(finding,))
    audit = Audit(audited=(audited,), rules=example_audits.RULES)
    (result,) = json.loads(rendered("sarif", audit))["runs"][0]["results"]
    (location,) = result["locations"]
    uri = location["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == f"fixtures/{model}/{file}"
    assert (ROOT / uri).is_file()


def test_sarif_explains_every_rule() -> None:
    """Each rule has a help page; markdown has no HTML, which SARIF forbids."""
    audit = Audit(audited=(), rules=(*RULES, *example_audits.RULES))
    (run,) = json.loads(sarif.REPORTER.render(audit, View()))["runs"]
    driver = run["tool"]["driver"]
    assert driver["informationUri"] == project.URL
    for rule in driver["rules"]:
        assert rule["helpUri"] == (
            f"{project.URL}/blob/main/docs/reference/rules.md#{rule['id'].lower()}-{rule['name']}"
        )
        assert rule["defaultConfiguration"]["level"] in {"error", "warning", "note"}
        assert rule["shortDescription"]["text"] in rule["help"]["text"]
        assert not re.search(
            r"<(?!https?://)", re.sub(r"\\<|`[^`]*`", "", rule["help"]["markdown"])
        )


# Markdown


@THOROUGH
@given(example_audits.audits())
def test_no_markup_of_a_file_is_left(audit: Audit) -> None:
    """Names in files produce no Markdown, HTML or GitHub markup outside of code."""
    for line in rendered("markdown", audit).splitlines():
        text = re.sub(r"<code>[^<>`|]*</code>", "", line)
        text = re.sub(r"`[^`|<>&\\]+`", "", text)
        text = re.sub(r"^(### |- )|\*\*[A-Za-z0-9 .(),]+\*\*", "", text)
        text = re.sub(r"^\*\*(.*)\*\*$", r"\1", text)  # a verdict
        assert not set(text) & set("`*_<>[]{}\\@#~&"), line
        assert "www." not in text.lower()


@THOROUGH
@given(example_audits.audits())
def test_markdown_of_hostile_names_has_only_the_headings_of_models(audit: Audit) -> None:
    """Names from a file cannot add headings, tables, links, images or HTML elements."""
    tokens = MarkdownIt("commonmark").enable("table").parse(rendered("markdown", audit))
    headings = [token for token in tokens if token.type == "heading_open"]
    fixed = {one.path for one in audit.fixed}
    assert len(headings) == sum(
        bool(audited.findings or audited.suppressed or audited.path in fixed)
        for audited in audit.audited
    )
    assert not [token for token in tokens if token.type == "table_open"]
    inner = [child for token in tokens for child in token.children or []]
    assert not {child.type for child in inner} & {"link_open", "image"}
    assert {child.content for child in inner if child.type == "html_inline"} <= {
        "<code>",
        "</code>",
    }


# GitHub's annotations


@THOROUGH
@given(example_audits.audits())
def test_every_annotation_is_one_command(audit: Audit) -> None:
    """Each line is one annotation whose file and message the runner decodes correctly."""
    lines = rendered("github", audit).split("\n")[:-1]
    found = []
    for line in lines:
        match = re.fullmatch(r"::(error|warning|notice) file=([^,:]*),title=([^,:]*)::(.*)", line)
        assert match
        found.append(re.sub(r"%(25|0D|0A|3A|2C)", lambda code: chr(int(code[1], 16)), match[2]))
    expected = [failure.path for failure in audit.failures] + [
        audited.path for audited in audit.audited for _ in audited.findings
    ]
    assert sorted(found) == sorted(map(clean, expected))


def test_annotations_have_subjects() -> None:
    """A message without a subject starts with the path of the file, or with the layer."""
    failure = Failure(path="m.h5", code="foreign", message="has an unrecognized file format")
    finding = replace(
        example_audits.SPELLED.finding("fails to load in Keras 3.15"), path="net/lstm"
    )
    audited = Audited(path="n.h5", format="h5", generation=None, layers=1, findings=(finding,))
    audit = Audit(audited=(audited,), failures=(failure,), rules=example_audits.RULES)
    first, second = rendered("github", audit).splitlines()
    assert first.endswith("::m.h5 has an unrecognized file format")
    assert second.endswith("::net/lstm fails to load in Keras 3.15.")


def test_the_worst_annotations_come_first() -> None:
    """GitHub shows ten of a kind; what could not be read is before all."""
    kinds = [line.split(" ")[0] for line in rendered("github", example_audits.made()).splitlines()]
    assert kinds == ["::error"] * 4 + ["::warning"] * 7 + ["::notice"] * 3


# JUnit


@THOROUGH
@given(example_audits.audits())
def test_junit_totals_are_correct(audit: Audit) -> None:
    """JUnit is XML with a suite per file, unique names within a suite, and correct totals."""
    root = ET.fromstring(rendered("junit", audit))  # noqa: S314  # our own
    assert len(root) == len(audit.audited) + len(audit.failures)
    for suite, audited in zip(root, audit.audited, strict=False):
        cases = suite.findall("testcase")
        assert (
            len({case.get("name") for case in cases})
            == len(cases)
            == max(1, len(audited.findings) + len(audited.suppressed))
        )
        failing = [
            finding
            for finding in audited.findings
            if audit.fail_on is not None and fails(finding, audit.fail_on)
        ]
        assert suite.get("failures") == str(len(failing)) == str(len(suite.findall("*/failure")))
        assert suite.get("skipped") == str(len(audited.suppressed))
    assert root.get("errors") == str(len(audit.failures))
    assert root.get("tests") == str(len(root.findall("*/testcase")))
    assert ET.tostring(
        ET.fromstring(rendered("junit", audit, View(unicode=False, suppressed=True)))  # noqa: S314
    ) == ET.tostring(root)
