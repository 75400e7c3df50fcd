"""
From a model that a loader does not take to one that it does: decoded, rewritten, judged, and encoded. Pure; nothing is read or written here.

``architecture`` is the model between the two; ``decoding`` and ``encoding`` are what generations write, ``keras2_graph`` and ``keras3_graph`` how each
writes the calls of a functional model; ``rewrites`` are what has to be said otherwise; ``arguments`` holds every key against what the target takes;
``variables`` says where each stored variable goes, and ``compiled`` what becomes of optimizer, loss and metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.conversion import arguments, decoding, encoding
from policytool.conversion.rewrites import REWRITES, Situation
from policytool.errors import SpellingError

if TYPE_CHECKING:
    from policytool.conversion.architecture import Unit
    from policytool.conversion.log import Log
    from policytool.conversion.target import Target
    from policytool.planning.subject import Subject


def rewritten(subject: Subject, target: Target, log: Log, *, allow_weight_rewrite: bool = False) -> Unit | None:
    """Return a file's model as the target has it; None, with a refusal in the log, where its config is none that a release writes."""
    situation = Situation(subject=subject, target=target, log=log, allow_weight_rewrite=allow_weight_rewrite)
    try:
        root = decoding.decode(subject)
    except SpellingError as error:
        log.refuse("config", None, str(error))
        return None
    for rewrite in REWRITES:
        if rewrite.applies(situation):
            root = rewrite.apply(root, situation)
    return arguments.judged(root, target, log)


__all__ = ["encoding", "rewritten"]
