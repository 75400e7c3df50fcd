"""
TensorFlow.js layers models, rewritten: the text of ``model.json`` is edited, and its tensors stay
as they are.

The shards lie where the text says, beside it. A copy in another directory gets copies of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.rewriting import texts
from policytool.formats.tfjs.read import PART, escapes, shards
from policytool.formats.writing.failures import WriteError
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from policytool.formats.edits import Cast
    from policytool.formats.rewriting.base import Rewriter


def _refuse_casts(path: Path, casts: Sequence[Cast]) -> None:
    if casts:
        raise WriteError(
            "not-rewritable",
            f"the tensors of {path.name} cannot be cast in TensorFlow.js files, but the "
            "plan casts some; run again with --preview",
        )


def companions(path: Path) -> tuple[str, ...]:
    """
    Return the shards that a copy needs, relative to the model's directory.

    :raises WriteError: for one that lies elsewhere.
    """
    try:
        model, _ = jsontext.parse(texts.text(path))
    except jsontext.JsonError as error:
        raise WriteError(
            "source-changed", f"{error}, but was valid before; run again with --preview"
        ) from error
    names = shards(model)
    outside = next((name for name in names if escapes(name)), None)
    if outside is not None:
        raise WriteError(
            "not-rewritable",
            f"refers to {outside!r}, a shard outside its directory that cannot be copied; "
            "write the output to the directory of the model",
        )
    return names


REWRITER: Final[Rewriter] = texts.text_rewriter(PART, refuse=_refuse_casts, companions=companions)
