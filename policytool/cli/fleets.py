"""Runs over many models, or over one of N parts of them, with ``--cache DIR``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from policytool.cli import messages
from policytool.cli.exit_codes import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.commands.batch.cache import ResultCache
    from policytool.commands.batch.task import Shard


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
