"""``--format FORMAT=FILE``: where further reports go, and what they never replace."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from policytool.cli import options
from policytool.formats import format_detection
from policytool.reports import View
from policytool.reports.differences import DIFFERENCE_REPORTERS
from policytool.reports.inspection import REPORTERS
from policytool.reports.plans import PLAN_REPORTERS
from policytool.reports.reporter import Reporter
from policytool.support.files.atomic import Draft
from policytool.support.processes import interrupts
from tests.conftest import FIXED_SCALE_H5, UNPACKED, run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.small_models import dense, h5_model, keras_zip, sequential, small_saved_model

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which holds ``a.h5``."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXED_SCALE_H5, tmp_path / "a.h5")
    return tmp_path


def refused(*arguments: str) -> tuple[int, str]:
    """Return the code and the words of a call that ends before anything is done."""
    before = {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()}
    ended = run(*arguments)
    assert ended.out == ""
    assert {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()} == before
    return ended.code, re.sub(r"\s+", " ", ended.err)


# What is written


@pytest.mark.parametrize("form", [reporter.name for reporter in REPORTERS])
def test_report_file_equals_stdout_on_a_pipe(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has 120 columns and no colour, regardless of stdout."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    ended = run("inspect", "--variables", "--format", f"{form}=report", "a.h5")
    assert (ended.code, ended.err) == (0, "")
    monkeypatch.delenv("FORCE_COLOR")
    assert (
        Path("report").read_bytes().decode()
        == run("inspect", "--variables", "--format", form, "a.h5").out
    )


@pytest.mark.parametrize("form", [reporter.name for reporter in PLAN_REPORTERS])
def test_migrate_writes_reports_to_files(form: str) -> None:
    """The test covers each format, including the diff."""
    assert run("migrate", "--preview", "--format", f"{form}=report", "a.h5").code == 1
    shown = run("migrate", "--preview", "--format", form, "a.h5").out
    assert Path("report").read_bytes().decode() == shown


@pytest.mark.parametrize("form", [reporter.name for reporter in DIFFERENCE_REPORTERS])
def test_diff_has_reports_in_files_too(form: str) -> None:
    """Each of its formats, with what --all adds, and the exit code stays what was found."""
    shutil.copy(FIXED_SCALE_H5.with_name("exp_mf16_dynamic_custom.h5"), "b.h5")
    ended = run("diff", "a.h5", "b.h5", "--all", "--format", f"{form}=report")
    assert (ended.code, ended.err) == (1, "")
    assert (
        Path("report").read_bytes().decode()
        == run("diff", "a.h5", "b.h5", "--all", "--format", form).out
    )
    assert run("diff", "a.h5", "a.h5", "--format", f"{form}=report").code == 0


def test_a_diff_that_fails_is_reported() -> None:
    """JSON has the reason; a report that cannot be written makes the code 3."""
    ended = run("diff", "a.h5", "gone.h5", "--format", "json=report.json")
    assert ended.code == 3
    assert (
        json.loads(Path("report.json").read_text(encoding="utf-8"))["failures"][0]["code"]
        == "not-found"
    )
    Path("read.only").mkdir()
    assert refused("diff", "a.h5", "a.h5", "--format", "json=read.only")[0] == 3


def test_diff_replaces_neither_model_with_a_report() -> None:
    """The notation of the path has no effect."""
    shutil.copy("a.h5", "b.h5")
    for name in ("a.h5", "./b.h5"):
        code, result = refused("diff", "a.h5", "b.h5", "--format", f"json={name}")
        assert code == 2
        assert "would replace a file that this command reads or writes" in result


def test_several_reports_leave_stdout_to_format() -> None:
    """Each file has its own format, and stdout the one that is asked for."""
    ended = run(
        "inspect",
        "--format",
        "table",
        "--format",
        "json=a.json",
        "--format",
        "csv=deep.csv",
        "a.h5",
    )
    assert "├─ dense_a" in ended.out
    assert json.loads(Path("a.json").read_text(encoding="utf-8"))["models"][0]["path"] == "a.h5"
    assert Path("deep.csv").read_text(encoding="utf-8").startswith("model.path,")


@pytest.mark.parametrize("place", ["site/", "site", "site/deeper/"])
def test_html_of_a_directory_is_an_index_and_a_page_for_each_model(place: str) -> None:
    """A directory with a slash is created; without one it has to exist."""
    shutil.copy("a.h5", "b.h5")
    if place != "site/":
        Path("site").mkdir()
    ended = run("inspect", "a.h5", "b.h5", "--format", f"html={place}", "--format", "json=r.json")
    assert (ended.code, ended.err) == (0, "")
    names = ["0001-a.h5.html", "0002-b.h5.html", "index.html"]
    assert sorted(path.name for path in Path(place).iterdir() if path.is_file()) == names
    assert all(f'href="{name}"' in Path(place, names[-1]).read_text() for name in names[:-1])


def test_html_of_a_directory_without_models_is_an_index() -> None:
    """The index contains unreadable files."""
    assert run("inspect", "gone.h5", "--format", "html=site/").code == 3
    assert [path.name for path in Path("site").iterdir()] == ["index.html"]
    assert "gone.h5" in run("audit", "gone.h5", "--format", "html").out


def test_invalid_directories_for_reports_are_rejected() -> None:
    """The directory is a model, a file, below a missing directory, or used by another report."""
    small_saved_model(Path("saved"))
    for reports, code, words in (
        (["html=saved/"], 2, "would write into a model"),
        (["html=a.h5/"], 2, "would write into a model"),
        (["html=no/where/"], 3, "no such directory"),
        (["html=site/", "html=site/"], 2, "is specified twice"),
        (["html=site/", "json=site/index.html"], 2, "is in the directory of another report"),
        (["json=site/"], 2, "is a directory"),
    ):
        options = [word for report in reports for word in ("--format", report)]
        ended, result = refused("inspect", "a.h5", *options)
        assert ended == code
        assert words in result
    Path("text").write_text("")
    assert refused("inspect", "a.h5", "--format", "html=text/")[0] == 3
    assert not Path("site").exists()


def test_settings_file_is_not_replaced_by_a_report() -> None:
    """In a directory of pages, only names of pages are in conflict with a settings file."""
    Path("s.toml").write_text("")
    assert refused("inspect", "a.h5", "--config", "s.toml", "--format", "json=s.toml")[0] == 2
    Path("site").mkdir()
    for name, code in (("index.html", 2), ("0001-a.html", 2), ("s.toml", 0)):
        shutil.copy("s.toml", Path("site", name))
        call = ("inspect", "a.h5", "--config", f"site/{name}", "--format", "html=site/")
        assert run(*call).code == code
        Path("site", name).unlink()


def test_pages_replace_no_file_outside_of_the_directory() -> None:
    """Pages replace neither a directory nor a model that appeared in the meantime."""
    Path("victim").write_text("old")
    Path("site").mkdir()
    Path("site/index.html").symlink_to("../victim")
    assert run("inspect", "a.h5", "--format", "html=site/").code == 0
    assert Path("victim").read_text() == "old"
    assert not Path("site/index.html").is_symlink()
    Path("odd/index.html").mkdir(parents=True)
    assert refused("inspect", "a.h5", "--format", "html=odd/")[0] == 3
    Path("dangling").symlink_to("nowhere")
    assert refused("inspect", "a.h5", "--format", "html=dangling/")[0] == 3
    small_saved_model(Path("saved"))
    Path("saved/variables").mkdir(exist_ok=True)
    for place in ("saved/", "saved/variables/"):
        assert refused("inspect", "a.h5", "--format", f"html={place}")[0] == 2


@pytest.mark.parametrize("report", ["json={}", "html={}", "html={}/", "html={}/x/"])
def test_too_long_name_of_a_report_is_a_failure(report: str) -> None:
    """The operating system rejects the name."""
    assert run("inspect", "a.h5", "--format", report.format("a" * 300)).code == 3


def test_report_files_are_utf8() -> None:
    """
    A Japanese name is written unchanged, and invalid text is escaped. The encoding of stdout has no
    effect.
    """
    h5_model(Path("b.h5"), sequential(dense("層一"), dense("\ud800")))
    for form in ("json", "csv", "table", "markdown"):
        assert run("inspect", "-q", "--format", f"{form}={form}", "b.h5").code == 0
        text = Path(form).read_bytes().decode()
        assert "\\ud800" in text or "&#92;ud800" in text
        assert form == "json" or "層一" in text


def test_a_plan_in_a_file_can_be_carried_out() -> None:
    """``--preview --format json=FILE`` saves what ``--plan`` reads."""
    assert run("migrate", "--preview", "--format", "json=plan.json", "a.h5").code == 1
    assert not Path("a.migrated.h5").exists()
    assert run("migrate", "--plan", "plan.json", "--format", "json=done.json").code == 0
    assert (
        json.loads(Path("done.json").read_text(encoding="utf-8"))["plans"][0]["status"] == "written"
    )


def test_report_is_written_with_every_exit_code() -> None:
    """The report is written for findings, failures and an empty directory."""
    Path("empty.h5").write_bytes(b"")
    Path("d").mkdir()
    assert run("migrate", "--preview", "--format", "json=check.json", "a.h5").code == 1
    assert run("inspect", "--format", "json=failed.json", "empty.h5").code == 3
    assert run("inspect", "--format", "json=none.json", "d").code == 4
    assert len(json.loads(Path("failed.json").read_text(encoding="utf-8"))["failures"]) == 1
    assert json.loads(Path("none.json").read_text(encoding="utf-8"))["models"] == []


def test_replaced_report_keeps_the_mode_and_the_link() -> None:
    """A later run changes only the content of the file."""
    Path("real.json").write_text("old", encoding="utf-8")
    Path("real.json").chmod(0o640)
    Path("latest.json").symlink_to("real.json")
    assert run("inspect", "--format", "json=latest.json", "a.h5").code == 0
    assert Path("latest.json").is_symlink()
    assert Path("real.json").stat().st_mode & 0o777 == 0o640
    assert json.loads(Path("real.json").read_text(encoding="utf-8"))["version"] == 1


def test_report_does_not_replace_a_model_saved_during_the_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last check comes directly before the report gets its name."""
    finish = Draft.finish

    def saving(self: Draft, like: Path | None) -> Path:
        shutil.copy(project / "a.h5", project / "report.json")
        return finish(self, like)

    monkeypatch.setattr(Draft, "finish", saving)
    ended = run("inspect", "--format", "json=report.json", "a.h5")
    assert ended.code == 3
    assert (
        ended.err == "error: --format json=report.json was not written because it would replace a "
        "model.\n"
    )
    assert (project / "report.json").read_bytes() == (project / "a.h5").read_bytes()
    assert sorted(path.name for path in project.iterdir()) == ["a.h5", "report.json"]


def test_report_in_the_inspected_directory_is_not_an_input() -> None:
    for _ in range(2):
        ended = run("inspect", "-q", "--format", "json=report.json", ".")
        assert (ended.code, ended.err) == (0, "")
    assert len(json.loads(Path("report.json").read_text(encoding="utf-8"))["models"]) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="has neither")
def test_pipes_and_devices_are_written_to_and_stay() -> None:
    """``/dev/null`` is still one afterwards, and a named pipe hands the report on."""
    assert run("inspect", "--format", "json=/dev/null", "a.h5").code == 0
    assert Path("/dev/null").is_char_device()
    os.mkfifo("pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_text(encoding="utf-8")))
    reader.start()
    assert run("inspect", "--format", "json=pipe", "a.h5").code == 0
    reader.join(timeout=30)
    assert json.loads(read[0])["version"] == 1


@THOROUGH
def test_report_is_complete_after_a_closed_pipe(project: Path) -> None:
    """Report files are written before stdout."""
    path = h5_model(
        project / "big.h5", sequential(*(dense(f"dense_{number}") for number in range(3000)))
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "policytool",
            "inspect",
            "--format",
            f"json={project / 'r.json'}",
            path,
        ],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert (
        len(json.loads(Path("r.json").read_text(encoding="utf-8"))["models"][0]["layers"]) == 3001
    )


# What is refused before anything is done


@pytest.mark.parametrize(
    ("command", "report", "words"),
    [
        (
            "inspect",
            "yaml",
            (
                "'yaml' does not have the form FORMAT, such as json, or FORMAT=FILE, such as "
                "json=report.json. FORMAT is one of table, markdown, html, csv, json"
            ),
        ),
        ("inspect", "json=", "'json=' does not have the form FORMAT"),
        ("inspect", "xml=x", "'xml=x' does not have the form FORMAT"),
        ("inspect", "diff=x", "'diff=x' does not have the form FORMAT"),
        ("inspect", "jsonl=x", "'jsonl=x' does not have the form FORMAT"),
        ("migrate", "tree=x", "FORMAT is one of table, "),
        ("inspect", "json=-", "stdout is reserved for a FORMAT without a file. Specify a file"),
        ("inspect", "json=new/", "is a directory. Specify a file in it"),
        ("inspect", "json=a.h5", "would replace a file that this command reads or writes"),
        ("migrate", "json=./a.h5", "would replace a file that this command reads or writes"),
    ],
)
def test_wrong_reports_are_wrong_usage(command: str, report: str, words: str) -> None:
    """The sentence says what is expected; nothing is read, shown or migrated."""
    code, result = refused(command, "--format", report, "a.h5")
    assert code == 2
    assert words in result


def test_stdout_has_one_report() -> None:
    """A second format without a file is wrong usage."""
    code, words = refused("inspect", "--format", "json", "--format", "csv", "a.h5")
    assert code == 2
    assert "json and csv would both go to stdout. Write one of them to a file" in words


@pytest.mark.parametrize("text", ["PT104", "'str' object has no attribute 'quantization_mode'"])
def test_explain_has_reports_in_files_too(text: str) -> None:
    ended = run("explain", text, "--format", "json=report.json")
    assert ended.code == 0
    assert ended.out == run("explain", text).out
    assert Path("report.json").read_text("utf-8") == run("explain", text, "--format", "json").out
    assert run("explain", text, "--format", "json=gone/report.json").code == 3


def test_same_report_file_twice_is_an_error() -> None:
    """The notation of the path has no effect."""
    Path("link").symlink_to("x")
    for other in ("x", "./x", "link"):
        code, result = refused("inspect", "--format", "json=x", "--format", f"csv={other}", "a.h5")
        assert code == 2
        assert "is specified twice" in result


@pytest.mark.parametrize(
    "name",
    [
        "b.keras",
        "link.keras",
        "exported",
        "exported/saved_model.pb",
        "link.pb",
        "exported/variables/x",
        "unpacked/config.json",
        "model.json",
        "cut.h5",
        "pointer.h5",
        "web/group1-shard1of1.bin",
    ],
)
def test_no_model_and_no_part_of_one_is_replaced(name: str) -> None:
    """Models that this call does not name are safe as well, whole or not."""
    keras_zip(Path("b.keras"))
    Path("link.keras").symlink_to("b.keras")
    small_saved_model(Path("exported"))
    Path("link.pb").symlink_to("exported/saved_model.pb")
    (Path("exported") / "variables").mkdir()
    shutil.copytree(UNPACKED, "unpacked")
    shutil.copytree(ROOT / "fixtures/tfjs4.22/sequential", "web")
    Path("model.json").write_text(
        json.dumps({**sequential(), "keras_version": "2.4.0"}), encoding="utf-8"
    )
    Path("cut.h5").write_bytes(FIXED_SCALE_H5.read_bytes()[:3000])
    Path("pointer.h5").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", encoding="utf-8"
    )
    code, result = refused("migrate", "--format", f"json={name}", "a.h5")
    assert code == 2
    assert "would replace a model or part of a model. Specify another file" in result


def test_report_replaces_neither_the_plan_nor_the_output() -> None:
    """A report cannot replace a file that a migration reads or writes."""
    assert run("migrate", "--preview", "--format", "json=plan.json", "a.h5").code == 1
    assert refused("migrate", "--plan", "plan.json", "--format", "json=plan.json")[0] == 2
    assert refused("migrate", "a.h5", "-o", "b.h5", "--format", "json=b.h5")[0] == 2


def test_an_output_that_only_the_plan_knows_is_not_replaced() -> None:
    """The migrated model stays, and the sentence says that there is no report."""
    ended = run("migrate", "a.h5", "--format", "json=a.migrated.h5")
    assert ended.code == 3
    assert (
        "--format json=a.migrated.h5 was not written because it would replace a model" in ended.err
    )
    assert run("inspect", "a.migrated.h5").code == 0


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ("json=no/x", "no such directory. Create no first"),
        ("json=d", "is a directory. Specify a file in it"),
    ],
)
def test_report_that_cannot_be_created_is_a_failure(report: str, words: str) -> None:
    """The failure comes before a model is migrated."""
    Path("d").mkdir()
    code, result = refused("migrate", "--format", report, "a.h5")
    assert code == 3
    assert words in result


@THOROUGH
def test_stdout_is_not_replaced(project: Path) -> None:
    """A file that stdout was redirected to is --format's."""
    with (project / "out.txt").open("wb") as out:
        command = [
            sys.executable,
            "-m",
            "policytool",
            "inspect",
            "--format",
            f"json={project / 'out.txt'}",
            str(project / "a.h5"),
        ]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert b"stdout is reserved for a FORMAT without a file" in done.stderr


# What fails


@pytest.mark.parametrize("place", ["write", "publish"])
def test_a_full_disk_leaves_the_old_report_and_the_others(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other reports are complete, and the error names the file."""
    Path("old.json").write_text("old", encoding="utf-8")
    publish, open_file = Draft.publish, Path.open
    done: list[str] = []

    def full(original: Any) -> Any:
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            done.append(place)
            if len(done) == 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return original(self, *arguments, **named)

        return call

    if place == "write":
        monkeypatch.setattr(Path, "open", full(open_file))
    else:
        monkeypatch.setattr(Draft, "publish", full(publish))
    ended = run("inspect", "--format", "json=old.json", "--format", "csv=new.csv", "a.h5")
    assert ended.code == 3
    assert ended.err == (
        "error: --format json=old.json could not be written: No space left on device.\n"
    )
    assert ended.out == run("inspect", "a.h5").out
    assert Path("old.json").read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["a.h5", "new.csv", "old.json"]


@THOROUGH
def test_a_disk_that_fills_up_in_the_middle_keeps_the_old_report() -> None:
    """The part that was written is removed."""
    h5_model(Path("large.h5"), sequential(*(dense(f"dense_{number}") for number in range(99))))
    Path("old.json").write_text("old", encoding="utf-8")
    command = f"ulimit -f 16; exec {sys.executable} -m policytool inspect --format json=old.json"
    done = subprocess.run(
        ["bash", "-c", f"{command} large.h5"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr == "error: --format json=old.json could not be written: File too large.\n"
    assert Path("old.json").read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["a.h5", "large.h5", "old.json"]


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_report_is_replaced_without_reading_the_old_one(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of thousands of models would need too much memory."""
    call = ("audit", "--fail-on", "never", "--format", f"{form}=report", "a.h5")
    run(*call)
    before = Path("report").read_bytes()
    read: list[Path] = []
    document = format_detection.document

    def noted(path: Any, shown: str) -> Any:
        read.append(path)
        return document(path, shown)

    monkeypatch.setattr(format_detection, "document", noted)
    assert run(*call).code == 0
    assert Path("report").read_bytes() == before
    assert {path.name for path in read} == {"a.h5"}


# Settings files


@pytest.mark.parametrize("text", ['format = ["json=out.json"]', 'format = "json=out.json"'])
def test_settings_file_sets_reports(text: str) -> None:
    """The value is a list or a text, and an option on the command line replaces the value."""
    Path("policytool.toml").write_text(text + "\n", encoding="utf-8")
    config = ("--config", "policytool.toml")
    assert run("inspect", *config, "a.h5").code == 0
    assert Path("out.json").exists()
    assert 'format = ["json=out.json"]' in run("inspect", *config, "--show-settings").out
    Path("out.json").unlink()
    assert run("inspect", *config, "--format", "csv=out.csv", "a.h5").code == 0
    assert not Path("out.json").exists()


def test_variable_sets_several_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The separator is that of search paths, and an option on the command line replaces the value.
    """
    monkeypatch.setenv("POLICYTOOL_FORMAT", os.pathsep.join(("json", "csv=rows.csv")))
    assert run("inspect", "a.h5").json["models"]
    assert Path("rows.csv").read_text(encoding="utf-8").startswith("model.path,")
    Path("rows.csv").unlink()
    assert run("inspect", "--format", "csv", "a.h5").out.startswith("model.path,")
    assert not Path("rows.csv").exists()


@pytest.mark.parametrize("place", ["a.h5", "other.h5", "inputs.npz"])
def test_recordings_replace_neither_a_model_nor_an_input(place: str) -> None:
    """The usage error comes before TensorFlow starts, and no file changes."""
    shutil.copy(FIXED_SCALE_H5, "other.h5")
    Path("inputs.npz").write_bytes(b"inputs")
    code, words = refused("check", "a.h5", "--inputs", "inputs.npz", "--record", place)
    assert code == 2
    assert "--record would replace" in words


def test_a_signal_waits_for_the_end_of_a_printed_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """JSON of many models is printed in pieces; a part of it would be no JSON."""

    def pieces(_found: object, _view: View) -> Iterator[str]:
        yield "["
        signal.raise_signal(signal.SIGINT)
        yield "]"

    reporter: Reporter[object] = Reporter(name="json", render=lambda *_: "", pieces=pieces)
    before = signal.signal(signal.SIGINT, interrupts.interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            options.print_report((reporter,), "json", None, View())
    finally:
        interrupts.resume()
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().out == "[]"
