"""
Which policy a model has: the one that ``--to`` replaces and whose loss scale counts.

A Functional's config does not say. The root's own policy is taken where it is stored, else the most
common one over the floating layers with weights; ties go to the first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep import layers_to_keep
from policytool.migration.planning.options import Outputs
from policytool.releases import policy

_SIXTEEN_BITS: Final = ("float16", "bfloat16", "mixed_float16", "mixed_bfloat16")

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from policytool.model.loaded_model import LoadedModel


def base_policy(loaded: LoadedModel) -> str | None:
    """
    Return the name of the model's policy; None where no layer says one.

    Layers that stay in float32 under every 16-bit policy (outputs, a last softmax, classes known to
    fail) do not vote: they say how a mixed model is built, not what its policy is. Who votes
    depends on the model's structure alone and ties go to the first, so a second migration to the
    same policy finds that policy as the base and changes nothing.
    """
    return _of_root(loaded) or _most_common(loaded, _voters(loaded, _always_kept(loaded)))


def _always_kept(loaded: LoadedModel) -> set[int]:
    """
    Return the layers that some 16-bit policy leaves in float32; which one is asked for must not
    decide who votes.
    """
    return {
        index
        for name in _SIXTEEN_BITS
        for index in layers_to_keep(loaded, policy.policy_from_name(name), Outputs.KEEP)
    }


def _of_root(loaded: LoadedModel) -> str | None:
    root = loaded.layers[0] if loaded.layers else None
    return (
        loaded.policy_name(0)
        if root is not None and root.policy is not None and loaded.is_floating(0)
        else None
    )


def _voters(loaded: LoadedModel, kept: Collection[int]) -> list[int]:
    """
    Return the float layers that determine the model's policy: those with weights, or else all
    except inputs. Kept layers count only if there is no other layer.
    """
    floating = [
        index
        for index, site in enumerate(loaded.sites)
        if loaded.is_floating(index) and not loaded.is_input(index) and site.sub_policy is None
    ]
    free = [index for index in floating if index not in kept]
    weighted = [index for index in floating if loaded.has_weights(index)]
    return next(
        (
            candidates
            for candidates in (
                [index for index in weighted if index not in kept],
                free,
                weighted,
                floating,
            )
            if candidates
        ),
        [],
    )


def _most_common(loaded: LoadedModel, voters: Iterable[int]) -> str | None:
    votes = Counter(name for index in voters if (name := loaded.policy_name(index)) is not None)
    return votes.most_common(1)[0][0] if votes else None
