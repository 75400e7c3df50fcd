"""Which layers ``--set PATTERN=POLICY`` means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.support.errors import UsageError
from policytool.support.patterns.matching import check_pattern, matching_in

if TYPE_CHECKING:
    from policytool.migration.planning.options import Assignment
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.patterns.matching import Matcher


def matches(loaded: LoadedModel, assignments: tuple[Assignment, ...]) -> dict[int, Assignment]:
    """
    Return the assignment for each matching site; an exact path wins over regular expressions.

    :raises UsageError: if a pattern matches no layer or is not a regular expression, or if two
        patterns match the same layer.
    :raises ModelFileError: if matching exceeds the limit of steps.
    """
    exact: dict[int, Assignment] = {}
    matched: dict[int, list[Assignment]] = {}
    with matching_in(loaded.document.path) as matcher:
        for assignment in assignments:
            named_layers = [
                index
                for index, layer in enumerate(loaded.layers)
                if assignment.pattern in {layer.path, *layer.also_at}
            ]
            for index in named_layers:
                if exact.setdefault(index, assignment) != assignment:
                    raise UsageError(
                        f"--set sets {loaded.layers[index].path} of {loaded.document.path} twice, "
                        f"to {exact[index].policy} and to {assignment.policy}"
                    )
            if not named_layers:
                matching_layers = _fully_matching(loaded, assignment.pattern, matcher)
                if not matching_layers:
                    raise UsageError(
                        f"--set {assignment.pattern}={assignment.policy} matches no layer of "
                        f"{loaded.document.path}"
                    )
                for index in matching_layers:
                    matched.setdefault(index, []).append(assignment)
    for index, several in matched.items():
        if index not in exact:
            if len({candidate.pattern for candidate in several}) > 1:
                patterns = " and ".join(repr(candidate.pattern) for candidate in several)
                raise UsageError(
                    f"{loaded.layers[index].path} of {loaded.document.path} matches two patterns, "
                    f"{patterns}; use its exact path instead"
                )
            exact[index] = several[0]
    return dict(sorted(exact.items()))


def _fully_matching(loaded: LoadedModel, pattern: str, matcher: Matcher) -> list[int]:
    """
    Return the layers whose whole path matches a pattern. If some of them are settable, return only
    those: inputs and layers that take IDs are set only by their exact path.
    """
    check_pattern(pattern, f"--set {pattern!r} is not a layer path and")
    matching_layers = [
        index
        for index, layer in enumerate(loaded.layers)
        if any(matcher.fullmatch(pattern, path) for path in (layer.path, *layer.also_at))
    ]
    return [index for index in matching_layers if is_settable(loaded, index)] or matching_layers


def is_settable(loaded: LoadedModel, index: int) -> bool:
    """Return whether a regular expression sets a layer if it matches others as well."""
    return loaded.can_say(index) and loaded.is_floating(index) and not loaded.is_input(index)
