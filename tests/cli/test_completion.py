"""Shell completion, with the request of each shell and with the installed shells."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from policytool.cli.completion import SHELLS
from policytool.cli.main import COMMANDS
from policytool.releases.releases import descriptions, names
from policytool.rules import RULES
from tests.conftest import run, run_process
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH
from tests.helpers.scripts import run_captured

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = THOROUGH


def offered(*words: str) -> list[str]:
    """Return the completions of the last word, as bash requests them."""
    environment = {
        "_POLICYTOOL_COMPLETE": "bash_complete",
        "COMP_WORDS": shlex.join(("policytool", *words)),
        "COMP_CWORD": str(len(words)),
    }
    with mock.patch.dict(os.environ, environment):
        ended = run()
    assert (ended.code, ended.err) == (0, "")
    return [line.partition(",")[2] for line in ended.out.splitlines()]


@for_each(
    ("words", "some"),
    [
        (("",), set(COMMANDS)),
        (("au",), {"audit"}),
        (("audit", "--fail"), {"--fail-on"}),
        (("audit", "--skip"), {"--skip-unrecognized"}),
        (("audit", "--fail-on", ""), {"error", "warning", "note", "never"}),
        (("audit", "--select", "PT1"), {rule.id for rule in RULES if rule.id.startswith("PT1")}),
        (("audit", "--select", "pt1"), {rule.id for rule in RULES if rule.id.startswith("PT1")}),
        (("explain", ""), {"rules", "policies", "limits", "releases"}),
        (("explain", "pt1"), {rule.id for rule in RULES if rule.id.startswith("PT1")}),
        (("explain", RULES[0].name[:5]), {RULES[0].name}),
        (("explain", "keras3.1"), {"keras3.10", "keras3.15"}),
        (("explain", "json-"), {"json-bytes"}),
        (("audit", "--target", ""), set(names())),
        (
            ("migrate", "--target", "keras3."),
            {name for name, _ in descriptions() if name.startswith("keras3.")},
        ),
        (("migrate", "--target", "tf2.1"), {"tf2.1", "tf2.10", "tf2.14", "tf2.15"}),
        (("migrate", "--to", "mixed_"), {"mixed_float16", "mixed_bfloat16"}),
        (("check", "--metric", "acc"), {"accuracy"}),
        (
            ("check", "--metric", "mean_sq"),
            {"mean_squared_error", "mean_squared_logarithmic_error"},
        ),
        (("migrate", "--verif"), {"--verify"}),
        (("migrate", "--no-ver"), {"--no-verify"}),
        (("explain", "mixed_b"), {"mixed_bfloat16"}),
        (("inspect", "--jobs", "2", "--format", "j"), {"json"}),
        (("completion", ""), set(SHELLS)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_completions_begin_with_the_typed_word(words: tuple[str, ...], some: set[str]) -> None:
    """Commands, options, choices, rules, releases and policies that begin with the word."""
    result = offered(*words)
    assert some <= set(result)
    assert all(item.lower().startswith(words[-1].lower()) for item in result)


def test_paths_are_left_to_the_shell() -> None:
    """Paths are completed by the shell."""
    environment = {
        "_POLICYTOOL_COMPLETE": "bash_complete",
        "COMP_WORDS": "policytool audit mod",
        "COMP_CWORD": "2",
    }
    assert run_process(environment=environment).out == "file,mod\n"


def test_a_settings_file_is_not_read(tmp_path: Path) -> None:
    """Completion reads no settings file, so that a broken one causes no error."""
    (tmp_path / "policytool.toml").write_text("[[[", encoding="utf-8")
    environment = {
        "_POLICYTOOL_COMPLETE": "bash_complete",
        "COMP_WORDS": "policytool audit --fail-on ''",
        "COMP_CWORD": "3",
    }
    assert "never" in run_process(environment=environment, cwd=tmp_path).out


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell: str) -> None:
    """Each shell has a completion script that calls ``policytool``."""
    ended = run("completion", shell)
    assert (ended.code, ended.err) == (0, "")
    assert f"_POLICYTOOL_COMPLETE={shell}_complete" in ended.out


def test_unknown_shell_is_an_error() -> None:
    ended = run("completion", "csh")
    assert ended.code == 2
    assert "'bash', 'zsh', 'fish'" in ended.err


BASH = """
eval "$(policytool completion bash)"
complete -p policytool >&2
COMP_WORDS=(policytool audit --fail-on n) COMP_CWORD=3
_policytool_completion policytool
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { registered="$*" }
eval "$(policytool completion zsh)"
[[ "$registered" == "_policytool_completion policytool" ]] || exit 1
compadd() { while [[ "$1" != -a ]]; do shift; done; print -l -- ${(P)2} }
words=(policytool audit --fail-on n) CURRENT=4
_policytool_completion
"""
FISH = """
policytool completion fish | source
complete -C "policytool audit --fail-on n"
"""


@pytest.mark.parametrize(
    ("shell", "options", "text"),
    [("bash", ("--norc",), BASH), ("zsh", ("-f",), ZSH), ("fish", ("--no-config",), FISH)],
)
def test_the_shells_complete(
    shell: str, options: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    """Each installed shell completes the beginning of a choice, and offers no other choice."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "policytool"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m policytool "$@"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    done = run_captured([shell, *options, "-c", text], env=environment, check=False)
    assert set(done.stdout.split()) == {"note", "never"}, done.stderr
