"""
Rewriting of model files: what all formats share, and :mod:`~policytool.formats.rewriting.rewrite`,
which finds a format's own part through :data:`policytool.formats.FORMATS`.
"""

from policytool.formats.edits import Written
from policytool.formats.rewriting.base import Changes, Rewriter
from policytool.formats.rewriting.rewrite import measure, rewriter_for, write
from policytool.formats.writing import WriteError

__all__ = [
    "Changes",
    "Rewriter",
    "WriteError",
    "Written",
    "measure",
    "rewriter_for",
    "write",
]
