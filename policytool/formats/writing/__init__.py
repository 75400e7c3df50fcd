"""
Where every model is written, whether it is edited, created or re-exported: drafted, brought to the
disk, read back, compared, verified, and renamed to its place. What is written is an
:class:`~policytool.formats.writing.flow.Output`.
"""

from policytool.formats.writing.failures import WriteError
from policytool.formats.writing.flow import Output, OutputPlace, write_output

__all__ = ["Output", "OutputPlace", "WriteError", "write_output"]
