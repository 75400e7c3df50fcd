"""The groups of options, the examples and the exit codes in the help of each command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from policytool.cli.declared_options import DeclaredClickOption, Positional
from policytool.commands.arguments.declaration import Group

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "inspect": (
        ("policytool inspect model.h5", "one model"),
        ("policytool inspect 'runs/**/*.keras' --only mixed", "only layers with a mixed policy"),
        ("git diff -z --name-only | policytool inspect -", "a list of paths on stdin"),
        ("policytool inspect runs/ --cache .cache", "read only models that changed"),
        ("policytool inspect models/ --summary", "one summary of all models"),
        (
            "policytool inspect models/ --jobs tcp://10.0.0.5:8786 --format jsonl",
            "on a Dask cluster",
        ),
    ),
    "audit": (
        ("policytool audit models/ --target keras3", "check whether models load in Keras 3"),
        ("policytool audit model.h5 --fix --diff", "preview the safe fixes"),
        ("policytool audit models/ --cache .cache", "read only models that changed"),
        ("policytool audit models/ --write-baseline known.json", "record the current findings"),
        (
            "git ls-files -z | policytool audit - --skip-unrecognized",
            "audit the models tracked in a Git repository",
        ),
        (
            "policytool audit models/ --shard 3/16 --format jsonl > part-3.jsonl",
            "audit one of 16 parts, for `policytool merge`",
        ),
    ),
    "migrate": (
        ("policytool migrate old.h5 --target keras3", "convert a model to the newest Keras"),
        ("policytool migrate model.h5 --to mixed_bfloat16 --preview", "preview another policy"),
        ("policytool migrate exported/ --to float32 --retrace", "re-export a SavedModel"),
        ("policytool migrate s3://bucket/old.h5 -o s3://bucket/new.h5", "migrate in a bucket"),
    ),
    "merge": (
        ("policytool merge part-*.jsonl > audit.jsonl", "join the reports of all shards"),
        ("ls parts/*.jsonl | policytool merge -", "a list of paths on stdin"),
    ),
    "check": (
        (
            "policytool check model.keras --to mixed_float16 --inputs data.npz",
            "compare predictions in mixed_float16 with float32",
        ),
        ("policytool check old.h5 new.keras --inputs data.npz", "compare two models"),
        ("policytool check model.h5 --inputs my_data:batches", "use batches from a function"),
        (
            "policytool check model.h5 --inputs x.npy --labels y.npy --metric accuracy",
            "also compare the accuracy",
        ),
        (
            "policytool check model.keras --inputs data.npz --record run.h5",
            "record a run",
        ),
        (
            "policytool check model.keras --against run.h5",
            "find what changed since the recorded run",
        ),
    ),
    "tune": (
        ("policytool tune model.keras --to mixed_float16 --inputs data.npz", "use your own inputs"),
        (
            "policytool tune model.keras --to mixed_float16 --tolerance 0.001 --preview",
            "search with synthetic inputs without writing",
        ),
        (
            "policytool tune model.h5 --to float16 --inputs x.npy --labels y.npy --metric accuracy",
            "keep the accuracy",
        ),
        (
            "policytool tune model.h5 --to float16 --inputs data.npz --resume trials.json",
            "continue an interrupted search",
        ),
    ),
    "diff": (
        ("policytool diff old.h5 new.keras", "compare policies, configs and values"),
        ("policytool diff a.keras b.keras --layer 'encoder/.*'", "compare only some layers"),
    ),
    "explain": (
        (
            "policytool explain \"'str' object has no attribute 'quantization_mode'\"",
            "explain an error message",
        ),
        ("python load.py 2>&1 | policytool explain -", "explain the traceback of a program"),
        ("policytool explain PT104", "explain a rule of audit"),
        ("policytool explain mixed_float16", "show a policy in the format of each release"),
        ("policytool explain releases", "list the releases that --target accepts"),
    ),
    "completion": (
        ('eval "$(policytool completion bash)"', "in ~/.bashrc"),
        ('eval "$(policytool completion zsh)"', "in ~/.zshrc, after compinit"),
        (
            "policytool completion fish > ~/.config/fish/completions/policytool.fish",
            "install the fish completions",
        ),
    ),
}
"""The example calls of each command, each with its purpose."""

_OK, _USAGE = ("0", "success"), ("2", "invalid usage")
_FAILURE = ("3", "a file could not be read or written, or a required extra is not installed")
_NO_MODEL = ("4", "no model found")

_CODES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "inspect": (_OK, _USAGE, _FAILURE, _NO_MODEL),
    "audit": (
        ("0", "no findings at or above the --fail-on severity"),
        ("1", "at least one such finding"),
        _USAGE,
        _FAILURE,
        _NO_MODEL,
    ),
    "migrate": (
        _OK,
        ("1", "predictions exceed the tolerance, or --preview shows a change"),
        _USAGE,
        ("3", "a model could not be read, converted or written"),
        _NO_MODEL,
    ),
    "merge": (
        ("0, 1 or 4", "the exit code of one run over all inputs"),
        _USAGE,
        ("3", "also if a report is damaged, incomplete, missing or duplicated"),
    ),
    "check": (
        ("0", "safe, recorded, or undecided with --accept-undecided"),
        ("1", "not safe, or different from the recorded run"),
        _USAGE,
        _FAILURE,
        _NO_MODEL,
        ("5", "undecided: the inputs cannot show whether predictions change"),
    ),
    "tune": (
        ("0", "a set of layers meets the objective, and is safe on other rows"),
        ("1", "no set of layers was found that meets the objective"),
        _USAGE,
        ("3", "the model could not be read, run or written"),
        _NO_MODEL,
        ("5", "undecided: written, but the rows are too few or synthetic"),
    ),
    "explain": (
        ("0", "a topic, or a message that at least one entry matches"),
        _USAGE,
        ("4", "no entry matches"),
    ),
    "diff": (("0", "the models are equal"), ("1", "the models differ"), _USAGE, _FAILURE),
}


def options_by_group(
    command: click.Command, context: click.Context
) -> dict[Group, list[click.Option]]:
    """
    Return the visible options of a command by group, without empty groups. Options that most runs
    need come first.
    """
    groups: dict[Group, list[click.Option]] = {group: [] for group in Group}
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and not parameter.hidden:
            groups[_group(parameter)].append(parameter)
    return {
        group: sorted(options, key=_is_essential, reverse=True)
        for group, options in groups.items()
        if options
    }


def essential_options(command: click.Command, context: click.Context) -> list[click.Option]:
    """Return the options in brief help: those that most runs need, and those for help."""
    return [
        option
        for options in options_by_group(command, context).values()
        for option in options
        if not isinstance(option, DeclaredClickOption) or _is_essential(option)
    ]


def _is_essential(option: click.Option) -> bool:
    return isinstance(option, DeclaredClickOption) and option.declared.declaration.essential


def _group(option: click.Option) -> Group:
    if isinstance(option, DeclaredClickOption):
        return option.declared.declaration.group
    return Group.GENERAL


def write_text(command: click.Command, formatter: click.HelpFormatter, *, is_brief: bool) -> None:
    """Write the description of a command: the first paragraph, or all paragraphs."""
    text = command.help or ""
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(text.partition("\n\n")[0] if is_brief else text)


def write_arguments(command: click.Command, formatter: click.HelpFormatter) -> None:
    """Write the positional arguments with their help."""
    records = [
        (parameter.metavar or str(parameter.name).upper(), parameter.meaning)
        for parameter in command.params
        if isinstance(parameter, Positional)
    ]
    if records:
        with formatter.section("Arguments"):
            formatter.write_dl(records)


def write_options(
    command: click.Command,
    context: click.Context,
    formatter: click.HelpFormatter,
    *,
    is_brief: bool,
) -> None:
    """Write the options that most runs need, or all options, group by group."""
    if is_brief:
        _write_section("Options", essential_options(command, context), context, formatter)
        return
    for group, options in options_by_group(command, context).items():
        _write_section(f"{group} options", options, context, formatter)


def _write_section(
    title: str,
    options: list[click.Option],
    context: click.Context,
    formatter: click.HelpFormatter,
) -> None:
    records = [option.get_help_record(context) for option in options]
    with formatter.section(title):
        formatter.write_dl([record for record in records if record is not None])


def write_epilog(command: click.Command, formatter: click.HelpFormatter, *, is_brief: bool) -> None:
    """Write the examples of a command, and in full help its exit codes if it has special ones."""
    name = str(command.name)
    with formatter.section("Examples"):
        for call, purpose in EXAMPLES[name]:
            formatter.write(f"{'':{formatter.current_indent}}# {purpose}\n")
            formatter.write(f"{'':{formatter.current_indent}}{call}\n")
    if name in _CODES and not is_brief:
        with formatter.section("Exit codes"):
            formatter.write_dl(list(_CODES[name]))


def exit_codes(command: str) -> tuple[tuple[str, str], ...]:
    """Return the special exit codes of a command, each with its meaning."""
    return _CODES.get(command, ())
