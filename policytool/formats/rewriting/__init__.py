"""
Rewriting of model files: what all formats share, and :mod:`~policytool.formats.rewriting.rewrite`,
which finds a format's own part through :data:`policytool.formats.FORMATS`.
"""

from policytool.formats.edits import Written
from policytool.formats.rewriting.base import Changes, Rewriter, WriteError
from policytool.formats.rewriting.replacement import BACKUP, Verify
from policytool.formats.rewriting.rewrite import make, measure, rewrite, rewriter_for, write

__all__ = [
    "BACKUP",
    "Changes",
    "Rewriter",
    "Verify",
    "WriteError",
    "Written",
    "make",
    "measure",
    "rewrite",
    "rewriter_for",
    "write",
]
