"""The checks before a release is published, and its workflow."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import urllib.error
from email.message import Message
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from policytool.support import project
from policytool.support.project import VERSION
from tests.helpers.paths import ROOT
from tests.helpers.scripts import run_captured
from tests.packaging import release

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

CHANGELOG: Final = """\
# Changelog

## [Unreleased]

- One.

## [1.1.0] - 2026-01-02

### Added

- Two.

## [1.0.0] - 2026-01-01

[1.1.0]: https://code.example/1.1.0
"""
ADDRESS: Final = "https://code.example/team/policytool"
WORKFLOWS: Final = {
    name: (ROOT / ".github/workflows" / f"{name}.yml").read_text(encoding="utf-8")
    for name in ("ci", "release")
}
RELEASE: Final[Any] = yaml.safe_load(WORKFLOWS["release"])


def test_a_section_ends_at_the_next_heading_or_link() -> None:
    """Sections of other versions are not part of it."""
    assert release.section(CHANGELOG, "Unreleased") == "- One."
    assert release.section(CHANGELOG, "1.1.0") == "### Added\n\n- Two."
    assert not release.section(CHANGELOG, "1.0.0")
    assert not release.section(CHANGELOG, "1.1")


@pytest.mark.parametrize(
    ("tag", "version", "problems"),
    [
        ("v1.1.0", "1.1.0", []),
        ("1.1.0", "1.1.0", ["The tag is 1.1.0"]),
        ("v1.1.0", "1.2.0", ["The tag is v1.1.0", "CHANGELOG.md has no section for 1.2.0"]),
        ("v1.0.0", "1.0.0", ["CHANGELOG.md has no section for 1.0.0"]),
        ("", "1.1.0", []),
        ("", "1.2.0", []),
    ],
)
def test_tag_matches_version_and_changelog(tag: str, version: str, problems: list[str]) -> None:
    """A dry run has no tag; its changes may be unreleased."""
    actual = list(release.tag_problems(tag, version, CHANGELOG))
    assert len(actual) == len(problems)
    assert all(text.startswith(start) for text, start in zip(actual, problems, strict=True))


def test_a_dry_run_needs_a_changelog_too() -> None:
    """An empty unreleased section describes nothing."""
    assert list(release.tag_problems("", "2.0.0", "## [Unreleased]\n\n## [1.0.0]\n\n- One.\n"))


def test_a_fork_publishes_nothing() -> None:
    """The links of the package lead to the repository of the release."""
    assert not list(release.repository_problems("v1.0.0", ADDRESS, ADDRESS))
    assert list(release.repository_problems("v1.0.0", f"{ADDRESS}-fork", ADDRESS))
    assert not list(release.repository_problems("", f"{ADDRESS}-fork", ADDRESS))


@pytest.mark.parametrize(
    ("info", "ours"),
    [
        ({"project_urls": {"Source": ADDRESS}}, True),
        ({"project_urls": {"Issues": f"{ADDRESS}/issues"}}, True),
        ({"project_urls": None, "home_page": ADDRESS}, True),
        ({"project_urls": {"Source": f"{ADDRESS}-other"}}, False),
        ({"project_urls": {}, "home_page": ""}, False),
        ({}, False),
    ],
)
def test_the_name_belongs_to_this_project(info: dict[str, Any], ours: bool) -> None:  # noqa: FBT001
    """A link of the project on the index leads to the repository."""
    assert bool(list(release.owner_problems({"info": info}, ADDRESS))) != ours


def test_a_free_name_may_be_published() -> None:
    """The index has no metadata of it."""
    assert not list(release.owner_problems(None, ADDRESS))


def answer(monkeypatch: pytest.MonkeyPatch, result: bytes | int) -> None:
    """Let the index answer with a body or with an HTTP error."""

    def opened(url: str, *, timeout: float) -> io.BytesIO:
        assert url.startswith("https://")
        assert timeout > 0
        if isinstance(result, int):
            raise urllib.error.HTTPError(url, result, "", Message(), None)
        return io.BytesIO(result)

    monkeypatch.setattr("urllib.request.urlopen", opened)


def test_the_index_knows_the_name_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other error of the index stops the release."""
    answer(monkeypatch, b'{"info": {}}')
    assert release.index_metadata() == {"info": {}}
    answer(monkeypatch, 404)
    assert release.index_metadata() is None
    answer(monkeypatch, 503)
    with pytest.raises(urllib.error.HTTPError):
        release.index_metadata()


def test_command_reports_every_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is then 1, and a dry run on this tree passes."""
    answer(monkeypatch, json.dumps({"info": {"project_urls": {"Source": ADDRESS}}}).encode())
    assert release.main(["--tag", "v0", "--repository", ADDRESS]) == 1
    assert capsys.readouterr().err.count("error: ") >= 3
    answer(monkeypatch, 404)
    assert release.main(["--tag", "", "--repository", ADDRESS]) == 0
    assert f"policytool {VERSION} may be published" in capsys.readouterr().out


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_commit(name: str) -> None:
    """Each action is pinned to the same commit everywhere, with its version in a comment."""
    used = re.findall(r"uses: *(.*)", WORKFLOWS[name])
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", item) for item in used)
    everywhere = {
        item
        for text in (*WORKFLOWS.values(), (ROOT / "action.yml").read_text(encoding="utf-8"))
        for item in re.findall(r"uses: *(.*)", text)
    }
    assert len(everywhere) == len({item.partition("@")[0] for item in everywhere})


@pytest.mark.parametrize("name", WORKFLOWS)
def test_scripts_of_workflows_contain_no_expressions(name: str) -> None:
    """An expression in a script would be run as code."""
    for job in yaml.safe_load(WORKFLOWS[name])["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_only_the_last_jobs_may_write() -> None:
    """Tests run without write permissions, and publishing runs no code of the repository."""
    permissions = {name: job["permissions"] for name, job in RELEASE["jobs"].items()}
    assert RELEASE["permissions"] == {}
    assert permissions == {
        "check": {"contents": "read"},
        "build": {"contents": "read"},
        "attest": {"attestations": "write", "id-token": "write"},
        "publish": {"id-token": "write"},
        "assets": {"contents": "write"},
    }
    for name in ("attest", "publish", "assets"):
        uses = [step.get("uses", "") for step in RELEASE["jobs"][name]["steps"]]
        assert not any(item.startswith("actions/checkout") for item in uses)


def test_a_dry_run_publishes_nothing() -> None:
    """Jobs that write run for a published release only, after the checks and the tests."""
    jobs = RELEASE["jobs"]
    writing = {name for name, job in jobs.items() if "write" in job["permissions"].values()}
    assert all(jobs[name]["if"] == "github.event_name == 'release'" for name in writing)
    assert {"check", "build"} <= set(jobs["publish"]["needs"])
    assert jobs["publish"]["environment"]["name"] == "pypi"


def script(job: str, name: str) -> str:
    """Return the script of a step."""
    steps = RELEASE["jobs"][job]["steps"]
    return str(next(step["run"] for step in steps if step.get("name") == name))


def run_step(text: str, work: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as GitHub does, with the programs of ``work/bin`` first."""
    binaries = work / "bin"
    binaries.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(work / "summary"),
        **variables,
    }
    return run_captured(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", text],
        cwd=work,
        env=environment,
        check=False,
    )


def stand_in(work: Path, program: str) -> None:
    """Let a program print its arguments, one per line."""
    (work / "bin").mkdir(exist_ok=True)
    (work / "bin" / program).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    (work / "bin" / program).chmod(0o755)


@pytest.mark.parametrize("tag", ["v1.0.0", "", "$(touch ran)", "v1 0"])
def test_the_check_passes_the_tag_as_one_word(tmp_path: Path, tag: str) -> None:
    """Nothing in a tag is run."""
    stand_in(tmp_path, "python")
    done = run_step(script("check", "Check"), tmp_path, TAG=tag, REPOSITORY=project.URL)
    words = ["-m", "tests.packaging.release", "--tag", tag, "--repository", project.URL]
    assert done.stdout.splitlines() == words
    assert not (tmp_path / "ran").exists()


def test_check_runs_with_the_standard_library() -> None:
    """The job of the check installs nothing."""
    module = "import tests.packaging.release, tests.packaging.run, sys; "
    done = run_captured(
        [sys.executable, "-S", "-c", f"{module}print(*sys.modules)"], cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr


def test_checksums_are_in_the_summary(tmp_path: Path) -> None:
    """The recipe of conda-forge needs that of the source distribution."""
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/policytool-1.0.tar.gz").write_bytes(b"")
    done = run_step(script("build", "Show the checksums"), tmp_path)
    assert done.returncode == 0, done.stderr
    summary = (tmp_path / "summary").read_text(encoding="utf-8")
    assert re.search(r"```text\n[0-9a-f]{64}  policytool-1\.0\.tar\.gz\n```\n", summary)


def test_distributions_are_attached_to_the_release(tmp_path: Path) -> None:
    stand_in(tmp_path, "gh")
    for name in ("dist/a.whl", "dist/a.tar.gz", "sbom/policytool.cdx.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    done = run_step(script("assets", "Upload"), tmp_path, TAG="v1 0")
    files = ["dist/a.tar.gz", "dist/a.whl", "sbom/policytool.cdx.json"]
    assert done.stdout.splitlines() == ["release", "upload", "v1 0", *files]
