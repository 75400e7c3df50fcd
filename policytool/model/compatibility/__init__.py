"""
Whether each release loads a file, as far as the file tells: yes, no, or not judged.

``verdicts`` joins three sources. ``incompatibilities`` has rows about containers, policies and
graphs, each measured; ``serialized_objects`` collects the classes and arguments in a config, which
are compared with :mod:`policytool.releases.known_arguments`; dtypes are compared with
:mod:`policytool.releases.dtype_support`. ``open_questions`` lists what a file leaves open.
``training_verdicts`` and ``training_incompatibilities`` are the same for the training configuration
and the optimizer's state.
"""

from __future__ import annotations

from policytool.model.compatibility.stored_variables import StoredVariables
from policytool.model.compatibility.verdicts import NOT_LOADED, verdicts

__all__ = ["NOT_LOADED", "StoredVariables", "verdicts"]
