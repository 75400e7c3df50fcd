"""The options for what a model is run with, alike in ``check`` and ``tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from policytool.cli import completion
from policytool.cli.local_paths import LocalPath, check_local
from policytool.numerics.user_functions import UserFunction, file_or_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem


class InputsSource(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """A file, or a function as ``MODULE:FUNCTION``."""

    name = "inputs"

    def convert(
        self,
        value: str | Path | UserFunction,
        _param: click.Parameter | None,
        _ctx: click.Context | None,
    ) -> Path | UserFunction:
        """Return which of the two a text names."""
        if not isinstance(value, str):
            return value
        check_local(value, "--inputs ")
        return file_or_function(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer files."""
        return completion.files(ctx, param, incomplete)


def options(synthetic: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """
    Add ``--weights``, ``--inputs``, ``--batches``, ``--batch-size`` and ``--seed``.

    :param synthetic: how many synthetic batches there are by default, as the help shows it
    """
    found = (
        click.option(
            "--weights",
            type=LocalPath(path_type=Path),
            metavar="FILE",
            help="Weights file, if MODEL contains only an architecture.",
        ),
        click.option(
            "--inputs",
            type=InputsSource(),
            metavar="FILE|MODULE:FUNCTION",
            help="A .npz file with one array for each input, a .npy file for a model with one "
            "input, or a function that returns or yields batches, such as my_data:batches.  "
            "[default: synthetic inputs]",
        ),
        click.option(
            "--batches",
            type=click.IntRange(min=1),
            metavar="N",
            help="Number of synthetic batches, or maximum number of batches from the --inputs "
            f"function.  [default: {synthetic}; all batches from the function]",
        ),
        click.option(
            "--batch-size", type=click.IntRange(min=1), metavar="N", help="Examples per batch."
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=1,
            show_default=True,
            metavar="N",
            help="Random seed for synthetic inputs and missing weights.",
        ),
    )

    def add(function: Callable[..., int]) -> Callable[..., int]:
        for option in reversed(found):
            function = option(function)
        return function

    return add


labels: Final = click.option(
    "--labels",
    type=LocalPath(path_type=Path),
    metavar="FILE",
    help="Labels for --metric: a .npz file with one array for each output, or a .npy file for a "
    "model with one output.",
)
