"""Architecture YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.format import Format
from policytool.formats.yaml_architecture import read

if TYPE_CHECKING:
    from policytool.formats.rewriting.base import Rewriter


def _rewriter() -> Rewriter:
    from policytool.formats.yaml_architecture import rewrite

    return rewrite.REWRITER


FORMAT: Final = Format(
    name="yaml",
    document_format="yaml",
    title="architecture YAML",
    suffixes=(".yaml", ".yml"),
    recognise=read.recognise,
    read=read.read,
    rewriter=_rewriter,
)
