"""
The values of stored variables, read block by block.

A document knows the names, shapes and dtypes of a file's variables; here are the numbers. No link
and no external storage is followed, and no more than a block of a tensor is held at once. Each
format's own part is found through :data:`policytool.formats.FORMATS`, by
:func:`policytool.formats.format_detection.open_values`.
"""

from policytool.formats.stored_values.base import BLOCK, Values, ValuesError

__all__ = ["BLOCK", "Values", "ValuesError"]
