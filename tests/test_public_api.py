"""The public interface changes only together with an entry in the changelog."""

from __future__ import annotations

import difflib
import os
import subprocess
from typing import Final

import pytest

from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.public_api import public_api
from tests.packaging.release import UNRELEASED, section

SNAPSHOT: Final = "tests/golden/public_api.txt"
CHANGELOG: Final = "CHANGELOG.md"
_ADVICE: Final = (
    "The public interface changed. Run `make golden`, and add a line to the section Unreleased of "
    "CHANGELOG.md."
)


def has_changelog_entry(before: str, after: str) -> bool:
    """
    Return whether a changelog has a line in its unreleased section that is nowhere in an earlier
    one.
    """
    known = {line.strip() for line in before.splitlines()}
    return any(line.strip() not in known for line in section(after, UNRELEASED).splitlines())


def is_recorded(before: dict[str, str], after: dict[str, str]) -> bool:
    """Return whether the snapshot is unchanged, or its change has an entry in the changelog."""
    return before[SNAPSHOT] == after[SNAPSHOT] or has_changelog_entry(
        before[CHANGELOG], after[CHANGELOG]
    )


def at_merge_base() -> dict[str, str] | None:
    """
    Return both files where the current branch began, or None if Git does not know: no repository,
    a shallow clone, or a main branch without the snapshot.
    """
    main = os.environ.get("GITHUB_BASE_REF") or "main"
    for branch in (f"origin/{main}", main):
        base = _git("merge-base", "HEAD", branch)
        if base is not None:
            files = {name: _git("show", f"{base.strip()}:{name}") for name in (SNAPSHOT, CHANGELOG)}
            actual = {name: text for name, text in files.items() if text is not None}
            return actual if len(actual) == len(files) else None
    return None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=ROOT,
            capture_output=True,
            check=False,
            timeout=60,
        )
    except FileNotFoundError:
        return None
    return done.stdout.decode("utf-8") if done.returncode == 0 else None


@THOROUGH
def test_public_api_is_recorded() -> None:
    """The snapshot is what the code has; `make golden` writes it."""
    text = public_api()
    path = ROOT / SNAPSHOT
    if os.environ.get("POLICYTOOL_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    recorded = path.read_text(encoding="utf-8") if path.is_file() else ""
    changes = difflib.unified_diff(recorded.splitlines(), text.splitlines(), lineterm="", n=1)
    assert recorded == text, "\n".join((_ADVICE, *list(changes)[:50]))


def test_change_of_the_public_api_has_a_changelog_entry() -> None:
    """Compared with the main branch."""
    before = at_merge_base()
    if before is None:
        pytest.skip("Git knows no main branch with the snapshot")
    after = {name: (ROOT / name).read_text(encoding="utf-8") for name in before}
    assert is_recorded(before, after), _ADVICE


OLD: Final = "## [Unreleased]\n\n### Added\n\n- One.\n- Two.\n\n## [1.0.0]\n\n- Three.\n"


@pytest.mark.parametrize(
    ("changelog", "recorded"),
    [
        (OLD, False),
        (OLD.replace("- One.\n", "- One.\n- Four.\n"), True),
        (OLD.replace("- One.\n", "- One, changed.\n"), True),
        (OLD.replace("- One.\n", ""), False),
        (OLD.replace("- Three.\n", "- Three.\n- Four.\n"), False),
        (OLD.replace("- One.\n", "- Three.\n"), False),
        (OLD.replace("## [1.0.0]", "## [Unreleased]"), False),
        ("", False),
    ],
)
def test_only_a_new_unreleased_line_is_an_entry(changelog: str, recorded: bool) -> None:  # noqa: FBT001
    """A removed line, a moved line, and a line of a released version are not entries."""
    before = {SNAPSHOT: "a\n", CHANGELOG: OLD}
    assert is_recorded(before, {SNAPSHOT: "b\n", CHANGELOG: changelog}) == recorded
    assert is_recorded(before, {SNAPSHOT: "a\n", CHANGELOG: changelog})


def test_public_api_contains_each_kind_of_thing() -> None:
    """An empty list would never differ."""
    lines = public_api().splitlines()
    for line in (
        *("policytool audit", "  --fail-on error|warning|note|never = warning", "70 BUG"),
        *("PT101 experimental-policy", "POLICYTOOL_FAIL_ON", "inspect version 1", "  layer"),
        *("inspect() -> Model", "class UsageError(Error)", "  findings: tuple[Finding, ...]"),
    ):
        assert line in lines
