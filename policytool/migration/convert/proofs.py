"""
How certain a conversion is: what was measured of each class
(:mod:`policytool.releases.behaviour`), and the releases in which the model predicts the same.

Releases of one library differ in what some layers compute
(:mod:`policytool.releases.layer_changes`), and in where masks travel
(:mod:`policytool.migration.convert.masks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.migration.convert.architecture import Role, walk
from policytool.migration.convert.masks.expressions import MaskTable
from policytool.migration.convert.masks.flow import MaskFlow, has_masks
from policytool.migration.convert.masks.fully_masked import differing_attentions
from policytool.migration.convert.masks.propagation import plain_config
from policytool.model.tree import INPUT_CLASS
from policytool.releases import behaviour, layer_changes, targets
from policytool.releases.behaviour import Proof
from policytool.releases.releases import family_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.model.model import Verdict


def proofs(root: Unit, context: ConversionContext) -> tuple[tuple[str, Proof], ...]:
    """
    Return for each layer class of a file, in the words of the file, how sure its conversion is;
    nothing where it stays in its library.

    :param root: the model as the file has it
    """
    if not context.crosses:
        return ()
    proof_by_class: dict[str, Proof] = {}
    for unit in walk(root):
        if unit.role is Role.LAYER and unit.class_name != INPUT_CLASS:
            proof = (
                Proof.UNTESTED
                if unit.custom or unit.site is None
                else _proof(unit.class_name, unit.site, context)
            )
            proof_by_class[unit.class_name] = (
                proof if proof is Proof.UNTESTED else proof_by_class.get(unit.class_name, proof)
            )
    return tuple(sorted(proof_by_class.items()))


def _proof(class_name: str, site: int, context: ConversionContext) -> Proof:
    return behaviour.proof(class_name, context.loaded.config(site), to_keras3=context.to_keras3)


def agreeing_releases(root: Unit, release: str, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """
    Return the releases of one family, oldest first, that load a model and were measured to predict
    with it what one of them does; nothing if one of its layers was not measured.

    :param root: the model as the release has it
    :param verdicts: what each loader makes of the file
    """
    releases = layer_changes.measured_releases(family_of(release))
    changes = _changes(root, family_of(release))
    if release not in releases or changes is None:
        return ()
    loading = {verdict.loader for verdict in verdicts if verdict.reason is None}
    loaded = [
        name
        for name in _unchanged_around(releases, releases.index(release), changes)
        if targets.target_and_containers(name)[0] in loading
    ]
    return tuple(_with_equal_masks(root, release, loaded))


def _changes(root: Unit, family: str) -> frozenset[str] | None:
    """Return the releases that compute a layer of a model otherwise; None if one is unmeasured."""
    releases: set[str] = set()
    for unit in walk(root):
        if unit.role is Role.LAYER and unit.class_name != INPUT_CLASS and not unit.custom:
            changes = layer_changes.changing_releases(unit.class_name, plain_config(unit), family)
            if changes is None:
                return None
            releases |= changes
    return frozenset(releases)


def _unchanged_around(
    releases: Sequence[str], place: int, changes: Collection[str]
) -> Sequence[str]:
    """Return the releases around one between which nothing changes."""
    starts = [index for index, name in enumerate(releases) if name in changes]
    first = max((index for index in starts if index <= place), default=0)
    end = min((index for index in starts if index > place), default=len(releases))
    return releases[first:end]


def _with_equal_masks(root: Unit, release: str, others: Sequence[str]) -> Iterator[str]:
    """
    Yield the releases in which each call computes with the masks that it has in one of them, and
    gives the same for fully masked steps.
    """
    if root.network is None or not has_masks(root):
        yield from others
        return
    table = MaskTable()
    masks = MaskFlow(root.network, release, table).used
    for name in others:
        if name == release or (
            MaskFlow(root.network, name, table).used == masks
            and not any(differing_attentions(root.network, masks, (release, name), table))
        ):
            yield name
