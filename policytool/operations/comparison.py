"""``diff``: read two models, and compare them."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

from policytool import comparing, discovery, recognition
from policytool.comparing.variables import Opened
from policytool.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.comparison import Comparison
    from policytool.discovery import Input


def diff(a: str, b: str, *, values: bool = True, layer: str | None = None) -> Comparison:
    """
    Return what differs between two saved models.

    :param values: whether to read and compare stored values; without them names, shapes and dtypes of variables are compared
    :param layer: an exact layer path, else a regular expression that a path must match in full
    :raises ModelFileError: for what is no model that can be read.
    :raises UsageError: for a pattern that is no regular expression, or that no layer matches.
    """
    found = [_the_model(path) for path in (a, b)]
    documents = [recognition.document(one.path, one.shown) for one in found]
    subjects = [comparing.subject(document) for document in documents]
    keep = _pattern(layer, subjects) if layer is not None else None
    with ExitStack() as stack:
        opened = Opened(reason="--no-values was given")
        if values:
            from policytool.values import open_values  # NumPy, and h5py for most files

            stored = [stack.enter_context(open_values(one.path, document)) for one, document in zip(found, documents, strict=True)]
            opened = Opened(a=stored[0], b=stored[1])
        return comparing.compared(subjects[0], subjects[1], opened, keep)


def _the_model(path: str) -> Input:
    found = next(iter(discovery.inputs([path])), None)
    if found is None or not found.exact:
        raise ModelFileError(path, "no-model", "is a directory without a model of its own; name the model in it")
    return found


def _pattern(pattern: str, subjects: list[comparing.Subject]) -> Callable[[frozenset[str]], bool]:
    """Return a test of a layer's paths: one of them is the pattern, or else matches it in full."""
    paths = {path for subject in subjects for held in subject.layers for path in (held.layer.path, *held.layer.also_at)}
    if pattern in paths:
        return lambda found: pattern in found
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--layer {pattern!r} is neither a layer path nor a regular expression: {error}") from error
    if not any(expression.fullmatch(path) for path in paths):
        raise UsageError(f"--layer {pattern!r} matches no layer of either model; `policytool inspect` lists their paths")
    return lambda found: any(expression.fullmatch(path) for path in found)
