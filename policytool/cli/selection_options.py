"""The options and settings of ``audit`` that say which findings count."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import click

from policytool.cli import completion, settings
from policytool.cli.local_paths import LocalPath, check_local
from policytool.rules import Device
from policytool.rules.finding import Severity
from policytool.rules.selection import selectors
from policytool.rules.selection.patterns import PathPattern
from policytool.rules.selection.suppressions import PerFileIgnore, Suppression
from policytool.support.errors import UsageError, short
from policytool.support.patterns.matching import check_pattern
from policytool.support.suggestion import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NEVER: Final = "never"
"""What ``--fail-on`` has beside the severities."""

_SUPPRESS_KEYS: Final = ("rules", "path", "layer", "reason", "expires")


class PerFile(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """
    ``GLOB:RULES``, relative to the working directory; what a settings file has was read already.
    """

    name = "per-file-ignore"
    envvar_list_splitter: ClassVar[str] = ";"
    """Between several in ``POLICYTOOL_PER_FILE_IGNORES``."""

    def convert(
        self, value: object, _parameter: click.Parameter | None, _context: click.Context | None
    ) -> PerFileIgnore:
        """Return what a text says."""
        return (
            value
            if isinstance(value, PerFileIgnore)
            else _per_file(str(value).strip(), Path.cwd(), "--per-file-ignores")
        )


def suppressions() -> tuple[Suppression, ...]:
    """Return the suppressions of the settings file of the running command."""
    found: tuple[Suppression, ...] = click.get_current_context().meta.get(
        f"{settings.STRUCTURED}suppress", ()
    )
    return found


def selection_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _folder(file: Path) -> Path:
    return file.parent.resolve()  # as the working directory is, which model paths begin with


def _per_file(text: str, folder: Path, option: str) -> PerFileIgnore:
    glob, _, rules = text.rpartition(":")
    if not glob or not rules:
        raise UsageError(
            f"{option} {text!r} does not have the form GLOB:RULES: expected a glob for files, a "
            "colon, and rules separated by commas, such as old/**:PT1"
        )
    return _ignore(glob, (rules,), folder, option)


def _ignore(glob: str, rules: tuple[str, ...], folder: Path, option: str) -> PerFileIgnore:
    words = tuple(one.text for one in selectors.selectors(rules, option))
    return PerFileIgnore(
        pattern=_pattern(glob, folder, option),
        words=words,
        rules=selectors.ids_of(rules, option),
    )


def _pattern(glob: str, folder: Path, what: str) -> PathPattern:
    pattern = PathPattern(glob=glob, base=folder.as_posix())
    pattern.check(what)
    return pattern


def _words(value: object, what: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{what} must be a list of strings")
    return tuple(value)


def _suppression(entry: object, what: str, folder: Path) -> Suppression:
    """
    Return what one table says.

    :raises UsageError: for unknown keys, wrong values, and where a key that is needed is not there.
    """
    if not isinstance(entry, dict):
        raise UsageError(f"{what} is not a table")
    unknown = sorted(entry.keys() - set(_SUPPRESS_KEYS))
    if unknown:
        raise UsageError(
            f"{what} has the unknown key {unknown[0]!r}"
            f"{did_you_mean(unknown[0], _SUPPRESS_KEYS)} Known keys: {', '.join(_SUPPRESS_KEYS)}"
        )
    reason, path, layer, expires = (
        entry.get(key) for key in ("reason", "path", "layer", "expires")
    )
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"{what} has no reason; explain why the findings are suppressed")
    if "rules" not in entry:
        raise UsageError(
            f"{what} has no rules; list rule IDs such as PT101, prefixes such as PT1, or names"
        )
    if not isinstance(path, str | None) or path == "":
        raise UsageError(f"{what} has an invalid path: {path!r}; expected a glob")
    if expires is not None and type(expires) is not date:  # a date with a time is a date too
        raise UsageError(
            f"{what} has an invalid expiry date; specify a date without quotes, such as expires = "
            "2030-12-31"
        )
    rules = _words(entry["rules"], f"{what} rules")
    return Suppression(
        words=tuple(one.text for one in selectors.selectors(rules, what)),
        rules=selectors.ids_of(rules, what),
        reason=reason.strip(),
        path=_pattern(path, folder, what) if path is not None else None,
        layer=_layer(layer, what),
        expires=expires,
    )


def _layer(layer: object, what: str) -> str | None:
    if not isinstance(layer, str | None) or layer == "":
        raise UsageError(
            f"{what} has an invalid layer: {layer!r}; expected a layer path or a regular expression"
        )
    check_pattern(layer or "", f"{what} has an invalid layer: {short(layer or '')!r}")
    return layer


def _ignores(value: object, file: Path) -> list[PerFileIgnore]:
    option, folder = f"{file} per-file-ignores", _folder(file)
    if isinstance(value, dict):
        return [
            _ignore(glob, _words(rules, f"{option} {glob!r}"), folder, option)
            for glob, rules in value.items()
        ]
    return [_per_file(text, folder, option) for text in _words(value, option)]


def _suppressions(value: object, file: Path) -> tuple[Suppression, ...]:
    if not isinstance(value, list):
        raise UsageError(
            f"{file}: the key 'suppress' must be an array of tables; write [[suppress]]"
        )
    return tuple(
        _suppression(entry, f"{file} [[suppress]] {number}", _folder(file))
        for number, entry in enumerate(value, start=1)
    )


def _path(value: object, file: Path) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{file}: the key 'baseline' must be a file name, not {value!r}")
    check_local(value, f"{file}: the baseline ")
    return str(_folder(file) / value)


class AuditCommand(settings.Command):
    """The command, with the settings that only it has."""

    structured: ClassVar[Mapping[str, settings.FromFile]] = {
        "per-file-ignores": _ignores,
        "suppress": _suppressions,
        "baseline": _path,
        "write-baseline": _path,
    }

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """
        Parse the arguments.

        :raises UsageError: if ``--require-separator`` is present and ``--`` is not.
        """
        end = args.index("--") if "--" in args else len(args)
        if _SEPARATED in args[:end] and not ctx.resilient_parsing:
            if end == len(args):
                raise UsageError(
                    f"{_SEPARATED} requires -- between the options and the paths; in "
                    ".pre-commit-config.yaml, add -- to the end of the hook's args"
                )
            # Raises if -- is the value of the last option, and therefore does not end the options.
            self.make_parser(ctx).parse_args(args[:end])
        return super().parse_args(ctx, args)


_SEPARATED: Final = "--require-separator"

_OPTIONS: Final = (
    click.option(
        "--select",
        multiple=True,
        shell_complete=completion.rules,
        metavar="RULES",
        envvar="POLICYTOOL_SELECT",
        help="Run only these rules: rule IDs, prefixes such as PT1, names, or ALL.",
    ),
    click.option(
        "--ignore",
        multiple=True,
        shell_complete=completion.rules,
        metavar="RULES",
        envvar="POLICYTOOL_IGNORE",
        help="Skip these rules. If --select also names a rule, the more specific selector wins.",
    ),
    click.option(
        "--per-file-ignores",
        multiple=True,
        type=PerFile(),
        metavar="GLOB:RULES",
        envvar="POLICYTOOL_PER_FILE_IGNORES",
        help="Suppress findings of these rules in files that match GLOB.",
    ),
    click.option(
        "--target",
        multiple=True,
        shell_complete=completion.targets,
        metavar="RELEASE",
        envvar="POLICYTOOL_TARGET",
        help="Check compatibility with this release, such as keras3 or tf2.15; repeatable.",
    ),
    click.option(
        "--device",
        type=click.Choice([one.value for one in Device]),
        envvar="POLICYTOOL_DEVICE",
        help="Check kernels and speed on this device.",
    ),
    click.option(
        "--weights",
        is_flag=True,
        envvar="POLICYTOOL_WEIGHTS",
        help="Also read and check the stored values.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice([*(one.value for one in Severity), NEVER]),
        default=Severity.WARNING.value,
        show_default=True,
        envvar="POLICYTOOL_FAIL_ON",
        help="Exit 1 if any finding has this severity or higher.",
    ),
    click.option(
        "--no-models-ok",
        is_flag=True,
        envvar="POLICYTOOL_NO_MODELS_OK",
        help="Exit 0 instead of 4 if no model is found.",
    ),
    click.option(
        "--skip-unrecognized",
        is_flag=True,
        envvar="POLICYTOOL_SKIP_UNRECOGNIZED",
        help="Skip named files that are not models, instead of failing with exit code 3.",
    ),
    # A program that appends file names to the arguments of a user cannot add -- itself.
    click.option(
        _SEPARATED,
        is_flag=True,
        expose_value=False,
        help="Fail without -- between the options and the paths, so that no path is an option.",
    ),
    click.option(
        "--show-suppressed",
        is_flag=True,
        envvar="POLICYTOOL_SHOW_SUPPRESSED",
        help="Also show suppressed findings, with their reasons.",
    ),
    click.option(
        "--baseline",
        type=LocalPath(path_type=Path),
        metavar="FILE",
        envvar="POLICYTOOL_BASELINE",
        help="Ignore findings recorded in this baseline.",
    ),
    click.option(
        "--write-baseline",
        type=LocalPath(path_type=Path),
        metavar="FILE",
        envvar="POLICYTOOL_WRITE_BASELINE",
        help="Record all findings in this baseline, and ignore them.",
    ),
)
