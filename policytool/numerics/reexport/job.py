"""
The job that the child gets: the model's config with the new policies, and where everything is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policytool.migration.plan import apply_edits
from policytool.model import reading
from policytool.model.model import Source
from policytool.model.tree import INPUT_CLASS
from policytool.releases import dtypes
from policytool.support.errors import ModelFileError

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.migration.plan import Plan
    from policytool.model.loaded_model import LoadedModel
    from policytool.numerics.hand_over import PrivateCopy


def planned_model(loaded: LoadedModel, plan: Plan) -> LoadedModel:
    """Return the model as the plan wants it."""
    return reading.load_model(apply_edits(loaded.document, plan.edits, ()))


def build_arguments(before: LoadedModel, planned: LoadedModel) -> dict[str, Any]:
    """
    Return the job arguments that build the model as ``planned``: its config, the policies of its
    layers, and the global policies under which it is loaded and built.

    :raises ModelFileError: if the root of the file is not a model with a config.
    """
    root = planned.document.nodes.get(0)
    metadata = planned.document.parts.get(root.part or "") if root is not None else None
    config = metadata.get("config") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(config, dict):
        message = (
            "cannot be re-exported: its root is not a Keras model with a config; export it "
            "again from its original code"
        )
        raise ModelFileError(planned.document.path, "no-config", message)
    layers = planned.layers
    return {
        "config": config,
        "training": metadata.get("training_config") or None,
        "policy_before": before.layers[0].policy,
        "policy": layers[0].policy,
        "policies": {
            layer.path: layer.policy
            for layer in layers
            if layer.policy
            and layer.source is not Source.UNKNOWN
            and layer.class_name != INPUT_CLASS
            and dtypes.is_float(layer.compute_dtype)
        },
    }


def reexport_job(
    before: LoadedModel, planned: LoadedModel, source: PrivateCopy, draft: Path
) -> dict[str, Any]:
    """
    Return the job that writes the ``planned`` model to ``draft``, in the private directory of its
    source.

    :raises ModelFileError: as :func:`build_arguments`.
    """
    return {
        "job": "reexport",
        "source": source,
        "draft": str(draft),
        **build_arguments(before, planned),
        "traces": bool(planned.document.signatures),
    }
