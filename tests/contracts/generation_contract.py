"""
What holds for every generation, asked of the real releases that belong to it
(``fixtures/*/policies.json``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.releases.policy import LISTED, Dynamic, Fixed, PolicyMap, policy_from_name
from policytool.releases.releases import RELEASES
from policytool.support.errors import SpellingError
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.releases.generations import Generation
    from policytool.releases.policy import Policy

Form = dict[str, Any]
WRITTEN: Final = frozenset({"h5", "keras"})
"""The formats whose spelling was recorded."""


def forms(generation: Generation) -> Iterator[tuple[str, Form]]:
    """
    Yield every policy that the generation's releases could make and write, with how they wrote it.
    """
    families = {release.id for release in RELEASES if release.generation is generation}
    for file in sorted(FIXTURES.glob("*/policies.json")):
        if ".".join(file.parent.name.split(".")[:2]) in families:
            for form in json.loads(file.read_text(encoding="utf-8"))["forms"]:
                if "serialized" in form:
                    yield file.parent.name, form


def without_identity(value: Any) -> Any:  # JSON
    """
    Return the value without ``shared_object_id``, which numbers objects and says nothing of the
    policy.
    """
    if isinstance(value, dict):
        return {
            key: without_identity(item) for key, item in value.items() if key != "shared_object_id"
        }
    return value


def scale(found: Policy) -> dict[str, Any] | None:
    """Return a policy's effective loss scale as the fixtures have it."""
    match found.effective_loss_scale:
        case Fixed(value=value):
            return {"kind": "fixed", "value": value}
        case Dynamic(initial=initial, growth_steps=steps, multiplier=multiplier):
            return {
                "kind": "dynamic",
                "initial": initial,
                "growth_steps": steps,
                "multiplier": multiplier,
            }
    return None


class GenerationContract:
    """
    Inherit with ``generation`` set; ``loses_mixed`` for releases that write the variable dtype
    alone.
    """

    generation: Generation
    loses_mixed = False

    def test_parses_policies_of_its_releases(self) -> None:
        """A parsed policy has the properties of the live object in the release."""
        for release, form in forms(self.generation):
            for where in WRITTEN & set(form["serialized"]):
                value = form["serialized"][where]
                result = self.generation.parse(value)
                if isinstance(result, PolicyMap):
                    assert form["name"].startswith("map_")
                    continue
                actual = (result.variable_dtype, scale(result))
                live = (form["variable_dtype"], form["loss_scale"])
                if self.loses_mixed:
                    assert form["variable_dtype"] in {None, result.variable_dtype}, (
                        release,
                        form["made_by"],
                        where,
                    )
                elif form["compute_dtype"] is not None:
                    # an unbuilt infer policy has no dtypes; it is written as what its first input
                    # made of it
                    assert actual == live, (release, form["made_by"], where)
                    assert (result.name, result.compute_dtype) == (
                        form["name"],
                        form["compute_dtype"],
                    ), (release, form["made_by"], where)

    def test_renders_policies_like_its_releases(self) -> None:
        """Parsing and rendering give the JSON of the release."""
        for release, form in forms(self.generation):
            value = without_identity(form["serialized"].get("h5"))
            if value is None:
                continue
            again = self.generation.render(self.generation.parse(value))
            renamed = {
                "FloatDTypePolicy": "DTypePolicy"
            }  # an empty subclass, equal to its base since Keras 3.4
            if isinstance(value, dict):
                value["class_name"] = renamed.get(value["class_name"], value["class_name"])
            if form["name"].startswith(
                "map_"
            ):  # a map's default stays the bare name it was made with
                assert self.generation.parse(again) == self.generation.parse(value), (
                    release,
                    form["made_by"],
                )
            else:
                assert again == value, (release, form["made_by"])

    def test_every_policy_is_written_or_refused_with_a_reason(self) -> None:
        """No listed policy is written as another one: what is written reads back as itself."""
        for name in LISTED:
            policy = policy_from_name(name)
            try:
                value = self.generation.render(policy)
            except SpellingError as error:
                assert policy.name in str(error) or policy.quantization, error
                continue
            result = self.generation.parse(value)
            assert not isinstance(result, PolicyMap)
            assert (result.name, result.compute_dtype, result.variable_dtype) == (
                policy.name,
                policy.compute_dtype,
                policy.variable_dtype,
            )

    @pytest.mark.parametrize(
        "value",
        [
            None,
            3,
            [],
            {},
            "mixed_float8",
            {"class_name": "Policy"},
            {"class_name": "Nonsense", "config": {"name": "float32"}},
        ],
    )
    def test_rejects_values_that_are_not_policies(self, value: Any) -> None:
        """The error describes the expected form."""
        with pytest.raises(SpellingError, match=r"expected|unknown policy"):
            self.generation.parse(value)
