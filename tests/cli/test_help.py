"""The help of every command: its groups of options, its examples, and where a mistake leads."""

from __future__ import annotations

import shlex
from typing import Final

import click
import pytest

from policytool.cli import help_pages
from policytool.cli.declared_options import DeclaredClickOption, Positional
from policytool.cli.main import COMMANDS, cli
from tests.conftest import run
from tests.helpers.cases import for_each


def command(name: str) -> click.Command:
    """Return a command by its name."""
    result = cli.get_command(click.Context(cli), name)
    assert result is not None
    return result


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_every_option_and_examples(name: str) -> None:
    """Each option is in one group, and the examples are those of the command."""
    shown = run(name, "--help-all").out
    for parameter in command(name).params:
        if isinstance(parameter, click.Option):
            assert shown.count(f" {parameter.opts[-1]} ") + shown.count(
                f" {parameter.opts[-1]}\n"
            ), parameter.name
    assert "\nExamples:\n" in shown
    assert all(call in shown for call, _ in help_pages.EXAMPLES[name])


@for_each(
    ("name", "call"),
    [(name, call) for name, calls in help_pages.EXAMPLES.items() for call, _ in calls],
)
def test_examples_are_calls_that_the_command_accepts(name: str, call: str) -> None:
    """Options and values of each example are those of the command."""
    words = shlex.split(call.replace('"$(', "").replace(')"', "").partition(" > ")[0])
    start = words.index("policytool")
    assert words[start + 1] == name
    with command(name).make_context(name, words[start + 2 :]) as context:
        assert not context.args


@pytest.mark.parametrize("name", COMMANDS)
def test_brief_help_is_a_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 12 options, the arguments and the examples, on 60 lines of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(name, "--help").out
    essential = [
        parameter
        for parameter in command(name).params
        if isinstance(parameter, DeclaredClickOption) and parameter.declared.declaration.essential
    ]
    assert len(essential) <= 12
    assert len(shown.splitlines()) <= 60
    assert all(f" {option.opts[-1]} " in shown.replace("\n", " \n") for option in essential)
    assert all(call in shown for call, _ in help_pages.EXAMPLES[name])
    for parameter in command(name).params:
        if isinstance(parameter, Positional):
            assert parameter.meaning.split()[0] in shown


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (("inspekt",), "Unknown command 'inspekt'. Did you mean 'inspect'?"),
        (("inspect", "--fromat", "json"), "Unknown option '--fromat'. Did you mean '--format'?"),
        (("explain", "PT1O1"), "Unknown topic 'PT1O1'. Did you mean 'PT101'?"),
        (
            ("explain", "mixed_flaot16"),
            "Unknown topic 'mixed_flaot16'. Did you mean 'mixed_float16'?",
        ),
        (("audit", "--target", "keras4"), "Unknown target 'keras4'. Did you mean 'keras3'?"),
        (("inspect", "--limit", "layer=3"), "Unknown limit 'layer'. Did you mean 'layers'?"),
    ],
)
def test_typo_gives_a_suggestion(words: tuple[str, ...], suggestion: str) -> None:
    """The error is one line on stderr with exit code 2."""
    ended = run(*words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {suggestion}")
    assert ended.err.count("\n") == 1


OPTIONS: Final = {
    "inspect": 14,
    "audit": 22,
    "migrate": 25,
    "check": 24,
    "tune": 25,
    "diff": 8,
    "explain": 6,
    "merge": 4,
    "completion": 0,
}
"""By command, how many options it has, without those for help."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_new_option_replaces_one(name: str) -> None:
    """A command has no more options than before, so that its help stays readable."""
    options = [option for option in command(name).params if isinstance(option, click.Option)]
    assert len(options) <= OPTIONS[name]
