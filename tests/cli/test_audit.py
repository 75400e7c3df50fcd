"""``policytool audit`` at the command line: which findings count, their sources, and exit codes."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import h5py
import pytest
from msgspec.structs import replace

import policytool
from policytool.rules import Needs
from policytool.support.errors import ModelFileError, UsageError
from tests.conftest import MIXED_SAVEDMODEL, Ended, run
from tests.helpers import stand_in_rules
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules import AuditOptions, RuleInput
    from policytool.rules.base import Finding

OLD: Final = FIXTURES / "tf2.3/exp_mf16_fixed128.h5"
CURRENT: Final = FIXTURES / "keras3.15/default_float32.h5"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory with ``old/a.h5`` and ``b.h5``, which have findings of PT101."""
    stand_in_rules.use(
        monkeypatch, stand_in_rules.REAL, stand_in_rules.NOTE, stand_in_rules.TARGETED
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    shutil.copy(OLD, tmp_path / "old/a.h5")
    shutil.copy(OLD, tmp_path / "b.h5")
    return tmp_path


def audit(*arguments: str | Path) -> Ended:
    """Audit with JSON on stdout."""
    return run("audit", "--format", "json", *arguments)


def counted(*arguments: str | Path) -> dict[str, list[str]]:
    """Return the rules of the findings that count, by model."""
    return {
        model["path"]: [finding["rule"] for finding in model["findings"]]
        for model in audit(*arguments).json["models"]
    }


def passed(*arguments: str | Path) -> dict[str, list[tuple[str, str]]]:
    """Return the rules of suppressed findings with the reason for the suppression, by model."""
    return {
        model["path"]: [
            (suppressed_finding["rule"], suppressed_finding["by"])
            for suppressed_finding in model["suppressed"]
        ]
        for model in audit(*arguments).json["models"]
    }


def settings(text: str) -> None:
    """Write the settings file of the working directory."""
    Path("policytool.toml").write_text(text, encoding="utf-8")


# Which rules are asked


def test_rules_that_need_an_option_run_only_with_the_option() -> None:
    """Rules that need an option, such as a target, run only if the option is set."""
    assert counted() == {"b.h5": ["PT101", "PT301"], "old/a.h5": ["PT101", "PT301"]}
    assert counted("--target", "keras3", "b.h5") == {"b.h5": ["PT101", "PT301", "PT501"]}


def test_rules_are_selected_and_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options, variables and settings select rules, in this order of precedence."""
    assert counted("--select", "PT1", "b.h5") == {"b.h5": ["PT101"]}
    assert counted("--ignore", "experimental-policy", "b.h5") == {"b.h5": ["PT301"]}
    settings('select = ["PT3"]\n')
    assert counted("b.h5") == {"b.h5": ["PT301"]}
    monkeypatch.setenv("POLICYTOOL_SELECT", "PT1,PT5 PT301")
    assert counted("b.h5") == {"b.h5": ["PT101", "PT301"]}
    assert counted("--select", "ALL", "--ignore", "PT1", "--ignore", "PT3", "b.h5") == {"b.h5": []}


def test_an_unknown_rule_is_wrong_usage() -> None:
    """An unknown rule is a usage error on the command line, in variables and in settings."""
    settings('[per-file-ignores]\n"*" = ["PT102"]\n')
    for arguments in (
        ("--select", "PT102"),
        ("--ignore", "PT102"),
        (),
    ):
        ended = run(
            "audit", "--config", "policytool.toml" if not arguments else "/dev/null", *arguments
        )
        assert (ended.code, ended.out) == (2, "")
        assert "Did you mean 'PT101'?" in ended.err


def test_selected_rule_that_cannot_run_is_reported() -> None:
    assert "PT501 was skipped: it needs --target" in audit("--select", "PT501", "b.h5").err
    assert audit("b.h5").err == ""
    assert audit("--select", "PT501", "--quiet", "b.h5").err == ""
    assert audit("--select", "PT501", "--target", "keras3", "b.h5").err == ""


# What is let pass


def test_rules_are_ignored_by_file() -> None:
    """Rules are ignored per file with a table of globs or a list, relative to the settings file."""
    only_old = {
        "b.h5": [],
        "old/a.h5": [("PT101", "per-file-ignores"), ("PT301", "per-file-ignores")],
    }
    settings('[per-file-ignores]\n"old/**" = ["PT1", "mixed-at-all"]\n')
    assert passed() == only_old
    settings('per-file-ignores = ["old/**:PT1,PT3"]\n')
    assert passed() == only_old


def test_patterns_are_relative_to_the_settings_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns are relative to the settings file, from a subdirectory and with ``--config``."""
    settings(
        '[[suppress]]\nrules = ["PT1"]\npath = "old/*.h5"\nreason = '
        '"r"\n[per-file-ignores]\n"old/*.h5" = "PT3"\n'
    )
    monkeypatch.chdir("old")
    assert passed("a.h5") == {"a.h5": [("PT101", "suppression"), ("PT301", "per-file-ignores")]}
    assert passed("--config", "../policytool.toml", "a.h5") == {
        "a.h5": [("PT101", "suppression"), ("PT301", "per-file-ignores")]
    }


def test_a_suppression_has_a_reason_and_a_last_day() -> None:
    """A suppression has a reason and an expiry date; from that date on, a warning names it."""
    today = datetime.now(tz=UTC).astimezone().date()
    for expires, holds in ((today + timedelta(days=2), True), (today - timedelta(days=2), False)):
        settings(
            '[[suppress]]\nrules = ["experimental-policy"]\npath = "b.h5"\nlayer = '
            f'"mlp/dense_."\nreason = "waiting for 2.0"\nexpires = {expires}\n'
        )
        ended = audit("b.h5")
        assert bool(ended.json["models"][0]["suppressed"]) is holds
        assert ended.code == (0 if holds else 1)
        assert ended.err.count(
            f"The suppression of experimental-policy of mlp/dense_. in b.h5 expired on {expires}"
        ) == (not holds)
        if holds:
            assert ended.json["models"][0]["suppressed"][0]["reason"] == "waiting for 2.0"


def test_verbose_output_reports_suppressions_without_a_match() -> None:
    """A suppression without matching findings is reported with ``-v`` if it has not expired."""
    settings('[[suppress]]\nrules = ["PT101"]\npath = "gone.h5"\nreason = "r"\n')
    assert "The suppression of PT101 in gone.h5 matches no finding (r)" in audit("-v").err
    assert "matched nothing" not in audit().err


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("rules = ['PT101']", "has no reason"),
        ("rules = ['PT101']\nreason = ' '", "has no reason"),
        ("reason = 'r'", "has no rules"),
        ("rules = []\nreason = 'r'", "is empty"),
        ("rules = 5\nreason = 'r'", "must be a list of strings"),
        ("rules = ['PT9']\nreason = 'r'", "Did you mean 'PT"),
        (
            "rules = ['PT1']\nreason = 'r'\nfile = 'a'",
            "has the unknown key 'file'",
        ),
        ("rules = ['PT1']\nreason = 'r'\npath = 5", "has an invalid path"),
        ("rules = ['PT1']\nreason = 'r'\npath = ''", "has an invalid path"),
        ("rules = ['PT1']\nreason = 'r'\nlayer = ''", "has an invalid layer: ''"),
        (
            "rules = ['PT1']\nreason = 'r'\nlayer = '('",
            "has an invalid layer: '(' is not a valid regular expression: ",
        ),
        ("rules = ['PT1']\nreason = 'r'\nexpires = '2030-01-01'", "an invalid expiry date"),
        (
            "rules = ['PT1']\nreason = 'r'\nexpires = 2030-01-01T10:00:00",
            "an invalid expiry date",
        ),
    ],
)
def test_invalid_suppression_gives_a_one_line_error(entry: str, words: str) -> None:
    settings(f"[[suppress]]\nrules = ['ALL']\nreason = 'r'\n[[suppress]]\n{entry}\n")
    ended = run("audit")
    assert (ended.code, ended.out) == (2, "")
    assert "policytool.toml [[suppress]] 2" in ended.err
    assert words in ended.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("suppress = 'PT101'", "must be an array of tables"),
        ("suppress = ['PT101']", "is not a table"),
        ("per-file-ignores = 5", "must be a list of strings"),
        ("per-file-ignores = ['PT101']", "does not have the form GLOB:RULES"),
        ("[per-file-ignores]\na = 5", "must be a list of strings"),
        ("baseline = 5", "must be a file name"),
        ("target = [5]", "must be a string, number or boolean"),
    ],
)
def test_invalid_settings_of_audit_give_a_one_line_error(text: str, words: str) -> None:
    """Invalid settings of ``audit`` are a one-line error, as for other keys."""
    settings(text)
    ended = run("audit")
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


def test_settings_of_audit_serve_other_commands_nothing() -> None:
    """Several targets in the settings of ``audit`` do not affect ``migrate``."""
    settings(
        'select = ["PT1"]\nbaseline = "b.json"\ntarget = ["keras3", '
        '"tf2.15"]\n[[suppress]]\nreason = "r"\nrules = ["PT1"]\n'
    )
    shown = run("migrate", "--show-settings")
    assert shown.code == 0, shown.err
    assert 'target = ""' in shown.out
    settings('target = ["tf2.15"]\n')
    assert 'target = "tf2.15"' in run("migrate", "--show-settings").out


def test_settings_are_shown_and_read_back() -> None:
    """Settings are shown with their source, as TOML that can be read again."""
    settings(
        'select = ["PT1"]\ntarget = "keras3"\n[per-file-ignores]\n"b*" = ["PT3", "PT1"]\n'
        '[[suppress]]\nrules = ["PT1"]\nreason = "a \\"b\\""\nexpires = 2999-12-31\n'
    )
    shown = run("audit", "--show-settings")
    assert shown.code == 0, shown.err
    lines = [line for line in shown.out.splitlines() if "policytool.toml" in line]
    assert [line.partition(" = ")[0] for line in lines] == [
        "select",
        "target",
        "per-file-ignores",
        "suppress",
    ]
    Path("other.toml").write_text("\n".join(lines), encoding="utf-8")
    again = run("audit", "--config", "other.toml", "--show-settings").out
    assert [line.partition("  # ")[0] for line in again.splitlines() if "other.toml" in line] == [
        line.partition("  # ")[0] for line in lines
    ]


def test_suppressed_findings_are_listed_on_request() -> None:
    """Tables list suppressed findings on request; machine-readable formats always do."""
    settings('[[suppress]]\nrules = ["PT1"]\nreason = "waiting for 2.0"\n')
    assert "waiting" not in run("audit").out
    assert "waiting for 2.0" in run("audit", "-v").out
    assert run("audit", "-v", "--format", "markdown=out.md").code == 0
    assert "waiting for 2.0" in Path("out.md").read_text(encoding="utf-8")
    assert run("audit", "--format", "markdown=out.md").code == 0
    assert "waiting" not in Path("out.md").read_text(encoding="utf-8")


# Baselines


def test_baseline_suppresses_its_findings_and_not_new_ones() -> None:
    ended = audit("--write-baseline", "known.json", "b.h5")
    assert ended.code == 0
    assert [
        suppressed_finding["by"] for suppressed_finding in ended.json["models"][0]["suppressed"]
    ] == ["baseline", "baseline"]
    assert audit("--baseline", "known.json", "b.h5").code == 0
    assert counted("--baseline", "known.json") == {"b.h5": [], "old/a.h5": ["PT101", "PT301"]}
    text = Path("known.json").read_text(encoding="utf-8")
    assert audit("--baseline", "known.json", "--write-baseline", "known.json", "b.h5").code == 0
    assert Path("known.json").read_text(encoding="utf-8") == text


def test_a_baseline_is_found_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in a baseline are relative to it; the path in settings is relative to the settings."""
    Path("ci").mkdir()
    settings('baseline = "ci/known.json"\n')
    Path("none.toml").touch()
    assert run("audit", "--config", "none.toml", "--write-baseline", "ci/known.json").code == 0
    assert {
        json.loads(line.rstrip(","))["path"]
        for line in Path("ci/known.json").read_text().splitlines()
        if line.startswith('{"')
    } == {
        "../b.h5",
        "../old/a.h5",
    }
    monkeypatch.chdir("old")
    assert counted("a.h5") == {"a.h5": []}


def test_a_baseline_remembers_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry points of findings are stored in a baseline by the path that reports show."""
    shutil.copytree(MIXED_SAVEDMODEL, "model")
    assert run("audit", "--write-baseline", "known.json", "model").code == 0
    seen: list[AuditOptions] = []

    def check(_case: RuleInput, question: AuditOptions) -> Iterator[Finding]:
        seen.append(question)
        yield from ()

    stand_in_rules.use(
        monkeypatch,
        replace(stand_in_rules.rule("PT402", "changed", needs=Needs.BASELINE), check=check),
    )
    assert run("audit", "model").code == 0
    assert not seen
    monkeypatch.chdir("old")
    assert run("audit", "--baseline", "../known.json", "../model").code == 0
    (question,) = seen
    ((path, (signature,)),) = question.signatures.items()
    (expected,) = policytool.inspect("../model").signatures
    assert path == policytool.inspect("../model").path
    assert signature == replace(expected, ops=(), input_shapes={}, output_shapes={})


def test_suppressed_findings_are_not_written() -> None:
    """A baseline omits suppressed findings, because the suppression may expire."""
    settings('[[suppress]]\nrules = ["PT1"]\nreason = "r"\n')
    assert run("audit", "--write-baseline", "known.json", "b.h5").code == 0
    assert "PT101" not in Path("known.json").read_text(encoding="utf-8")
    assert "PT301" in Path("known.json").read_text(encoding="utf-8")


def test_baseline_recognizes_a_renamed_file_and_counts_missing_findings() -> None:
    assert run("audit", "--write-baseline", "known.json").code == 0
    Path("b.h5").rename("c.h5")
    assert counted("--baseline", "known.json") == {"c.h5": [], "old/a.h5": []}
    Path("c.h5").unlink()
    ended = audit("--baseline", "known.json", "-v")
    assert "2 findings in the baseline no longer occur" in ended.err
    assert audit("--baseline", "known.json").err.count("baseline") == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "is not valid JSON"),
        (b"\xff", "is not UTF-8 text"),
        (b'{"version": 9, "findings": []}', "is a version 9 baseline"),
    ],
)
def test_a_baseline_that_cannot_be_read_ends_the_run(text: bytes, words: str) -> None:
    """An unreadable baseline is a one-line error with exit code 3 and without a report."""
    Path("known.json").write_bytes(text)
    ended = run("audit", "--baseline", "known.json")
    assert (ended.code, ended.out, ended.err.count("\n")) == (3, "", 1)
    assert re.match(rf"error: --baseline known.json {words}", ended.err)
    missing = run("audit", "--baseline", "gone.json")
    assert missing.code == 3
    assert "does not exist. Create it with --write-baseline gone.json" in missing.err


def test_a_baseline_never_replaces_a_model_or_a_report() -> None:
    before = Path("b.h5").read_bytes()
    assert run("audit", "--write-baseline", "b.h5").code == 2
    assert run("audit", "--write-baseline", "gone/known.json").code == 3
    assert run("audit", "--write-baseline", "old").code == 3
    assert run("audit", "--write-baseline", "x.json", "--format", "json=x.json").code == 2
    Path("known.json").write_text('{"version": 1, "findings": []}', encoding="utf-8")
    assert run("audit", "--baseline", "known.json", "--format", "json=known.json").code == 2
    assert Path("b.h5").read_bytes() == before
    assert not Path("x.json").exists()


# How it ends


@pytest.mark.parametrize("form", ["table", "json", "markdown", "sarif", "github", "junit"])
def test_the_format_never_changes_the_code(form: str) -> None:
    """The exit code does not depend on the format, and several causes have a documented order."""
    shutil.copy(CURRENT, "clean.h5")
    Path("empty").mkdir()
    Path("broken.h5").write_bytes(b"")

    def code(*arguments: str) -> int:
        return run("audit", "--format", form, *arguments).code

    assert code("clean.h5") == 0
    assert code("clean.h5", "b.h5") == 1
    assert code("--fail-on", "error", "b.h5") == 0
    assert code("--fail-on", "error", "--target", "keras3", "b.h5") == 1
    assert code("--select", "PT3", "b.h5") == 0
    assert code("--select", "PT3", "--fail-on", "note", "b.h5") == 1
    assert code("--fail-on", "never", "b.h5") == 0
    assert code("--fail-on", "never", "broken.h5", "b.h5") == 3
    assert code("broken.h5", "b.h5") == 3
    assert code("--target", "keras9", "broken.h5") == 2
    assert code("empty") == 4
    assert code("--skip-unrecognized", "empty") == 0
    assert code("--skip-unrecognized", "gone.h5") == 3


def test_skip_unrecognized_has_a_variable_and_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable or a setting makes a call without models exit with code 0 and a note."""
    Path("empty").mkdir()
    monkeypatch.setenv("POLICYTOOL_SKIP_UNRECOGNIZED", "1")
    ended = run("audit", "empty")
    assert (ended.code, ended.err) == (0, "note: No model found.\n")
    monkeypatch.delenv("POLICYTOOL_SKIP_UNRECOGNIZED")
    settings("skip-unrecognized = true\n")
    assert run("audit", "--config", "policytool.toml", "empty").code == 0


# Named files that are not models


OTHER_DATA: Final = {
    "notes.txt": b"a note",
    "page.h5": b"<!DOCTYPE html><html></html>",
    "settings.json": b'{"compilerOptions": {}}',
    "pointer.bin": b"version https://git-lfs.github.com/spec/v1\nsize 1\n",
}


@pytest.fixture
def others() -> list[str]:
    """Return the names of files that are not models, including HDF5 with other data."""
    for name, data in OTHER_DATA.items():
        Path(name).write_bytes(data)
    with h5py.File("measurements.h5", "w") as file:
        file["temperature"] = [1.0, 2.0]
    return [*OTHER_DATA, "measurements.h5"]


@THOROUGH
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_skip_unrecognized_skips_named_files_that_are_not_models(
    others: list[str], jobs: str
) -> None:
    assert run("audit", *others, "b.h5").code == 3
    ended = audit("--skip-unrecognized", "--jobs", jobs, *others, "b.h5")
    assert (ended.code, ended.err) == (1, "note: Skipped 5 files that are not models.\n")
    assert [model["path"] for model in ended.json["models"]] == ["b.h5"]
    assert (ended.json["summary"]["skipped"], ended.json["failures"]) == (5, [])


def test_run_that_skips_all_files_reports_that_no_model_exists(others: list[str]) -> None:
    """If all files are skipped, the exit code is 0, and notes report the missing model."""
    ended = run("audit", "--skip-unrecognized", *others)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "note: Skipped 5 files that are not models.\nnote: No model found.\n"


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("damaged.h5", OLD.read_bytes()[:5000], "truncated"),
        ("damaged.keras", b"PK\x03\x04damaged", "truncated"),
        ("empty.h5", b"", "empty"),
        ("pointer.keras", b"version https://git-lfs.github.com/spec/v1\nsize 1\n", "lfs-pointer"),
        ("exported/saved_model.pb", b"\xff\xff", "truncated"),
        ("exported/saved_model.pb", b"", "empty"),
        ("exported/keras_metadata.pb", b"", "empty"),
    ],
)
def test_skip_unrecognized_skips_no_damaged_model(name: str, data: bytes, code: str) -> None:
    """``--skip-unrecognized`` does not skip damaged models, placeholders or missing files."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(data)
    ended = audit("--skip-unrecognized", name, "gone.h5")
    assert ended.code == 3
    assert [failure["code"] for failure in ended.json["failures"]] == [code, "not-found"]


def test_skip_unrecognized_keeps_named_files_from_being_overwritten() -> None:
    """A report cannot replace an input file, even if the input is skipped."""
    Path("data.h5").write_bytes(b"other data")
    ended = run("audit", "--skip-unrecognized", "data.h5", "--format", "json=data.h5")
    assert ended.code == 2
    assert Path("data.h5").read_bytes() == b"other data"


@pytest.mark.parametrize("value", ["maybe", "2", "\x1b[31m"])
def test_skip_unrecognized_is_a_boolean(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is not a boolean is a usage error in each source of options."""
    assert run("audit", f"--skip-unrecognized={value}", "b.h5").code == 2
    Path("named.toml").write_text(f"skip-unrecognized = {json.dumps(value)}\n", encoding="utf-8")
    assert run("audit", "--config", "named.toml", "b.h5").code == 2
    monkeypatch.setenv("POLICYTOOL_SKIP_UNRECOGNIZED", value)
    ended = run("audit", "b.h5")
    assert (ended.code, ended.out) == (2, "")
    assert "\x1b" not in ended.err


# In Python


def test_audit_in_python() -> None:
    """``policytool.audit`` returns the command's findings without settings and suppressions."""
    settings('select = ["PT3"]\n[[suppress]]\nrules = ["PT1"]\nreason = "r"\n')
    result = policytool.audit(Path("b.h5"))
    assert [finding.rule for finding in result.findings] == ["PT101", "PT301"]
    assert not result.to_dict()["models"][0]["suppressed"]
    assert [
        finding.rule
        for finding in policytool.audit(
            "b.h5", target="keras3", select=["PT5", "PT1"], ignore=["PT101"]
        ).findings
    ] == ["PT501"]
    assert policytool.audit("b.h5", ignore=["ALL"], device="gpu", weights=True).findings == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"select": ["PT9"]}, "select: unknown rule 'PT9'"),
        ({"ignore": "PT1"}, "ignore is the string 'PT1'; expected a list"),
        ({"target": ["keras3", "keras9"]}, "unknown target"),
        ({"device": "tpu"}, "unknown device 'tpu'; expected cpu or gpu"),
    ],
)
def test_wrong_arguments_in_python(arguments: dict[str, object], words: str) -> None:
    """An invalid argument of ``policytool.audit`` is a one-line error."""
    with pytest.raises(UsageError, match=words):
        policytool.audit("b.h5", **arguments)  # type: ignore[arg-type]  # that is what is tried


def test_audit_function_rejects_files_and_directories_that_are_not_models() -> None:
    """A directory with several models is an error; one with a single model stands for it."""
    assert policytool.audit("old").findings
    shutil.copy(OLD, "old/b.h5")
    with pytest.raises(ModelFileError, match="specify one model"):
        policytool.audit("old")
