"""
policytool: audits and converts the dtype policies of saved Keras and TensorFlow models.

    >>> import policytool
    >>> model = policytool.inspect("model.h5")
    >>> [(layer.path, layer.compute_dtype) for layer in model.layers]
    >>> [(finding.rule, finding.path) for finding in policytool.audit("model.h5").findings]
    >>> policytool.migrate("model.h5", to="mixed_bfloat16").target
    >>> policytool.migrate("model.h5", target="keras3").status
    >>> policytool.diff("model.h5", "model.keras").differs
    >>> policytool.check("model.h5", to="mixed_float16").passed

Nothing here imports TensorFlow or Keras, and nothing from the file is executed; ``check`` has a
process of its own for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policytool.api import audit, check, diff, inspect, migrate

__all__ = ["audit", "check", "diff", "inspect", "migrate"]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any of the functions above
    """Import the functions when they are used: the command line needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from policytool import api

    return getattr(api, name)
