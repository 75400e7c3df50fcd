"""Each option is declared once for the command line, Python and settings files."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.cli.audit_arguments import AuditCommandLine
from policytool.cli.audit_command import NEVER
from policytool.cli.command import Command
from policytool.cli.declared_options import CommandLineOption
from policytool.cli.main import COMMANDS
from policytool.commands.arguments.migrate import MigrateArguments
from policytool.commands.arguments.reading import AuditArguments
from policytool.commands.arguments.running import CheckArguments, TuneArguments
from policytool.rules import Device
from policytool.rules.base import Severity
from tests.conftest import MIXED_H5, run
from tests.helpers.public_api import commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.commands.arguments.declaration import Arguments, DeclaredOption

FUNCTIONS: Final = ("inspect", "audit", "migrate", "diff", "check", "tune", "explain")
NOT_OPTIONS: Final = {"path", "a", "b", "model", "other", "text"}


def declared(name: str) -> Iterator[DeclaredOption]:
    """Yield the declared options of a command."""
    command = dict(commands())[name]
    assert isinstance(command, Command)
    for kind in command.classes:
        yield from kind.options()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_options_of_their_command(name: str) -> None:
    """Functions lack only the options that are declared for the command line."""
    parameters = inspect.signature(getattr(policytool, name)).parameters
    positional = {key for key, value in parameters.items() if value.kind is not value.KEYWORD_ONLY}
    accepted = {key: value.default for key, value in parameters.items() if key not in positional}
    assert accepted == {
        option.name: option.default
        for option in declared(name)
        if not isinstance(option.declaration, CommandLineOption)
    }
    assert positional <= NOT_OPTIONS


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_is_declared_once(name: str) -> None:
    names = [option.name for option in declared(name)]
    assert len(names) == len(set(names))


def test_a_key_is_automatic_in_all_commands_or_in_none() -> None:
    """A key of found settings is allowed for all commands or none: they share the file."""
    automatic: dict[str, set[bool]] = {}
    for name in COMMANDS:
        for option in declared(name):
            automatic.setdefault(option.key, set()).add(option.declaration.is_automatic)
    assert {key for key, values in automatic.items() if len(values) > 1} == set()


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (AuditArguments, "device", Device),
        (AuditCommandLine, "fail_on", (*Severity, NEVER)),
    ],
)
def test_choices_equal_the_values_that_the_implementation_supports(
    kind: type[Arguments], name: str, values: Iterable[str]
) -> None:
    (option,) = (option for option in kind.options() if option.name == name)
    assert option.choices == tuple(values)


@pytest.mark.parametrize(
    ("function", "options", "arguments", "words"),
    [
        ("check", {"batches": 0}, ("--batches", "0"), "are neither"),
        ("check", {"batches": "4x"}, ("--batches", "4x"), "are neither"),
        ("check", {"max_change": 0.0}, ("--max-change", "0"), "must be above 0"),
        ("check", {"to": "half"}, ("--to", "half"), "half"),
        ("check", {"set": {"a": "half"}}, ("--set", "a=half"), "half"),
        ("check", {"include": ["no"]}, ("--include", "no"), "no"),
        (
            "check",
            {"limit": {"tensorflow-seconds": 0}},
            ("--limit", "tensorflow-seconds=0"),
            "minimum is 1",
        ),
        ("check", {"inputs": "s3://a/b"}, ("--inputs", "s3://a/b"), "is a URL"),
        ("tune", {}, (), "--to mixed_float16"),
        ("tune", {"to": "mixed_float16", "budget": 0}, ("--budget", "0"), "number of trials"),
        ("tune", {"to": "float32"}, ("--to", "float32"), "float32"),
        (
            "tune",
            {"to": "mixed_float16", "tolerance": -1.0},
            ("--to", "mixed_float16", "--tolerance", "-1"),
            "non-negative",
        ),
        (
            "tune",
            {"to": "mixed_float16", "tolerance": {"y": -1.0}},
            ("--to", "mixed_float16", "--tolerance", "y=-1"),
            "non-negative",
        ),
        ("migrate", {"output": "-"}, ("-o", "-"), "stdout"),
        (
            "migrate",
            {"in_place": True, "existing": "skip"},
            ("--in-place", "--existing=skip"),
            "conflict",
        ),
        ("audit", {"device": "tpu"}, ("--device", "tpu"), "cpu or gpu"),
        ("audit", {"select": ["PT999"]}, ("--select", "PT999"), "PT999"),
        ("diff", {"layer": "("}, ("--layer", "("), "--layer"),
    ],
)
def test_functions_reject_values_that_the_command_rejects(
    function: str, options: dict[str, Any], arguments: tuple[str, ...], words: str
) -> None:
    """An invalid value from Python is a usage error, as on the command line."""
    paths = [MIXED_H5] * (2 if function == "diff" else 1)
    with pytest.raises(policytool.UsageError, match=words):
        getattr(policytool, function)(*paths, **options)
    ended = run(function, *paths, *arguments)
    assert (ended.code, ended.out) == (2, "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batches": True}, "batches 'True' are neither"),
        ({"batches": 1.5}, "batches '1.5' are neither"),
        ({"trust": 1}, "trust is 1; expected bool"),
        ({"to": 16}, "to is 16; expected a string"),
        ({"custom_objects": "mine"}, "custom_objects is the string 'mine'; expected a list"),
        ({"include": "outputs"}, "include is 'outputs'; expected a list"),
        ({"include": iter(["outputs"])}, "include is .*; expected a list"),
    ],
)
def test_python_rejects_other_types(options: dict[str, Any], words: str) -> None:
    """A value of a type that the command line cannot produce is a usage error."""
    with pytest.raises(policytool.UsageError, match=words):
        policytool.check(MIXED_H5, **options)


def test_an_unknown_keyword_is_an_error_of_types() -> None:
    """An unknown keyword is a TypeError that names it, as for any Python function."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'fromat'"):
        policytool.check(MIXED_H5, fromat="json")  # type: ignore[call-arg]  # that is tried


def test_a_list_of_texts_is_as_good_as_a_mapping() -> None:
    """A list of texts and a mapping are both accepted for ``--set`` and ``--output-kind``."""
    texts = policytool.migrate(MIXED_H5, set=["mlp/dense_a=float64"], preview=True)
    assert texts == policytool.migrate(MIXED_H5, set={"mlp/dense_a": "float64"}, preview=True)
    assert texts.status == "planned"


def test_defaults_of_check_and_tune_are_valid() -> None:
    for arguments in (CheckArguments(), TuneArguments(), MigrateArguments(), AuditArguments()):
        arguments.validate()
