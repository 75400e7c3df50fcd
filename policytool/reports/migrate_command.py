"""The ``migrate`` command of options, as it is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.migration.planning.options import Outputs
from policytool.reports import shell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.planning.options import Options


def migrate_command(path: str, options: Options) -> tuple[str, ...]:
    """Return the words of a command, without an output."""
    return ("policytool", "migrate", shell.file(path), *_words(options))


def _words(options: Options) -> Iterator[str]:
    if options.to is not None:
        yield from ("--to", options.to)
    if options.include_exceptions:
        yield from ("--include", "exceptions")
    if options.outputs is not Outputs.KEEP:
        yield from ("--include", "outputs")
    if options.target is not None:
        yield from ("--target", options.target)
    if options.retrace:
        yield "--retrace"
    for one in options.assignments:
        yield from ("--set", f"{one.pattern}={one.policy}")
