"""
Error messages of Keras and TensorFlow, with their causes, and the search for them in a traceback.

Entries are data. They depend on no model and no file.
"""

from __future__ import annotations

from typing import Final

from policytool.troubleshooting.files import FILES
from policytool.troubleshooting.formats import FORMATS
from policytool.troubleshooting.layers import LAYERS
from policytool.troubleshooting.numerics import NUMERICS
from policytool.troubleshooting.optimizers import OPTIMIZERS
from policytool.troubleshooting.policies import POLICIES

FAMILIES: Final = (POLICIES, LAYERS, FORMATS, FILES, OPTIMIZERS, NUMERICS)
"""All entries, by subject, in the order of the documentation."""

ENTRIES: Final = tuple(entry for family in FAMILIES for entry in family.entries)
