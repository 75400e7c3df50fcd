"""Removed commands and options, each with a replacement."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

REMOVED_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "rules": "use `policytool explain rules`, or `policytool explain ID` for one rule",
        "policies": (
            "use `policytool explain policies`, or `policytool explain NAME` for one policy"
        ),
        "limits": "use `policytool explain limits`, or `policytool explain NAME` for one limit",
    }
)
"""The end of a sentence with the replacement of each command."""

_MIGRATE: Final = "`policytool migrate MODEL --target keras3`"
COMMANDS_OF_OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("convert", "upgrade", "port"), _MIGRATE),
        "fix": "`policytool audit MODEL --fix`",
        "load": "`policytool.load(MODEL)` in Python, or " + _MIGRATE,
        **dict.fromkeys(("show", "info", "summary"), "`policytool inspect MODEL`"),
        "quantize": '`model.quantize("int8")` of Keras, then `policytool check MODEL QUANTIZED`',
        "export": "`policytool migrate MODEL --target NAME`, with a name of `policytool explain "
        "releases`",
        **dict.fromkeys(("lint", "validate"), "`policytool audit MODEL`"),
        **dict.fromkeys(("compare", "verify"), "`policytool diff A B`"),
    }
)
"""The command that does what a name promises that is not a command."""

_NULL: Final = "lists on stdin may be separated by NUL without an option"

_MEASUREMENTS: Final = ("isolated", "gradients", "timing", "tf32", "deterministic")

REMOVED_OPTIONS: Final[Mapping[tuple[str, ...], Mapping[str, str]]] = MappingProxyType(
    {
        ("migrate",): {
            "--list-targets": "use `policytool explain releases`",
            "--dry-run": "use --preview, which exits 1 if a file would change",
            "--check": "use --preview, which exits 1 if a file would change",
            "--diff": "use --preview --format diff",
            "--loss-scale": "use --keep loss-scale for --loss-scale keep",
            "--optimizer": "use --keep optimizer for --optimizer keep",
            "--allow-overflow": "use --allow overflow",
            "--allow-weight-rewrite": "use --allow weight-rewrite",
            "--skip-existing": "use --existing skip",
            "--backup": "--in-place keeps a backup",
            "--no-backup": "use --in-place=no-backup",
        },
        ("migrate", "check", "tune"): {
            "--include-exceptions": "use --include exceptions",
            "--outputs": "use --include outputs for --outputs follow",
            "--timeout": "use --limit tensorflow-seconds=SECONDS",
            "--memory-limit": "use --limit tensorflow-bytes=SIZE",
        },
        ("migrate", "tune"): {"--overwrite": "use --existing replace"},
        ("tune",): {
            "--dry-run": "use --preview",
            "--max-trials": "use --budget N",
            "--time": "use --budget with the seconds and s, such as 600s",
            "--agreement": "use --metric agreement=0.01 for --agreement 0.99",
            "--prefer": "use --set PATTERN=POLICY for the layers to convert in any case",
            "--keep-rules": "use --set PATTERN=float32 for the layers to keep in float32",
        },
        ("check",): {
            "--list-devices": "use --device list",
            "--record-all": "use --measure values with --record",
            "--save-inputs": "use --record, which also records the inputs",
            "--compare-to": (
                "record a run with --record, and compare another run with it with --against"
            ),
            "--tolerance": "use --max-change PERCENT, the share of predictions that may change",
            "--require": (
                "the exit code is 0 if the answer is safe, and with --accept-undecided also if it "
                "is undecided"
            ),
            "--no-isolated": "layers run in isolation only to explain an error, or on request",
            "--policy": "use --to",
            "--reference": "write the reference with `policytool migrate`, and check both files",
            "--target": "write the candidate with `policytool migrate`, and check both files",
            **{f"--{name}": f"use --measure {name}" for name in _MEASUREMENTS},
        },
        ("audit",): {
            "--overwrite": "remove or rename old backups, or use --no-backup",
            "--show-suppressed": "use -v",
            "--no-models-ok": "use --skip-unrecognized, with which no model is exit code 0",
            "--per-file-ignores": "use the table [per-file-ignores] of a settings file",
        },
        ("check", "tune"): {
            "--batch-size": "use --batches xSIZE, or --batches NxSIZE with the number of batches",
            "--seed": "use --inputs MODULE:FUNCTION for other inputs",
            "--all-layers": "use -v",
            "--max-drop": "use --metric NAME=DROP, such as --metric accuracy=0.002",
        },
        ("inspect", "audit", "migrate", "check", "tune", "diff", "explain", "merge"): {
            "--debug": "use -v",
            "--color": (
                "colors are for terminals; set the variable NO_COLOR=1 to disable them, or "
                "FORCE_COLOR=1 to use them in pipes"
            ),
        },
        ("inspect", "audit", "migrate", "check", "tune"): {
            "--progress": "use -v, which always shows progress, or -q, which never does",
        },
        ("inspect", "audit", "migrate", "check", "tune", "diff"): {
            "--report": "use --format FORMAT=FILE, such as --format json=report.json",
        },
        ("inspect", "audit", "migrate"): {"--scheduler": "use --jobs ADDRESS"},
        ("inspect", "audit", "migrate", "merge"): {"-0": _NULL, "--null": _NULL},
    }
)
"""The removed options of commands, each with the end of a sentence with its replacement."""


def removed_option(option: str, command: str | None = None) -> str | None:
    """
    Return the replacement of an option; None if the option was not removed.

    :param command: the command of the option; None for a settings file, which is for all commands
    """
    return next(
        (
            options[option]
            for commands, options in REMOVED_OPTIONS.items()
            if (command is None or command in commands) and option in options
        ),
        None,
    )
