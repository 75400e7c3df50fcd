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

from policytool.api import audit, check, diff, inspect, migrate

__all__ = ["audit", "check", "diff", "inspect", "migrate"]
