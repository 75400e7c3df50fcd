"""Runs over many models: ``--shard I/N``, one of N parts of them, and ``--cache DIR``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from policytool.cli import messages
from policytool.cli.exit_codes import Exit
from policytool.commands.batch.task import MOST, Shard
from policytool.support.errors import UsageError
from policytool.support.files.remote_path import check_local

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.commands.batch.cache import ResultCache

_FORM: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


class ShardOption(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """``I/N``, such as ``3/16``."""

    name = "shard"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> Shard:
        """Return the shard for a text such as 3/16."""
        if isinstance(value, Shard):
            return value
        match = _FORM.fullmatch(str(value).strip())
        index, count = (int(match[1]), int(match[2])) if match is not None else (0, 0)
        if not 1 <= index <= count <= MOST:
            self.fail(
                f"{value!r} does not have the form I/N with 1 <= I <= N <= {MOST:,}, such as 3/16",
                parameter,
                context,
            )
        return Shard(index=index, count=count)


def no_model(every: Sequence[object], shard: Shard | None, *, is_ok: bool = False) -> Exit:
    """
    Say that no model was found, and return the exit code: another shard may have found one.

    :param every: the inputs of all shards
    :param is_ok: whether this is success without a shard too
    """
    if is_ok or (shard is not None and every):
        messages.note("no model found" + (f" in shard {shard}" if shard is not None else ""))
        return Exit.CLEAN
    messages.error("no model found")
    return Exit.NO_MODEL


def open_cache(directory: str | None) -> ResultCache | None:
    """
    Return the cache in a directory, which is created if it does not exist; None without one.

    :raises CacheError: if the directory cannot be created or read.
    """
    if directory is None:
        return None
    from policytool.commands.batch.cache import ResultCache  # only where it is asked for

    return ResultCache(Path(directory))


def report_use(cache: ResultCache | None, *, verbose: bool, quiet: bool) -> None:
    """Say on stderr how many results came from the cache, and why none were added."""
    if cache is None or quiet:
        return
    if cache.unwritten is not None:
        reason = cache.unwritten.strerror or cache.unwritten
        messages.warning(f"--cache {cache.directory} could not keep all results: {reason}")
    if verbose:
        messages.note(f"{cache.found} of {cache.asked} results came from the cache")


def check_cache(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    """
    Return the directory.

    :raises UsageError: for an empty name, and a URL.
    """
    if value is not None and not value:
        raise UsageError("--cache has an empty value; specify a directory")
    if value is not None:
        check_local(value, "--cache ")
    return value
