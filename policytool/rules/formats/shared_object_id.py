"""
Different objects have the same ``shared_object_id``.

TF 2.5 and later assign numbers to the objects in a config, and repeat the config of a shared object
wherever it is used. If several objects have the same number, TF 2.5 to tf_keras 2.21 silently
replace all of them with the first one, even if their values or classes differ. Editing any copy of
a shared policy except the first therefore has no effect. Likewise, an initializer is replaced if an
earlier object has the same number.

Sources: tensorflow/python/keras/utils/generic_utils.py in TF 2.5.3 (``SharedObjectLoadingScope``);
measured with files written by TF 2.5 to 2.15 and loaded in TF 2.5 to 2.15 and tf_keras 2.21. In
these files, the policy of one layer was changed, or initializers of two different classes were
given the same number. Objects are replaced in HDF5 files, SavedModels, and ``.keras`` files written
by TF 2.12. In JSON, TF 2.12 and earlier replace all objects, and later releases replace all objects
except policies. In ``.keras`` files written by TF 2.13 and later or by Keras 3, no objects are
replaced, so this rule does not check these files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policytool.formats.document import Address
from policytool.releases import keras_objects
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.formats._spelled import where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding
    from policytool.support.text.jsontext import Json

_ID: Final = "shared_object_id"
_SHARING: Final = "tf2.12"
"""The release whose ``.keras`` files are read by number; those of later ones are not."""

_POLICIES: Final = frozenset({"Policy", "PolicyV1"})
_LONGEST: Final = 60


class Found(NamedTuple):
    """An object with a number, and where it stands."""

    root: Address
    steps: tuple[str | int, ...]
    value: dict[str, Any]

    @property
    def address(self) -> Address:
        """Where it stands, as text that only findings need."""
        return Address.below(self.root, *self.steps)


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for each number whose objects differ."""
    loaded = case.loaded
    if loaded is None or (
        case.document.format == "keras" and {release.id for release in loaded.origins} != {_SHARING}
    ):
        return
    for objects in _objects_by_number(loaded).values():
        first = objects[0]
        unlike = [found for found in objects[1:] if found.value != first.value]
        what = _what(first.value) if unlike else ""
        others = [found for found in unlike if _what(found.value) != what]
        if others:
            yield _finding(loaded, first, others)


def _finding(loaded: LoadedModel, first: Found, others: list[Found]) -> Finding:
    other = others[0]
    more, have = (f" and {len(others) - 1} more", "have") if len(others) > 1 else ("", "has")
    message = (
        f"{_describe(other.value)} at {where(loaded, other.address)}{more} {have} the same {_ID} "
        f"({first.value[_ID]}) as {_describe(first.value)} at {where(loaded, first.address)}, and "
        "releases use only the latter"
    )
    policies = all(keras_objects.class_of(found.value) in _POLICIES for found in (first, *others))
    remedy = Remedy(fix=Fix.UNSAFE) if policies else None
    classes = "/".join(
        sorted({str(keras_objects.class_of(found.value)) for found in (first, *others)})
    )
    advice = None if remedy else f"remove the {_ID} from the objects that differ"
    return RULE.finding(
        message, address=other.address, detail=classes, remedy=remedy, advice=advice
    )


def _objects_by_number(loaded: LoadedModel) -> dict[tuple[str, Json], list[Found]]:
    """
    Return the objects of each number, in the order in which loaders meet them; TF 2.5's two files
    are two worlds.
    """
    found: dict[tuple[str, Json], list[Found]] = defaultdict(list)
    for root, config in loaded.configs:
        file = root.part.partition("#")[0]
        pending: list[tuple[tuple[str | int, ...], Json]] = [((), config)]
        while pending:
            steps, value = pending.pop()
            if isinstance(value, dict):
                number = value.get(_ID)
                if isinstance(number, int) and keras_objects.CLASS in value and "config" in value:
                    found[file, number].append(Found(root, steps, value))
                pending += [
                    ((*steps, key), item)
                    for key, item in reversed(value.items())
                    if isinstance(item, dict | list)
                ]
            elif isinstance(value, list):
                pending += [
                    ((*steps, position), item)
                    for position, item in reversed(list(enumerate(value)))
                    if isinstance(item, dict | list)
                ]
    return found


def _what(value: Json) -> str:
    """Return the class and the config of an object as one text, numbers left out."""
    serialized = keras_objects.read(value)
    return json.dumps(
        _bare(
            value
            if serialized is None
            else keras_objects.short(serialized.class_name, serialized.config)
        ),
        sort_keys=True,
    )


def _bare(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key != _ID}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _describe(value: dict[str, Any]) -> str:
    config = value.get("config")
    name = config.get("name") if isinstance(config, dict) else None
    class_name = str(keras_objects.class_of(value))
    text = f"{class_name} {name}" if isinstance(name, str) else class_name
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


RULE: Final = Rule(
    id="PT106",
    name="shared-object-id",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example='{"class_name": "Policy", "config": {"name": "mixed_float16"}, "shared_object_id": 5} '
    'and the same number for "mixed_bfloat16"',
)
