"""
Create a layer from its site in a file: the policy, the dtypes, and the source of the dtypes.

If several releases can have written the file and their rules differ, the value is unknown, and an
observation reports it. :func:`resolve` finds the policy of a layer in a ``DTypePolicyMap``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats.document import Observation
from policytool.model import custom_classes
from policytool.model.model import Layer, Source, Variable
from policytool.model.tree import INPUT_CLASS, Site, Unspelled, path_of
from policytool.releases import dtypes, generations, keras_objects, policy, policy_formats
from policytool.releases.generations import SubPolicy, Unsaid
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Auto, Policy, PolicyMap
from policytool.releases.releases import KERAS3
from policytool.support.errors import SpellingError, short
from policytool.support.patterns.matching import ExpressionError, Matcher, StepsExceededError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.model.tree.storage import Placed
    from policytool.releases.releases import Release


class UnclearPolicyError(ValueError):
    """A map does not determine a single policy for a path."""


def resolve(
    policy_map: PolicyMap, path: str, matcher: Matcher, *, full_match: bool
) -> Policy | None:
    """
    Return the policy of the layer at ``path``; None for the global policy.

    :param matcher: counts the steps of all policy maps of a file
    :raises UnclearPolicyError: if two keys match, a key is not a supported regular expression, or
        the steps exceed the limit.
    """
    for key, mapped in policy_map.policies:
        if key == path:
            return mapped
    matching = [
        (key, mapped)
        for key, mapped in policy_map.policies
        if _matches(key, path, matcher, full_match=full_match)
    ]
    if len(matching) > 1:
        raise UnclearPolicyError(
            f"{len(matching)} keys of its policy map match its path "
            f"({', '.join(key for key, _ in matching[:3])}), so Keras raises an error"
        )
    return matching[0][1] if matching else policy_map.default


def _matches(key: str, path: str, matcher: Matcher, *, full_match: bool) -> bool:
    try:
        return (matcher.fullmatch if full_match else matcher.search)(key, path)
    except ExpressionError as error:
        raise UnclearPolicyError(f"the key {short(key)!r} of its policy map {error}") from error
    except StepsExceededError as error:
        raise UnclearPolicyError(f"its policy map {error}") from error


_FULL_MATCH_SINCE: Final = 12
"""The minor version of Keras 3 from which a key of a policy map must match the whole path."""


class _Reading(Struct, frozen=True, kw_only=True):
    """The policy of a layer as the file stores it."""

    policy: Policy | None
    source: Source
    deprecated: bool = False


@dataclass
class Resolver:
    """Reads the policies of the layers of a file, and collects observations about them."""

    origins: tuple[Release, ...]
    floatx: str | None
    """
    The dtype of all layers of a Keras 1 or 2 model that store none; None if the generation has no
    such rule.
    """

    observations: dict[Observation, None] = field(default_factory=dict)
    matcher: Matcher = field(default_factory=Matcher)
    """Matches the keys of policy maps."""

    def layer(self, site: Site, placed: Placed, index: int) -> Layer:
        """Return the layer at ``site``."""
        reading = self._read(site)
        layer_policy = reading.policy
        compute, variable = self._dtypes(site, layer_policy)
        scale = layer_policy.effective_loss_scale if layer_policy else None
        return Layer(
            path=path_of(site.names),
            also_at=tuple(path_of(names) for names in site.also_at),
            name=site.given_name or site.name,
            class_name=site.class_name or None,
            registered_name=site.registered_name,
            policy=layer_policy.name if layer_policy else None,
            compute_dtype=compute,
            variable_dtype=variable,
            source=reading.source,
            loss_scale=scale,
            loss_scale_default=scale is not None
            and layer_policy is not None
            and isinstance(layer_policy.loss_scale, Auto),
            quantization=layer_policy.quantization if layer_policy else None,
            deprecated=reading.deprecated,
            autocast=site.autocast,
            opaque=custom_classes.is_opaque(site),
            variables=placed.variables.get(index, ()),
            address=site.address,
        )

    def _read(self, site: Site) -> _Reading:
        """Return the policy of a layer with its source, as the file stores it."""
        if site.sub_policy is SubPolicy.GLOBAL:
            return _Reading(policy=None, source=Source.GLOBAL)
        if site.class_name == INPUT_CLASS:
            return self._read_input(site)
        if site.spelled is Unspelled.ABSENT or site.spelled is None:
            return self._read_missing(site)
        try:
            stored_policy = generations.parse(site.spelled, self.origins[-1].generation)
        except SpellingError as error:
            self._observe("unknown-policy", f"{path_of(site.names)}: {error}", site)
            return _Reading(policy=None, source=Source.UNKNOWN)
        deprecated = keras_objects.class_of(site.spelled) in policy_formats.KERAS2_CLASSES or (
            isinstance(stored_policy, Policy) and policy.is_removed(stored_policy)
        )
        source = Source.DEFAULT if site.sub_policy else Source.DECLARED
        if isinstance(stored_policy, PolicyMap):
            return self._read_map(site, stored_policy, source)
        return _Reading(
            policy=self._without_doubtful_scale(stored_policy, site),
            source=source,
            deprecated=deprecated,
        )

    def _read_input(self, site: Site) -> _Reading:
        """Return the dtype of an input layer's tensor; float32 if the file stores none."""
        declared = isinstance(site.spelled, str) and site.spelled in dtypes.NAMES
        name = str(site.spelled) if declared else self.floatx or "float32"
        return _Reading(
            policy=policy.policy_from_name(name),
            source=Source.DECLARED if declared else Source.DEFAULT,
        )

    def _read_missing(self, site: Site) -> _Reading:
        if self.floatx is not None and not site.is_model:
            return _Reading(policy=policy.policy_from_name(self.floatx), source=Source.DEFAULT)
        return _Reading(policy=None, source=Source.GLOBAL)

    def _read_map(self, site: Site, stored_map: PolicyMap, source: Source) -> _Reading:
        """Return the policy that a policy map assigns to a layer."""
        answers = set()
        try:
            for full_match in {self._matches_in_full(origin) for origin in self.origins}:
                answers.add(
                    resolve(
                        stored_map,
                        keras_path(site),
                        self.matcher,
                        full_match=full_match,
                    )
                )
        except UnclearPolicyError as error:
            self._observe("unclear-policy-map", f"{path_of(site.names)}: {error}", site)
            return _Reading(policy=None, source=Source.UNKNOWN)
        if len(answers) > 1:
            self._observe(
                "unclear-policy-map",
                f"{path_of(site.names)}: Keras 3.12 and later interpret its policy map "
                "differently from earlier releases",
                site,
            )
            return _Reading(policy=None, source=Source.UNKNOWN)
        answer = answers.pop()
        return _Reading(policy=answer, source=source if answer else Source.GLOBAL)

    @staticmethod
    def _matches_in_full(release: Release) -> bool:
        minor = release.id.removeprefix("keras3.")
        return minor.isdigit() and int(minor) >= _FULL_MATCH_SINCE

    def _without_doubtful_scale(self, stored_policy: Policy, site: Site) -> Policy:
        """
        Return the policy. Remove its loss scale unless it is the same in all releases that can have
        written the file.
        """
        candidates = {origin.generation.id: origin.generation for origin in self.origins}
        if len(candidates) == 1:
            return stored_policy
        readings = set()
        for generation in candidates.values():
            try:
                other = generation.parse(site.spelled)  # type: ignore[arg-type]  # only spelled values come here
            except SpellingError:
                continue
            readings.add(other.effective_loss_scale if isinstance(other, Policy) else None)
        if len(readings) > 1:
            self._observe(
                "loss-scale-unknown",
                "the loss scale of the policies is unknown: mixed_float16 scales losses in TF "
                "2.3 but not in TF 2.4, and either release may have written the file",
                None,
            )
            return Policy(
                name=stored_policy.name,
                compute_dtype=stored_policy.compute_dtype,
                variable_dtype=stored_policy.variable_dtype,
            )
        return stored_policy

    def _dtypes(self, site: Site, layer_policy: Policy | None) -> tuple[str | None, str | None]:
        if layer_policy is None:
            return None, None
        lookup = layer_facts(site.class_name).vocabulary_dtype
        if lookup and self.origins[-1].family == KERAS3:
            return lookup, lookup
        return layer_policy.compute_dtype, layer_policy.variable_dtype

    def _observe(self, code: str, message: str, site: Site | None) -> None:
        """Add an observation once."""
        observation = Observation(
            code=code, message=message, where=path_of(site.names) if site else None
        )
        self.observations[observation] = None


def floatx(
    origins: tuple[Release, ...], sites: Sequence[Site], variables: Sequence[Variable]
) -> str | None:
    """
    Return the backend's ``floatx`` of a Keras 1 or standalone Keras 2 model: the dtype of its
    stored variables, or otherwise the first dtype in its config.

    None for other generations, in which the global policy applies to layers without a dtype.
    """
    if not all(origin.generation.unsaid is Unsaid.FLOATX for origin in origins):
        return None
    stored = Counter(variable.dtype for variable in variables if dtypes.is_float(variable.dtype))
    if stored:
        return stored.most_common(1)[0][0]
    return next(
        (
            site.spelled
            for site in sites
            if isinstance(site.spelled, str) and dtypes.is_float(site.spelled)
        ),
        "float32",
    )


def keras_path(site: Site) -> str:
    """
    Return the path of a layer of a functional model in Keras 3: the names below the model, without
    the name of the model.
    """
    return "/".join(site.names[site.names_above :] or site.names)
