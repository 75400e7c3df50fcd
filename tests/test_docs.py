"""The documentation says what the package does: generated pages are current, and examples run."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import json
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

import click
import pytest

import policytool
from policytool.cli import audit_command, check_command, tune_command
from policytool.reports import json_lines
from policytool.reports.checks import CHECK_REPORTERS
from policytool.reports.explanations import EXPLANATION_REPORTERS
from policytool.reports.findings import FINDING_REPORTERS
from policytool.reports.findings.fields import ROW_COLUMNS as FINDING_COLUMNS
from policytool.reports.inspection import PARQUET_REPORTER, REPORTERS
from policytool.reports.inspection import ROW_COLUMNS as LAYER_COLUMNS
from policytool.reports.plans import PLAN_REPORTERS
from policytool.reports.summaries import ROW_COLUMNS as MODEL_COLUMNS
from policytool.reports.tuning import TUNE_REPORTERS
from policytool.support import limits
from tests.conftest import run
from tests.helpers.cases import for_each
from tests.helpers.marks import PARSING, THOROUGH
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from policytool.reports.rows import RowColumn

PAGES: Final = sorted((ROOT / "docs").rglob("*.md"))
FILE: Final = ROOT / "docs" / "generators" / "generate.py"


def generator() -> Any:
    """Return ``docs/generators/generate.py`` as a module."""
    sys.path.append(str(ROOT / "docs" / "generators"))  # as for a script there
    spec = importlib.util.spec_from_file_location("docs_generate", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATED: Final = (
    "ARCHITECTURE.md",
    "docs/reference/commands.md",
    "docs/reference/policies.md",
    "docs/reference/rules.md",
    "docs/reference/compatibility.md",
    "docs/reference/formats.md",
    "docs/reference/policytool.1",
    "docs/how-to/migrate.md",
    "docs/how-to/troubleshooting.md",
    *(
        f"docs/evidence/{name}.md"
        for name in (
            "incompatibilities",
            "migrated",
            "behaviour",
            "conversions",
            "random-models",
            "exports",
            "conversion-steps",
            "arguments",
            "applications",
            "crashes",
            "attacks",
            "limits",
            "masks",
            "fuzzing",
        )
    ),
)


@THOROUGH
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=PARSING if name == "ARCHITECTURE.md" else ()) for name in GENERATED],
)
def test_generated_pages_are_current(name: str) -> None:
    """The committed pages are those that ``make docs`` writes."""
    assert (ROOT / name).read_text(encoding="utf-8") == generator().PAGES[name]()


@THOROUGH
def test_the_picture_is_of_the_report_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The README's picture shows what ``inspect`` prints now; releases of rich frame the same text
    differently.
    """
    monkeypatch.chdir(ROOT)
    pictures = (
        (ROOT / "docs/images/inspect.svg").read_text(encoding="utf-8"),
        generator().picture(),
    )
    actual = [
        re.sub(r"&#160;|\s", "", "".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)))
        for svg in pictures
    ]
    assert actual[0] == actual[1]


@for_each(
    ("schema", "place"),
    [
        *(("inspect", place) for place in ("model", "layer")),
        *(("migrate", place) for place in ("plan", "conversion")),
        *(("audit", place) for place in ("model", "finding", "summary")),
        *(
            ("check", place)
            for place in (
                "check",
                "side",
                "run",
                "device",
                "inputs",
                "output",
                "kind-answer",
                "call",
                "verdict",
                "metrics",
                "rewrite",
                "kernel",
                "timing",
                "gradients",
                "reductions",
            )
        ),
        *(("explain", place) for place in ("match", "step")),
        *(("tune", place) for place in ("tuning", "objective", "tuned-layer", "tune-trial")),
        *(("lines", place) for place in ("header", "model", "failure", "end")),
    ],
)
def test_page_of_the_json_reports_has_every_key(schema: str, place: str) -> None:
    """If a key has fixed values, the page has each of them."""
    name = "json" if schema == "lines" else "json-keys"
    page = (ROOT / f"docs/reference/{name}.md").read_text(encoding="utf-8")
    definition = json.loads(
        (ROOT / "policytool/reports/schemas" / f"{schema}.schema.json").read_text(encoding="utf-8")
    )["$defs"][place]
    words = set(re.findall(r"[\w-]+", page))
    actual = {
        str(word)
        for key, value in definition["properties"].items()
        for word in (key, *(value.get("enum") or ()))
        if word is not None
    }
    assert actual <= words


PYTHON: Final = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")


def test_examples_on_the_python_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples print the output on the page."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "fixtures/tf2.3/exp_mf16_fixed128.h5", "model.h5")
    blocks = re.findall(r"```pycon\n(.*?)```", PYTHON, re.DOTALL)
    parsed = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "python.md", None, 0)
    assert len(parsed.examples) > 12
    actual: list[str] = []
    doctest.DocTestRunner().run(parsed, out=actual.append)
    assert not actual, "".join(actual)


@pytest.mark.parametrize(
    "function", ["audit", "check", "diff", "explain", "inspect", "migrate", "tune"]
)
def test_every_option_in_python_is_on_the_page_of_its_command(function: str) -> None:
    (row,) = re.findall(rf"^\| `{function}\(.*", PYTHON, re.MULTILINE)
    signature = inspect.signature(getattr(policytool, function))
    assert f"`{signature.return_annotation}`" in row
    options = {name for name, one in signature.parameters.items() if one.kind is one.KEYWORD_ONLY}
    page = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    rows = [
        line
        for heading in ("Options of every command", f"policytool {function}")
        for line in page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].splitlines()
        if line.startswith("| `-")
    ]
    marked = [line for line in rows if "Python" in line.rpartition(" | ")[2]]
    names = {re.findall(r"--([a-z0-9-]+)", line)[0].replace("-", "_") for line in marked}
    assert names == options


@for_each("name", policytool.__all__)
def test_every_public_name_is_on_the_python_page(name: str) -> None:
    """The page also has the attributes of each class."""
    public = getattr(policytool, name)
    words = set(re.findall(r"[\w.]+", PYTHON))
    assert {name, f"policytool.{name}"} & words
    if isinstance(public, type) and not issubclass(public, Exception):
        attributes = {item for item in vars(public) if not item.startswith("_")}
        assert attributes <= words


def test_settings_on_the_page_of_audit_are_valid(tmp_path: Path) -> None:
    """The settings name existing rules and releases, and every key of a suppression."""
    page = (ROOT / "docs/how-to/audit.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "policytool.toml").write_text(block, encoding="utf-8")
    ended = run("audit", "--config", tmp_path / "policytool.toml", "--show-settings")
    assert ended.code == 0, ended.err
    assert (
        'suppress = [{ rules = ["PT301"], path = "exported/ranker*", layer = "ranker/head_.*", '
        "reason = "
    ) in ended.out
    assert "expires = 2027-01-31" in ended.out


def test_audit_options_with_a_variable_are_on_the_page_of_audit() -> None:
    """
    Each such option has a variable with its name. Options that every command has are excluded.
    """
    page = (ROOT / "docs/how-to/audit.md").read_text(encoding="utf-8")
    options = [
        option for option in audit_command.command.params if isinstance(option, click.Option)
    ]
    actual = [
        option
        for option in options
        if option.envvar and option.name not in {"format", "config", "jobs", "limit"}
    ]
    assert len(actual) > 10
    assert not [
        option.name
        for option in actual
        if not {*option.opts, *option.secondary_opts} & set(re.findall(r"--[a-z-]+", page))
    ]
    assert all(option.envvar == f"POLICYTOOL_{str(option.name).upper()}" for option in actual)


@pytest.mark.parametrize("name", ["check", "tune"])
def test_every_option_of_a_command_is_on_its_page(name: str) -> None:
    """Options that every command has are excluded."""
    page = (ROOT / "docs/how-to/check.md").read_text(encoding="utf-8")
    command = {"check": check_command, "tune": tune_command}[name].command
    options = [option for option in command.params if isinstance(option, click.Option)]
    actual = [
        option
        for option in options
        if option.name
        not in {
            "verbose",
            "config",
            "show_settings",
            "limit",
        }
    ]
    assert len(actual) > 15
    words = set(re.findall(r"--[a-z0-9-]+", page))
    assert not [
        word
        for option in actual
        for word in (*option.opts, *option.secondary_opts)
        if word.startswith("--") and word not in words
    ]


@pytest.mark.parametrize(("number", "golden"), [(0, "check-failing"), (1, "tune-passing")])
def test_tables_of_the_page_are_from_reports(number: int, golden: str) -> None:
    """The lines are those of a report, and some are left out."""
    page = (ROOT / "docs/how-to/check.md").read_text(encoding="utf-8")
    block = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[number]
    printed = (ROOT / f"tests/golden/{golden}.80.txt").read_text(encoding="utf-8").splitlines()
    actual = [line for line in block.splitlines() if line != "..."]
    assert len(actual) > 8
    assert [line for line in printed if line in actual] == actual


REPORTS: Final = (ROOT / "docs/reference/reports.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        ("### Rows of `inspect`:", LAYER_COLUMNS),
        ("### Rows of `inspect --summary`:", MODEL_COLUMNS),
        ("### Rows of `audit`:", FINDING_COLUMNS),
    ],
)
def test_documentation_lists_the_columns_of_rows_in_order(
    heading: str, columns: Sequence[RowColumn]
) -> None:
    """The table on the page equals the header of the rows."""
    page = (ROOT / "docs/reference/json-keys.md").read_text(encoding="utf-8")
    section = page[page.index(heading) :].partition("\n#")[0]
    actual = [
        name
        for line in section.partition("| --- | --- |")[2].splitlines()
        if line.startswith("|")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    ]
    assert actual == [column.name for column in columns]


def test_every_format_is_in_the_documentation() -> None:
    """Each format has the commands that support it, the default first."""
    actual = dict(
        re.findall(
            r"^\| `([\w-]+)` \| ((?:inspect|audit|migrate|tune).*?) \|", REPORTS, re.MULTILINE
        )
    )
    assert [name for name, commands in actual.items() if "inspect" in commands] == [
        *(reporter.name for reporter in REPORTERS),
        PARQUET_REPORTER.name,
        json_lines.FORMAT,
    ]
    assert [name for name, commands in actual.items() if "migrate" in commands] == [
        *(reporter.name for reporter in PLAN_REPORTERS),
        json_lines.FORMAT,
    ]
    audited = [name for name, commands in actual.items() if "audit" in commands]
    assert sorted(audited) == sorted(
        [
            *(reporter.name for reporter in FINDING_REPORTERS),
            PARQUET_REPORTER.name,
            json_lines.FORMAT,
        ]
    )
    assert [name for name, commands in actual.items() if "check" in commands] == [
        reporter.name for reporter in CHECK_REPORTERS
    ]
    assert [name for name, commands in actual.items() if "tune" in commands] == [
        reporter.name for reporter in TUNE_REPORTERS
    ]
    assert [name for name, commands in actual.items() if "explain" in commands] == [
        reporter.name for reporter in EXPLANATION_REPORTERS
    ]


@for_each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_the_pages_lead_somewhere(page: Path) -> None:
    """Every relative link is a file."""
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8"))
    assert not [
        link for link in links if not link.startswith("http") and not (page.parent / link).exists()
    ]


MOST_WORDS: Final = 60_000


def test_the_site_is_short() -> None:
    """Without blocks of code and the targets of links. Measurements are below ``docs/evidence``."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = re.findall(r"^ +- .+: (\S+\.md)$", navigation, re.MULTILINE)
    texts = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in names]
    code = re.compile(r"^ *```.*?^ *```$|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
    words = sum(len(code.sub("", text).split()) for text in texts)
    assert MOST_WORDS // 2 < words <= MOST_WORDS


def test_bounds_have_reasons() -> None:
    """Each bound in ``limits.py`` has sentences that say why it is so large."""
    assert len(limits.LIMITS) > 5
    assert not [
        name
        for name, limit in limits.LIMITS.items()
        if not limit.reason.endswith(".") or not limit.unit
    ]


_PATH: Final = re.compile(r"`((?:[\w.{},<>*-]+/)+[\w.{},<>*-]*)`")
_PLACEHOLDER: Final = re.compile(r"<\w+>|NAME|\*+")
_NOT_IN_THE_REPOSITORY: Final = ("build/", "site/")


def _expanded(path: str) -> list[str]:
    """Return the paths that one with ``{a,b}`` stands for; a placeholder stands for any name."""
    path = _PLACEHOLDER.sub("*", path)
    if (choice := re.search(r"\{([\w,]+)\}", path)) is None:
        return [path]
    return [
        expanded
        for name in choice[1].split(",")
        for expanded in _expanded(f"{path[: choice.start()]}{name}{path[choice.end() :]}")
    ]


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_named_for_developers_exists(page: str) -> None:
    """Below the repository, the package or the tests."""
    named = {
        path
        for text in _PATH.findall((ROOT / page).read_text(encoding="utf-8"))
        for path in _expanded(text)
        if not path.startswith(_NOT_IN_THE_REPOSITORY)
    }
    assert named
    assert not {
        path
        for path in named
        if not any(
            any(place.glob(path.rstrip("/")))
            for place in (ROOT, ROOT / "policytool", ROOT / "tests")
        )
    }
