"""
The report of a run with many models as JSON Lines; its schema is
``policytool/reports/schemas/lines.schema.json``.

A header, one line for each model or failure in the order of the inputs, and an end. The report of a
shard differs from that of a whole run only in the key ``shard`` of the header, the counts in the
end, and the missing lines. The text is ASCII, so that it does not depend on the terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.reports.json_writing import FAILURES, json_text, with_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.commands.batch.shards import Shard
    from policytool.commands.inspect import Failure
    from policytool.support.text.codec import Forms

FORMAT: Final = "jsonl"
VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def header(
    command: str, inputs: tuple[int, str], options: str, no_model: int, shard: Shard | None
) -> str:
    """
    Return the first line.

    :param inputs: how many inputs the whole run has, and the digest of their paths
    :param options: the digest of the options that change other lines
    :param no_model: the exit code of a run that finds no model
    """
    count, digest = inputs
    values = {
        "command": command,
        "inputs": {"count": count, "sha256": digest},
        "options": {"sha256": options},
        "exit_code_without_models": no_model,
        **({} if shard is None else {"shard": {"index": shard.index, "count": shard.count}}),
    }
    return json_text(with_version(VERSION, values), unicode=False)


def merged_header(values: Mapping[str, Any]) -> str:
    """Return the first line of a whole run from that of a shard, without the key ``shard``."""
    return json_text(values, unicode=False)


def model(position: int, values: Mapping[str, Any], forms: Forms) -> str:
    """Return the line of a model; ``values`` are its entry in the JSON report of the command."""
    return json_text({"input": position, "model": values}, forms, unicode=False)


def failure(position: int, found: Failure) -> str:
    """Return the line of an input that could not be processed."""
    return json_text({"input": position, "failure": found}, FAILURES, unicode=False)


def end(counts: Mapping[str, int], exit_code: int) -> str:
    """Return the last line of a run that processed all of its inputs."""
    return json_text({"end": {**counts, "complete": True, "exit_code": exit_code}}, unicode=False)


def early_end(exit_code: int) -> str:
    """Return the last line of a run that something ended before."""
    return json_text({"end": {"complete": False, "exit_code": exit_code}}, unicode=False)
