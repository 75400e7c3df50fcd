"""``diff``: reads two models and compares them."""

from __future__ import annotations

import functools
import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from policytool import comparison as comparing
from policytool.commands.batch.isolation import failure_from, run_isolated
from policytool.commands.inspect import Failure
from policytool.comparison.result import NO_VALUES
from policytool.comparison.variables import Opened
from policytool.formats import discovery, format_detection
from policytool.support import steps
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.files.remote_path import without_secrets
from policytool.support.patterns.matching import check_pattern, matching_in
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.comparison.result import Comparison
    from policytool.formats.discovery import Input
    from policytool.support.files.remote_path import AnyPath


class DiffOutcome(Struct, frozen=True, kw_only=True):
    """The result of a call: a comparison, or the failures to read the models."""

    comparison: Comparison | None = None
    failures: tuple[Failure, ...] = ()


def diff(a: str, b: str, *, values: bool = True, layer: str | None = None) -> Comparison:
    """
    Return the comparison of two saved models.

    :param values: whether to read and compare stored values; otherwise, only names, shapes and
        dtypes of variables are compared
    :param layer: compare only the layer with this path, or else the layers whose paths fully match
        it as a regular expression
    :raises ModelFileError: if a path is not a readable model.
    :raises UsageError: if the pattern is not a regular expression, or matches no layer.
    """
    return _compare_sides([_read(path) for path in (a, b)], values=values, layer=layer)


def try_diff(a: str, b: str, *, values: bool = True, layer: str | None = None) -> DiffOutcome:
    """
    Do the same as :func:`diff`, and return a failure for each file that cannot be read.

    :raises UsageError: if the pattern is not a regular expression, or matches no layer.
    """
    if lost_file := crash_guard.split():
        return DiffOutcome(failures=(failure_from(lost_file.path, lost_file),))
    sides: list[_Read] = []
    failures: list[Failure] = []
    for path in (a, b):
        crash_guard.set_next_file(
            without_secrets(path), "could not be read: the worker process {how}"
        )
        side = run_isolated(without_secrets(path), functools.partial(_read, path))
        if isinstance(side, Failure):
            failures.append(side)
        else:
            sides.append(side)
    if failures:
        return DiffOutcome(failures=tuple(failures))
    crash_guard.set_next_file(
        f"{without_secrets(a)} or {without_secrets(b)}",
        "could not be compared: the worker process {how}",
    )
    try:
        return DiffOutcome(comparison=_compare_sides(sides, values=values, layer=layer))
    except ModelFileError as error:
        return DiffOutcome(failures=(failure_from(error.path, error),))


def inputs(*paths: str) -> list[Input]:
    """
    Return the models that the paths name; a path that names no model is left out.

    :raises UsageError: for a URL.
    """
    return [
        source
        for path in paths
        for source in itertools.islice(discovery.inputs([path], remote=True), 1)
    ]


class _Read(Struct, frozen=True, kw_only=True):
    """A model to compare, with its path."""

    path: AnyPath
    subject: comparing.ComparedModel


def _read(path: str) -> _Read:
    """Return one model of a comparison."""
    source = discovery.named_input(path, remote=True)
    with steps.budget(source.display_path):
        document = format_detection.document(source.path, source.display_path)
        return _Read(path=source.path, subject=comparing.compared_model(document))


def _compare_sides(sides: list[_Read], *, values: bool, layer: str | None) -> Comparison:
    """Return the comparison of two models, of the selected layers only if there is a pattern."""
    subjects = [side.subject for side in sides]
    is_selected = _pattern(layer, subjects) if layer is not None else None
    with ExitStack() as stack:
        # the limits for one file apply to both models together
        both = dict.fromkeys(subject.document.path for subject in subjects)
        stack.enter_context(steps.budget(" or ".join(both)))
        opened = Opened(reason=NO_VALUES)
        if values:
            from policytool.formats.format_detection import open_values

            stored = [
                stack.enter_context(open_values(side.path, side.subject.document)) for side in sides
            ]
            opened = Opened(a=stored[0], b=stored[1])
        return comparing.compare_models(subjects[0], subjects[1], opened, is_selected)


def _pattern(
    pattern: str, subjects: list[comparing.ComparedModel]
) -> Callable[[frozenset[str]], bool]:
    """
    Return a function that tests the paths of a layer: whether one of them equals the pattern, or,
    if no layer has this path, whether one of them fully matches the pattern.

    :raises UsageError: if the pattern is not a regular expression, or matches no layer.
    """
    paths = {
        path
        for subject in subjects
        for compared in subject.layers
        for path in (compared.layer.path, *compared.layer.also_at)
    }
    if pattern in paths:
        return lambda layer_paths: pattern in layer_paths
    check_pattern(pattern, f"--layer {pattern!r} is not a layer path and")
    with matching_in(subjects[0].document.path) as matcher:
        matching = {path for path in paths if matcher.fullmatch(pattern, path)}
    if not matching:
        names = dict.fromkeys(subject.document.path for subject in subjects)
        raise UsageError(
            f"--layer {pattern!r} matches no layer of {' or '.join(names)}; `policytool inspect` "
            "lists the layer paths"
        )
    return lambda layer_paths: not matching.isdisjoint(layer_paths)
