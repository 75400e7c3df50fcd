"""
policytool: audits and converts the dtype policies of saved Keras and TensorFlow models.

    >>> import policytool
    >>> model = policytool.inspect("model.h5")
    >>> [(layer.path, layer.compute_dtype) for layer in model.layers]
    >>> [(finding.rule, finding.path) for finding in policytool.audit("model.h5")]
    >>> policytool.migrate("model.h5", to="mixed_bfloat16").output
    >>> policytool.migrate("model.h5", target="keras3").status
    >>> policytool.diff("model.h5", "model.keras").differs
    >>> policytool.check("model.h5", to="mixed_float16").passed
    >>> policytool.tune("model.h5", to="mixed_float16", tolerance=0.01).kept
    >>> policytool.load("model.h5").predict(inputs)
    >>> policytool.explain("Unknown layer: Functional").matches

Each result has a one-line ``repr``, is a report in notebooks, and converts with ``to_dict()`` and
``to_pandas()``. Errors are subclasses of ``policytool.Error``.

Only ``load`` imports Keras. No other function imports TensorFlow or Keras, or runs code from
files: ``check``, ``tune``, ``retrace`` and ``verify`` run TensorFlow in a separate process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policytool.api import audit, check, diff, explain, inspect, load, migrate, tune
    from policytool.results import (
        Audit,
        Check,
        Comparison,
        Explanation,
        Finding,
        Migration,
        Model,
        Tuning,
    )
    from policytool.support.errors import (
        MissingPackageError,
        ModelFileError,
        UsageError,
        WorkerError,
    )
    from policytool.support.errors import PolicytoolError as Error
    from policytool.support.project import VERSION as __version__  # noqa: N811  # the usual name

__all__ = [
    "Audit",
    "Check",
    "Comparison",
    "Error",
    "Explanation",
    "Finding",
    "Migration",
    "MissingPackageError",
    "Model",
    "ModelFileError",
    "Tuning",
    "UsageError",
    "WorkerError",
    "__version__",
    "audit",
    "check",
    "diff",
    "explain",
    "inspect",
    "load",
    "migrate",
    "tune",
]

_HOMES = {
    **dict.fromkeys(
        ("audit", "check", "diff", "explain", "inspect", "load", "migrate", "tune"), "api"
    ),
    **dict.fromkeys(
        ("Audit", "Check", "Comparison", "Explanation", "Finding", "Migration", "Model", "Tuning"),
        "results",
    ),
    **dict.fromkeys(
        ("Error", "MissingPackageError", "ModelFileError", "UsageError", "WorkerError"),
        "support.errors",
    ),
    "__version__": "support.project",
}
"""Public name to the module that has it."""

_INTERNAL = {"Error": "PolicytoolError", "__version__": "VERSION"}
"""Names that are different in their module."""


if not TYPE_CHECKING:  # else type checkers would accept every name

    def __getattr__(name: str) -> object:
        """Import a public name when it is used: the command line needs none of them."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        from policytool.support.processes.collection import without_collection

        with without_collection():  # it would look through all objects of Keras
            module = import_module(f"{__name__}.{_HOMES[name]}")
        return getattr(module, _INTERNAL.get(name, name))


def __dir__() -> list[str]:
    """Return the public names, which notebooks complete."""
    return sorted({*globals(), *__all__})
