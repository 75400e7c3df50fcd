"""The groups of options, the examples and the exit codes in the help of each command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Selection": (
        *("layer", "only", "depth", "select", "ignore", "per_file_ignores", "device", "weights"),
        *("shard", "baseline", "write_baseline", "fail_on", "no_models_ok", "skip_unrecognized"),
        "require_separator",
    ),
    "Policy": (
        *("to", "set", "include_exceptions", "outputs", "loss_scale", "optimizer", "target"),
        *("list_targets", "allow_weight_rewrite", "retrace", "keep_rules"),
    ),
    "Fix": ("fix", "unsafe_fixes"),
    "Output": ("output", "in_place", "plan", "dry_run", "diff", "check"),
    "Safety": ("backup", "overwrite", "skip_existing", "allow_overflow", "trust", "limit"),
    "Input": ("inputs", "labels", "batches", "batch_size", "seed", "save_inputs"),
    "Measurement": (
        *("reference", "max_change", "output_kind", "accept_undecided", "metric", "max_drop"),
        *("tolerance", "agreement", "isolated", "gradients", "tf32", "deterministic"),
        *("compare_to", "timing", "values"),
    ),
    "Search": ("prefer", "max_trials", "time", "resume"),
    "TensorFlow": (
        *("verify", "custom_objects", "python", "timeout", "memory_limit", "list_devices"),
    ),
    "Reporting": (
        *(
            "format",
            "report",
            "summary",
            "releases",
            "variables",
            "all",
            "all_layers",
            "show_suppressed",
        ),
        *("color", "progress", "verbose", "quiet"),
    ),
}
"""Group to its options; all others are in the group General."""

_MOVED: Final[Mapping[tuple[str, str], str]] = {
    ("audit", "target"): "Selection",
    ("audit", "diff"): "Fix",
    ("check", "device"): "TensorFlow",
    ("check", "weights"): "Input",
    ("check", "reference"): "Policy",
    ("tune", "device"): "TensorFlow",
    ("tune", "weights"): "Input",
}
"""Options that mean something else in a command, and their group in it."""

GENERAL: Final = "General"

EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "inspect": (
        ("policytool inspect model.h5", "one model"),
        ("policytool inspect 'runs/**/*.keras' --only mixed", "only layers with a mixed policy"),
        ("git diff -z --name-only | policytool inspect -0 -", "a list of paths on stdin"),
        ("policytool inspect runs/ --cache .cache", "read only models that changed"),
        ("policytool inspect models/ --summary", "one summary of all models"),
        (
            "policytool inspect models/ --scheduler tcp://10.0.0.5:8786 --format jsonl",
            "on a Dask cluster",
        ),
    ),
    "audit": (
        ("policytool audit models/ --target keras3", "check whether models load in Keras 3"),
        ("policytool audit model.h5 --fix --diff", "preview the safe fixes"),
        ("policytool audit models/ --cache .cache", "read only models that changed"),
        ("policytool audit models/ --write-baseline known.json", "record the current findings"),
        (
            "git ls-files -z | policytool audit -0 - --skip-unrecognized",
            "audit the models tracked in a Git repository",
        ),
        (
            "policytool audit models/ --shard 3/16 --format jsonl > part-3.jsonl",
            "audit one of 16 parts, for `policytool merge`",
        ),
    ),
    "migrate": (
        ("policytool migrate old.h5 --target keras3", "convert a model to the newest Keras"),
        ("policytool migrate model.h5 --to mixed_bfloat16 --dry-run", "preview another policy"),
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
            "policytool check model.h5 --to float16 --inputs x.npy --accept-undecided",
            "fail only if predictions change",
        ),
        (
            "policytool check model.h5 --inputs data.npz --compare-to before.json",
            "find regressions since an earlier check",
        ),
    ),
    "tune": (
        ("policytool tune model.keras --to mixed_float16 --inputs data.npz", "use your own inputs"),
        (
            "policytool tune model.keras --to mixed_float16 --tolerance 0.001 --dry-run",
            "search with synthetic inputs without writing",
        ),
        (
            "policytool tune model.h5 --to float16 --inputs x.npy --labels y.npy --metric accuracy",
            "keep the accuracy",
        ),
        (
            "policytool tune model.keras --to mixed_float16 --inputs data.npz --resume trials.json",
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
    ),
    "policies": (
        ("policytool policies", "list all policies"),
        ("policytool policies mixed_float16", "show one policy in the format of each release"),
    ),
    "rules": (
        ("policytool rules", "list all rules"),
        ("policytool rules PT101", "explain one rule"),
    ),
    "limits": (("policytool limits", "list all limits"),),
    "completion": (
        ('eval "$(policytool completion bash)"', "in ~/.bashrc"),
        ('eval "$(policytool completion zsh)"', "in ~/.zshrc, after compinit"),
        (
            "policytool completion fish > ~/.config/fish/completions/policytool.fish",
            "install the fish completions",
        ),
    ),
}
"""Command to example calls, each with its purpose."""

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
        ("1", "predictions exceed the tolerance, or --check found a change"),
        _USAGE,
        ("3", "a model could not be read, converted or written"),
        _NO_MODEL,
    ),
    "merge": (
        ("0, 1 or 4", "the exit code of one run over all inputs"),
        _USAGE,
        ("3", "also if a report is damaged, incomplete, missing or there twice"),
    ),
    "check": (
        ("0", "safe, or undecided with --accept-undecided"),
        ("1", "not safe, or a regression since the earlier check"),
        _USAGE,
        _FAILURE,
        _NO_MODEL,
        ("5", "undecided: the inputs cannot show whether predictions change"),
    ),
    "tune": (
        ("0", "a set of layers meets the objective"),
        ("1", "no set of layers was found that meets the objective"),
        _USAGE,
        ("3", "the model could not be read, run or written"),
        _NO_MODEL,
    ),
    "explain": (("0", "at least one entry matches"), _USAGE, ("4", "no entry matches")),
    "diff": (("0", "the models are equal"), ("1", "the models differ"), _USAGE, _FAILURE),
}


def group(command: str, option: str) -> str:
    """Return the group of a command's option."""
    listed = next((title for title, names in _GROUPS.items() if option in names), GENERAL)
    return _MOVED.get((command, option), listed)


def options_by_group(
    command: click.Command, context: click.Context
) -> dict[str, list[click.Option]]:
    """Return a command's visible options by group, without empty groups."""
    found: dict[str, list[click.Option]] = {title: [] for title in (*_GROUPS, GENERAL)}
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and not parameter.hidden:
            found[group(str(command.name), str(parameter.name))].append(parameter)
    return {title: options for title, options in found.items() if options}


def write_options(
    command: click.Command, context: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write a command's options, group by group."""
    for title, options in options_by_group(command, context).items():
        records = [option.get_help_record(context) for option in options]
        with formatter.section(f"{title} options"):
            formatter.write_dl([record for record in records if record is not None])


def write_epilog(command: str, formatter: click.HelpFormatter) -> None:
    """Write the examples of a command, and its exit codes if it has special ones."""
    with formatter.section("Examples"):
        for call, purpose in EXAMPLES[command]:
            formatter.write(f"{'':{formatter.current_indent}}# {purpose}\n")
            formatter.write(f"{'':{formatter.current_indent}}{call}\n")
    if command in _CODES:
        with formatter.section("Exit codes"):
            formatter.write_dl(list(_CODES[command]))


def exit_codes(command: str) -> tuple[tuple[str, str], ...]:
    """Return the special exit codes of a command, each with its meaning."""
    return _CODES.get(command, ())


def grouped_options() -> frozenset[str]:
    """Return the options that a group names."""
    return frozenset(
        {*(name for names in _GROUPS.values() for name in names), *(name for _, name in _MOVED)}
    )
