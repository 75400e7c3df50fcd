"""
Rewriting of model files, one module for each format.

To add a format, write its module and add one line to :data:`WRITERS`. Importing this package
imports h5py and ml_dtypes: only what writes does.
"""

from policytool.formats.rewriting.base import Changes, WriteError, Writer
from policytool.formats.rewriting.replacement import BACKUP, Verify, Written
from policytool.formats.rewriting.rewrite import WRITERS, make, measure, rewrite, write, writer_for

__all__ = [
    "BACKUP",
    "WRITERS",
    "Changes",
    "Verify",
    "WriteError",
    "Writer",
    "Written",
    "make",
    "measure",
    "rewrite",
    "write",
    "writer_for",
]
