"""
Files written from nothing but what :class:`policytool.formats.edits.Content` says and the
values of a source: what all containers share, and :mod:`~policytool.formats.creating.create`, which
finds a container's own part through :data:`policytool.formats.FORMATS`.
"""

from policytool.formats.creating.base import Creator
from policytool.formats.creating.create import build, document

__all__ = ["Creator", "build", "document"]
