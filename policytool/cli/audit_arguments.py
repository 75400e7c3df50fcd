"""
The options of ``audit`` that only the command line has: in Python, an audit returns every finding
and changes no file.
"""

from datetime import date
from pathlib import Path
from typing import Annotated, Final, Literal

from policytool.cli.arguments import CacheArguments
from policytool.cli.declared_options import CommandLineOption
from policytool.commands.arguments.declaration import Group, Kind
from policytool.releases import policy
from policytool.rules import selection
from policytool.rules.selection.suppressions import PathPattern, PerFileIgnore, Suppression
from policytool.support.errors import PolicyNameError, UsageError, short
from policytool.support.files.remote_path import check_local
from policytool.support.patterns.matching import check_pattern
from policytool.support.text.phrases import did_you_mean

_SUPPRESS_KEYS: Final = ("rules", "path", "layer", "reason", "expires")


def _folder(file: Path) -> Path:
    return file.parent.resolve()  # the working directory in model paths is also resolved


def _per_file(text: str, folder: Path, option: str) -> PerFileIgnore:
    glob, _, rules = text.rpartition(":")
    if not glob or not rules:
        raise UsageError(
            f"{option} {text!r} does not have the form GLOB:RULES: expected a glob for files, a "
            "colon, and rules separated by commas, such as old/**:PT1"
        )
    return _ignore(glob, (rules,), folder, option)


def _ignore(glob: str, rules: tuple[str, ...], folder: Path, option: str) -> PerFileIgnore:
    words = tuple(selector.text for selector in selection.selectors(rules, option))
    return PerFileIgnore(
        pattern=_pattern(glob, folder, option),
        words=words,
        rules=selection.ids_of(rules, option),
    )


def _pattern(glob: str, folder: Path, subject: str) -> PathPattern:
    pattern = PathPattern(glob=glob, base=folder.as_posix())
    pattern.check(subject)
    return pattern


def _words(value: object, subject: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(f"{subject} must be a list of strings")
    return tuple(value)


def _suppression(entry: object, subject: str, folder: Path) -> Suppression:
    """
    Return the suppression in a table.

    :raises UsageError: for unknown keys, invalid values and missing required keys.
    """
    if not isinstance(entry, dict):
        raise UsageError(f"{subject} is not a table")
    unknown = sorted(entry.keys() - set(_SUPPRESS_KEYS))
    if unknown:
        raise UsageError(
            f"{subject} has the unknown key {unknown[0]!r}"
            f"{did_you_mean(unknown[0], _SUPPRESS_KEYS)} Known keys: {', '.join(_SUPPRESS_KEYS)}"
        )
    reason, path, layer, expires = (
        entry.get(key) for key in ("reason", "path", "layer", "expires")
    )
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"{subject} has no reason; explain why the findings are suppressed")
    if "rules" not in entry:
        raise UsageError(
            f"{subject} has no rules; list rule IDs such as PT101, prefixes such as PT1, names, or "
            "ALL"
        )
    if not isinstance(path, str | None) or path == "":
        raise UsageError(f"{subject} has an invalid path: {path!r}; expected a glob")
    if expires is not None and type(expires) is not date:  # datetime is a subclass of date
        raise UsageError(
            f"{subject} has an invalid expiry date; specify a date without quotes, such as "
            "expires = 2030-12-31"
        )
    rules = _words(entry["rules"], f"{subject} rules")
    return Suppression(
        words=tuple(selector.text for selector in selection.selectors(rules, subject)),
        rules=selection.ids_of(rules, subject),
        reason=reason.strip(),
        path=_pattern(path, folder, subject) if path is not None else None,
        layer=_read_layer_pattern(layer, subject),
        expires=expires,
    )


def _read_layer_pattern(layer: object, subject: str) -> str | None:
    """
    Return the layer path or regular expression of a suppression, unchanged; None if it has
    none.

    :raises UsageError: if it is not a text, empty, or an invalid expression
    """
    if not isinstance(layer, str | None) or layer == "":
        raise UsageError(
            f"{subject} has an invalid layer: {layer!r}; expected a layer path or a regular "
            "expression"
        )
    check_pattern(layer or "", f"{subject} has an invalid layer: {short(layer or '')!r}")
    return layer


def read_ignores(value: object, file: Path) -> tuple[PerFileIgnore, ...]:
    """Return the ignores of a list of ``GLOB:RULES``, or of a table of globs with their rules."""
    option, folder = f"{file} per-file-ignores", _folder(file)
    if isinstance(value, dict):
        return tuple(
            _ignore(glob, _words(rules, f"{option} {glob!r}"), folder, option)
            for glob, rules in value.items()
        )
    return tuple(_per_file(text, folder, option) for text in _words(value, option))


def read_suppressions(value: object, file: Path) -> tuple[Suppression, ...]:
    """
    Return the suppressions of an array of tables.

    :raises UsageError: for a value of another form
    """
    if not isinstance(value, list):
        raise UsageError(
            f"{file}: the key 'suppress' must be an array of tables; write [[suppress]]"
        )
    return tuple(
        _suppression(entry, f"{file} [[suppress]] {number}", _folder(file))
        for number, entry in enumerate(value, start=1)
    )


def read_policies(value: object, file: Path) -> tuple[str, ...]:
    """
    Return the names of policies in a list.

    :raises UsageError: for a name that no release knows
    """
    names = _words(value, f"{file} forbid")
    try:
        return tuple(policy.policy_from_name(name).name for name in names)
    except PolicyNameError as error:
        raise UsageError(f"{file}: the key 'forbid' must list policies: {error}") from error


def read_path(value: object, file: Path) -> str:
    """
    Return the path of a file, which is relative to the settings file.

    :raises UsageError: for a URL, and for a value that is not a name
    """
    if not isinstance(value, str) or not value:
        raise UsageError(f"{file}: the key 'baseline' must be a file name, not {value!r}")
    check_local(value, f"{file}: the baseline ")
    return str(_folder(file) / value)


class AuditCommandLine(CacheArguments):
    """The options of ``audit`` that Python does not have."""

    per_file_ignores: Annotated[
        tuple[PerFileIgnore, ...],
        CommandLineOption(
            "Suppress findings of these rules in files that match GLOB.",
            Group.SELECTION,
            is_only_setting=True,
            from_file=read_ignores,
            is_automatic=True,
        ),
    ] = ()
    suppress: Annotated[
        tuple[Suppression, ...],
        CommandLineOption(
            "Suppress the findings that a [[suppress]] table describes, with its reason.",
            Group.SELECTION,
            is_only_setting=True,
            from_file=read_suppressions,
            is_automatic=True,
        ),
    ] = ()
    forbid: Annotated[
        tuple[str, ...],
        CommandLineOption(
            "Report layers with these policies, such as float16, and graphs in their dtypes, as "
            "errors.",
            Group.SELECTION,
            is_only_setting=True,
            from_file=read_policies,
            is_automatic=True,
        ),
    ] = ()
    fail_on: Annotated[
        Literal["error", "warning", "note", "never"],
        CommandLineOption(
            "Exit 1 if any finding has this severity or higher.",
            Group.SELECTION,
            essential=True,
            has_variable=True,
            is_automatic=True,
        ),
    ] = "warning"
    skip_unrecognized: Annotated[
        bool,
        CommandLineOption(
            "Skip named files that are not models, instead of failing with exit code 3, and exit 0 "
            "if no model is found.",
            Group.SELECTION,
            has_variable=True,
        ),
    ] = False
    # A program that appends file names to the arguments of a user cannot add -- itself.
    require_separator: Annotated[
        bool,
        CommandLineOption(
            "Fail without -- between the options and the paths, so that no path is an option.",
            Group.SELECTION,
            is_passed=False,
            is_setting=False,
        ),
    ] = False
    baseline: Annotated[
        Path | None,
        CommandLineOption(
            "Ignore findings recorded in this baseline.",
            Group.SELECTION,
            essential=True,
            kind=Kind.FILE,
            metavar="FILE",
            from_file=read_path,
            has_variable=True,
            is_automatic=True,
        ),
    ] = None
    write_baseline: Annotated[
        Path | None,
        CommandLineOption(
            "Record all findings in this baseline, and ignore them.",
            Group.SELECTION,
            essential=True,
            kind=Kind.FILE,
            metavar="FILE",
            from_file=read_path,
            has_variable=True,
        ),
    ] = None

    fix: Annotated[
        bool,
        CommandLineOption(
            "Apply safe fixes in place, and keep the original as NAME.bak.",
            Group.FIX,
            essential=True,
            has_variable=True,
        ),
    ] = False
    unsafe_fixes: Annotated[
        bool,
        CommandLineOption(
            "With --fix or --diff, include fixes that change numerics or training.",
            Group.FIX,
            has_variable=True,
        ),
    ] = False
    diff: Annotated[
        bool,
        CommandLineOption(
            "Show the changes that --fix would make, without writing them.",
            Group.FIX,
            essential=True,
            has_variable=True,
        ),
    ] = False
    backup: Annotated[
        bool,
        CommandLineOption(
            "With --fix, keep the original as NAME.bak.",
            Group.SAFETY,
            is_negatable=True,
            has_variable=True,
        ),
    ] = True
