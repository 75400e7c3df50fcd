"""``--cache``: a directory that keeps the results of unchanged models for later runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from policytool.cli import messages
from policytool.support.errors import UsageError
from policytool.support.files.remote_path import check_local

if TYPE_CHECKING:
    import click

    from policytool.commands.batch.cache import ResultCache


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
