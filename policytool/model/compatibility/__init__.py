"""
Whether each release loads a file, according to the contents of the file: yes, no, or unknown.

``verdicts`` combines three sources. ``incompatibilities`` has measured rows about containers,
policies and graphs. ``serialized_objects`` collects the classes and arguments in a config, which
are compared with :mod:`policytool.releases.known_arguments`. Dtypes are compared with
:mod:`policytool.releases.dtype_support`. ``open_questions`` lists the doubts about a file.
``training_verdicts`` and ``training_incompatibilities`` are the same for the training configuration
and the optimizer's state.
"""

from __future__ import annotations

from policytool.model.compatibility.stored_variables import StoredVariables
from policytool.model.compatibility.verdicts import NOT_LOADED, verdicts

__all__ = ["NOT_LOADED", "StoredVariables", "verdicts"]
