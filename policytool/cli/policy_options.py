"""The options by which layers get other policies, alike in every command that plans so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from policytool.migration.planning.options import Outputs

if TYPE_CHECKING:
    from collections.abc import Callable


def options(function: Callable[..., int]) -> Callable[..., int]:
    """Add ``--set``, ``--include-exceptions`` and ``--outputs``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS: Final = (
    click.option(
        "--set",
        "set",
        multiple=True,
        metavar="PATTERN=POLICY",
        help="Set the policy of matching layers. PATTERN is a layer path, or a regular "
        "expression that matches the full path.",
    ),
    click.option(
        "--include-exceptions",
        is_flag=True,
        help="With --to, also change layers with an explicit policy.",
    ),
    click.option(
        "--outputs",
        type=click.Choice([one.value for one in Outputs]),
        default=Outputs.KEEP.value,
        show_default=True,
        help="Keep the layers that compute the outputs, and those after them, in float32 under a "
        "16-bit policy, or change them in the same way as other layers.",
    ),
)
