"""Paths that cannot be URLs: those of all files except models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from policytool.support.errors import UsageError
from policytool.support.files.remote_path import is_url, without_secrets

if TYPE_CHECKING:
    import os


class LocalPath(click.Path):
    """A path that is not a URL."""

    def convert(
        self,
        value: Any,  # noqa: ANN401  # as in Click
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return the path."""
        if isinstance(value, str):
            check_local(value, f"{param.opts[0] if param is not None else 'path'} ")
        return super().convert(value, param, ctx)


def check_local(path: str, before: str) -> None:
    """
    Make sure that a path is not a URL.

    :param before: the beginning of the message, up to the path, such as ``--cache`` and a space
    :raises UsageError: for a URL, which is shown without its credentials, and for text that
        contains one: later messages may show a part of it, which does not resemble a URL.
    """
    shown = without_secrets(path)
    if is_url(path) or shown != path:
        raise UsageError(f"{before}{shown} is a URL; specify a local path")
