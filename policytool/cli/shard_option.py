"""``--shard I/N``: process one of N parts of the inputs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from policytool.cli import messages
from policytool.cli.exit_codes import Exit
from policytool.commands.batch.shards import MOST, Shard

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORM: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


class ShardOption(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """``I/N``, such as ``3/16``."""

    name = "shard"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> Shard:
        """Return the shard that a text names."""
        if isinstance(value, Shard):
            return value
        found = _FORM.fullmatch(str(value).strip())
        index, count = (int(found[1]), int(found[2])) if found is not None else (0, 0)
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
