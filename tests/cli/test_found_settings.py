"""Settings files that policytool finds itself: their author may be a stranger."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import pytest

from policytool.cli import settings
from policytool.cli.declared_options import BoundOption
from policytool.cli.main import cli
from policytool.commands.batch import parallel
from tests.conftest import FIXED_SCALE_H5, run, run_process
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.public_api import commands
from tests.helpers.scripts import run_captured
from tests.helpers.small_models import dense, h5_model, sequential

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE: Final = "policytool.toml"
ISSUE: Final = {
    *(
        "select",
        "ignore",
        "per-file-ignores",
        "suppress",
        "forbid",
        "fail-on",
        "target",
        "device",
        "backend",
        "baseline",
    ),
    *("format", "jobs", "to", "set", "include", "keep", "verify"),
}
"""The allow-list, told once more: whoever adds a key has to think about it twice."""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which contains the model ``a.h5``."""
    directory = tmp_path / "clone"
    directory.mkdir()
    monkeypatch.chdir(directory)
    shutil.copy(FIXED_SCALE_H5, directory / "a.h5")
    return directory


def found(text: str) -> None:
    """Write the settings file of the working directory."""
    Path(FILE).write_text(text, encoding="utf-8")


def content() -> dict[str, bytes]:
    """Return the files of the working directory."""
    return {path.name: path.read_bytes() for path in Path.cwd().iterdir()}


# The allow-list


def options() -> Iterator[tuple[str, str, str]]:
    """Yield each command with the keys and values of its options, and its structured keys."""
    for name, command in commands():
        structured = getattr(command, "structured", {})
        for option in command.params:
            if isinstance(option, click.Option) and option.name not in {
                "config",
                "model",
                "show_settings",
                "verbose",
                "require_separator",
            }:
                yield name, str(option.name).replace("_", "-"), _value(option)
        yield from ((name, key, "[]") for key in structured)


def _value(option: click.Option) -> str:
    match option.type:
        case click.Choice(choices=choices):
            return f'"{choices[0]}"'
        case BoundOption():
            return '["layers=5"]'
    value = "true" if option.is_flag else '"1"'
    return f"[{value}]" if option.multiple else value


def test_allow_list_of_keys_equals_the_list_on_the_security_page() -> None:
    """A new key is added in this test, in the code and on the page."""
    with cli.make_context("policytool", [], resilient_parsing=True) as context:
        assert settings.automatic_keys(context) == ISSUE
    row = next(
        line
        for line in (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8").splitlines()
        if "found automatically" in line and line.startswith("|")
    )
    assert all(f"`{key}`" in row for key in ISSUE)


@pytest.mark.parametrize(
    ("command", "key", "value"), [option for option in options() if option[1] not in ISSUE], ids=str
)
def test_every_other_option_in_found_settings_is_rejected(
    command: str, key: str, value: str, project: Path
) -> None:
    """Other keys are errors before anything is written, unless the user names the file."""
    found(f"{key} = {value}\n")
    before = content()
    ended = run(command, "--show-settings")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"error: {project / FILE} sets {key!r}, which only a settings file specified with "
        f"--config may set. If you trust the file, run: policytool {command} --config {FILE} "
        "--show-settings\n"
    )
    assert content() == before
    if key != "limit":  # whose NAME=VALUE is checked when it is used
        assert (
            key in run(command, "--config", FILE, "--show-settings").out
            or run(command, "--config", FILE, "--show-settings").code == 2
        )


def test_new_option_in_found_settings_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new option must be added to the list before it is accepted."""
    command: Any = cli.get_command(click.Context(cli), "explain")
    monkeypatch.setattr(
        command, "params", [*command.params, click.Option(["--brand-new"], expose_value=False)]
    )
    found("brand-new = false\n")
    assert (
        "sets 'brand-new', which only a settings file specified with --config may set"
        in run("diff", "--show-settings").err
    )


@pytest.mark.parametrize("key", sorted(ISSUE - {"suppress", "per-file-ignores", "baseline"}))
def test_allowed_keys_of_found_settings_have_an_effect(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effect is the same in every command with the option."""
    monkeypatch.delenv("POLICYTOOL_JOBS")
    values = {key: value for _, key, value in options()} | {
        "format": '"json"',
        "select": '["PT1"]',
        "ignore": '["PT1"]',
        "set": '["a=float32"]',
        "device": '"cpu"',
        "backend": '"jax"',
        "verify": "false",  # the only boolean of it; tests/cli/test_verify.py has the others
    }
    needed = {"diff": ("a.h5", "a.h5"), "completion": ("bash",), "explain": ("x",)}
    found(f"{key} = {values[key]}\n")
    for name, other, _ in options():
        if other == key:
            ended = run(name, *needed.get(name, ()), "--show-settings")
            assert ended.code == 0, ended.err
            assert any(
                line.startswith(f"{key} = ") and line.endswith(FILE)
                for line in ended.out.splitlines()
            ), ended.out


@THOROUGH
def test_the_printed_command_works(project: Path) -> None:
    """Names are quoted for the shell, also those with characters that a terminal obeys."""
    directory = project / "a b'c\n::error::x\x1b[2J"
    directory.mkdir()
    shutil.copy("a.h5", directory / "m o.h5")
    (directory / FILE).write_text('format = ["json=../out.json"]\n', encoding="utf-8")
    below = directory / "deep"
    below.mkdir()
    ended = run_process("inspect", "../m o.h5", cwd=below)
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    assert ended.err.strip().isprintable()
    command = ended.err.strip().partition("run: policytool ")[2]
    done = run_captured(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m policytool {command}"],
        cwd=below,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (directory / "out.json").exists()


def test_many_paths_are_not_repeated() -> None:
    """The sentence stays readable."""
    found('format = ["json=out.json"]\n')
    ended = run("inspect", *["a.h5"] * 1000)
    assert ended.err.endswith(f"run: policytool inspect --config {FILE} ...\n")


# What such a file wrote


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("report", "inspect"),
        ("report", "audit"),
        ("report", "migrate"),
        ("write-baseline", "audit"),
    ],
)
def test_found_settings_do_not_overwrite_a_file(
    key: str,
    command: str,
    linked: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:  # a column
    """The rule applies to files named by the settings, and to links of the checkout."""
    victim = tmp_path / "profile"
    victim.write_text("mine", encoding="utf-8")
    Path("link").symlink_to(victim)
    path = "link" if linked else str(victim)
    found(f'{key} = ["json={path}"]\n' if key == "report" else f'{key} = "{path}"\n')
    ended = run(command, "a.h5")
    assert (ended.code, ended.out) == (2, "")
    assert victim.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    "keys",
    [
        ("in-place", "backup", "to"),
        ("in-place", "to"),
        ("backup", "to"),
        ("existing", "to"),
        ("output", "to"),
        ("fix", "to"),
    ],
)
@pytest.mark.parametrize("command", ["migrate", "audit"])
def test_no_model_is_replaced(keys: tuple[str, ...], command: str) -> None:
    """A plain call rewrites nothing, whatever else the file says."""
    values = {
        "in-place": "true",
        "backup": "false",
        "to": '"mixed_bfloat16"',
        "existing": '"replace"',
        "output": '"a.h5"',
        "fix": "true",
    }
    found("\n".join(f"{key} = {values[key]}" for key in reversed(keys)))
    before = content()
    ended = run(command, "a.h5")
    assert (ended.code, ended.out) == (2, "")
    assert content() == before


def test_policy_in_found_settings_writes_only_a_new_file() -> None:
    """With the key ``to``, ``migrate`` writes a new file next to the original."""
    found('to = "mixed_bfloat16"\n')
    before = content()
    assert run("migrate", "a.h5").code == 0
    after = content()
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"a.mixed_bfloat16.h5"}
    assert run("migrate", "a.h5").code != 0
    assert content() == after


def test_content_of_an_invalid_baseline_is_not_printed(tmp_path: Path) -> None:
    """The settings may name any file of the user, and the error shows none of its content."""
    for text in ("hunter2:x:0:0", '{"secret-key": "hunter2"}', '["hunter2"]', "hunter2"):
        (tmp_path / "secret").write_text(text, encoding="utf-8")
        found('baseline = "../secret"\n')
        ended = run("audit", "a.h5")
        assert (ended.code, ended.out) == (3, "")
        assert not any(word in ended.err for word in ("hunter2", "secret-key"))


def test_found_settings_start_at_most_one_process_per_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The user may request any number of processes."""
    monkeypatch.delenv("POLICYTOOL_JOBS")
    monkeypatch.setattr(parallel, "processors", lambda: 3)
    found("jobs = 5000\n")
    assert "jobs = 3  # " in run("audit", "--show-settings").out
    assert "jobs = 5000  # " in run("audit", "--config", FILE, "--show-settings").out
    assert "jobs = 5000  # " in run("audit", "--jobs", "5000", "--show-settings").out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"layer = '(.)\1'", "backreferences"),
        ("layer = 'a++'", "possessive repetitions"),
        ("layer = '(a{1,1000}){1,1000}'", "states, above the pattern-size limit of 5000"),
        (f"path = '{'[' * 10**6}'", "1000000 states, above the pattern-size limit of 5000"),
    ],
)
def test_patterns_without_an_automaton_are_wrong_usage(text: str, words: str) -> None:
    """In a settings file that a user names, they are wrong too."""
    found(f"[[suppress]]\nrules = ['PT1']\nreason = 'r'\n{text}\n")
    for config in ((), ("--config", FILE)):
        ended = run("audit", "a.h5", *config)
        assert (ended.code, ended.out) == (2, "")
        assert words in ended.err
        assert len(ended.err) < 1_000


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("audit", "[[suppress]]\nrules = ['ALL']\nreason = 'r'\nlayer = '.*.*.*.*x'", 1),
        ("audit", "[[suppress]]\nrules = ['ALL']\nreason = 'r'\nlayer = '(a+)+!'", 1),
        ("audit", f"[[suppress]]\nrules = ['ALL']\nreason = 'r'\npath = '{'**/a*' * 60}!'", 1),
        ("audit", f"[per-file-ignores]\n'{'*a' * 200}!' = 'ALL'", 1),
        ("migrate", "set = ['.*.*.*.*x=float32']", 2),
        ("migrate", "set = ['(a+)+!=float32']", 2),
    ],
)
def test_patterns_of_found_settings_take_linear_time(command: str, text: str, code: int) -> None:
    """Patterns for thousands of letters once took minutes or exponential time."""
    found(text)
    directory = Path(*("a" * 200,) * 8)
    directory.mkdir(parents=True)
    model = h5_model(directory / "a.h5", sequential(dense("a" * 1_000, "float16")))
    began = time.process_time()
    ended = run(command, model)
    assert ended.code == code, ended.err
    assert command == "audit" or "matches no layer" in ended.err
    assert time.process_time() - began < 5


def test_suppression_above_the_step_limit_hides_no_finding() -> None:
    """The report is complete, and a warning names the file and the limit."""
    found("[[suppress]]\nrules = ['ALL']\nreason = 'r'\nlayer = '.*'\n")
    assert "; 1 suppressed" in run("audit", "a.h5").out
    ended = run("audit", "a.h5", "--limit", "pattern-steps=10")
    assert "suppressed" not in ended.out
    assert "a.h5" in ended.err
    assert "pattern-steps limit of 10. Raise the limit with --limit" in ended.err


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("audit", "[per-file-ignores]\n'[z-a]' = 'PT1'", 1),
        ("audit", "[[suppress]]\nrules = ['PT1']\nreason = 'r'\npath = 'a[9-0]*'", 1),
        ("audit", "[[suppress]]\nrules = ['PT1']\nreason = 'r'\nlayer = 'a{99999999999}'", 2),
        (
            "audit",
            f"[[suppress]]\nrules = ['PT1']\nreason = 'r'\nlayer = '{'(' * 2000}{')' * 2000}'",
            2,
        ),
        ("migrate", "set = ['a{99999999999}=float32']", 2),
        ("migrate", f"set = ['{'(' * 2000}{')' * 2000}=float32']", 2),
    ],
)
def test_invalid_patterns_cause_no_internal_error(command: str, text: str, code: int) -> None:
    """A bracket is literal, and an expression that cannot be compiled is wrong usage."""
    found(text)
    ended = run(command, "a.h5")
    assert ended.code == code, ended.err
    assert len(ended.err.splitlines()) == code - 1


@THOROUGH
def test_a_long_word_is_not_compared_whole() -> None:
    """A megabyte, for which the nearest rule is looked for, took minutes."""
    found(f'select = ["{"a" * 10**6}"]\n')
    before = os.times().user
    ended = run("audit", "a.h5")
    assert ended.code == 2
    assert len(ended.err) < 1000
    assert os.times().user - before < 5


# What such a file hides


@THOROUGH
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[suppress]]\nrules = ['ALL']\nreason = 'r'", "3 by 'suppress'"),
        ("[per-file-ignores]\n'*.h5' = 'PT101'", "1 by 'per-file-ignores'"),
        ("baseline = 'known.json'\nignore = ['PT101']", "2 by 'baseline'. 1 rule not checked"),
        ("select = ['PT3']", " not checked because of 'select'"),
        ("ignore = ['PT101']", "1 rule not checked because of 'ignore'"),
        (
            "fail-on = 'never'",
            ("'fail-on' is 'never', so the reported findings do not affect the exit code"),
        ),
        (
            "fail-on = 'error'",
            ("'fail-on' is 'error', so the reported findings do not affect the exit code"),
        ),
    ],
)
def test_a_warning_names_settings_that_hide_findings(text: str, words: str) -> None:
    """One line names the key, unless ``-q`` or ``--config`` with the file is set."""
    assert run("audit", "a.h5", "--write-baseline", "known.json").code == 0
    assert run("audit", "a.h5").err == ""
    found(text)
    ended = run("audit", "a.h5")
    assert ended.err.startswith(f"warning: {FILE} hides findings: ")
    assert words in ended.err
    assert len(ended.err.splitlines()) == 1
    assert run("audit", "a.h5", "-q").err == ""
    assert run("audit", "a.h5", "--config", FILE).err == ""


def test_a_baseline_alone_is_a_note() -> None:
    """The user wrote it to accept known findings; the note still names the file and the number."""
    assert run("audit", "a.h5", "--write-baseline", "known.json").code == 0
    found("baseline = 'known.json'\nfail-on = 'error'")
    ended = run("audit", "a.h5")
    assert ended.err == (
        f"note: The baseline in {FILE} accepts 3 findings. If this file is not yours, specify "
        "another settings file with --config.\n"
    )
    assert run("audit", "a.h5", "-q").err == ""
    assert run("audit", "a.h5", "--config", FILE).err == ""


@pytest.mark.parametrize(
    "text",
    [
        "fail-on = 'note'",
        "fail-on = 'warning'",
        "select = ['ALL']",
        "[[suppress]]\nrules = ['PT6']\nreason = 'r'",
        "[per-file-ignores]\n'b.h5' = 'ALL'",
        "ignore = ['PT501']",
        "format = 'markdown'",
    ],
)
def test_settings_that_hide_no_finding_cause_no_warning(text: str) -> None:
    """These settings do not affect the findings of the model."""
    found(text)
    assert run("audit", "a.h5").err == ""


def test_options_that_replace_settings_cause_no_warning() -> None:
    """Options on the command line hide findings intentionally."""
    found("select = ['PT3']\nignore = ['PT101']\nfail-on = 'never'")
    options = ("--select", "PT1", "--ignore", "PT2", "--fail-on", "error")
    assert run("audit", "a.h5", *options).err == ""


# How such a file is read


@THOROUGH
@pytest.mark.parametrize("name", [FILE, "pyproject.toml"])
@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "socket"])
def test_only_a_regular_file_is_read(kind: str, name: str, project: Path) -> None:
    """Nothing is waited for, and nothing without an end is read."""
    match kind:
        case "pipe":
            os.mkfifo(name)
        case "device":
            Path(name).symlink_to("/dev/zero")
        case "directory":
            Path(name).mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(name)
    ended = run_process("inspect", "a.h5", cwd=project)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {project / name} ")
    assert len(ended.err.splitlines()) == 1


@THOROUGH
@pytest.mark.parametrize("name", [FILE, "pyproject.toml"])
def test_a_large_file_is_not_read_whole(name: str, project: Path) -> None:
    """Three gigabytes, of which nothing is stored, where a process may have two."""
    with Path(name).open("wb") as file:
        file.truncate(3 * 2**30)
    ended = run_captured(
        ["bash", "-c", 'ulimit -v 2000000; exec "$0" -m policytool inspect a.h5', sys.executable],
        cwd=project,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert (
        f"{name} cannot be read: it has 3 GiB, above the settings-bytes limit of 1 MiB"
        in ended.stderr
    )
    Path(name).write_bytes(b"#" * 2**20)
    assert run("inspect", "a.h5").code == 0


@pytest.mark.parametrize(
    "text",
    [
        f"[per-file-ignores{'.a' * 990}]\n",
        f"[per-file-ignores]\n{'a.' * 990}b = 'PT1'\n",
        f"per-file-ignores = {'{ a = ' * 300}1{' }' * 300}\n",
        f"suppress = {'[' * 300}{']' * 300}\n",
        f"suppress = {'[' * 9}{']' * 9}\n",
        f"[[suppress]]\nrules{'.a.a' * 200} = 1\n",
        f"select = {'[' * 5000}\n",
        "\n".join(
            f"[{'.'.join(['per-file-ignores', *'abcdefgh', *'abcdefgh'][: depth + 1])}]"
            for depth in range(15)
        ),
    ],
    ids=["header", "key", "inline", "lists", "nine", "entry", "many", "steps"],
)
@pytest.mark.parametrize("table", ["", "[tool.policytool]\n"])
def test_nested_tables_are_wrong_usage(text: str, table: str) -> None:
    name = "pyproject.toml" if table else FILE
    inner = text.replace("[per-file", "[tool.policytool.per-file").replace(
        "[[suppress]]", "[[tool.policytool.suppress]]"
    )
    Path(name).write_text(table + inner if table else text, encoding="utf-8")
    ended = run("audit", "a.h5")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert len(ended.err.splitlines()) == 1


@THOROUGH
def test_long_dotted_key_is_rejected_quickly(project: Path) -> None:
    """Long dotted keys are errors before tomllib, which needs quadratic memory for them."""
    for key in ("a." * 2**18 + "a", '"a".' * 2**17 + '"a"', "a . " * 2**17 + "a"):
        for text in (f"{key} = 1\n", f"[{key}]\n", f'x = ["""""a""""", {{ {key} = 1 }}]\n'):
            found(text)
            before = os.times().user
            ended = run("inspect", "a.h5")
            assert os.times().user - before < 5
            assert f"{project / FILE} has a key with more than 16 parts" in ended.err


def test_dots_in_toml_texts_and_comments_are_not_key_separators() -> None:
    """Dots in numbers and between such texts are not key separators either."""
    dots = ".".join("abcdefghijklmnopqrstuvwxyz")
    texts = [
        f'"{dots}"',
        f"'{dots}'",
        f'"""\n{dots}\n"\\"""{dots}"""',
        f"'''{dots}''{dots}'''",
        f'"""{dots}"""""',
        f'"\\\\", "{dots}"',
        "1.5, 2.5",
    ]
    Path("pyproject.toml").write_text(
        "\n".join(f"[tool.x{number}]\na = [{text}] # {dots}" for number, text in enumerate(texts)),
        encoding="utf-8",
    )
    ended = run("inspect", "a.h5")
    assert ended.code == 0, ended.err


def test_settings_of_a_whole_project_are_read(project: Path) -> None:
    """A model in the project is read with all settings files that apply."""
    h5_model(project / "b.h5", sequential())
    found('format = "json"\ntarget = ["keras3"]\n[[suppress]]\nrules = ["PT1"]\nreason = "r"\n')
    assert run("inspect", "b.h5").out.startswith("{")
