"""
Rewriting of model files, one module for each format.

To add a format, write its module and add one line to :data:`WRITERS`. Importing this package
imports h5py and ml_dtypes: only what writes does.
"""

from policytool.writers._base import Changes, WriteError, Writer
from policytool.writers._migration import WRITERS, make, measure, rewrite, write, writer_for
from policytool.writers._replacing import BACKUP, Verify, Written

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
