"""
Files written from nothing but what :class:`policytool.formats.new_model.Content` says and the
values of a source, one module for each container.

To add a container, write its module and add one line to :data:`BUILDERS`. Importing this package
imports h5py and ml_dtypes: only what writes does.
"""

from policytool.formats.creating.base import Builder
from policytool.formats.creating.create import BUILDERS, build, document

__all__ = ["BUILDERS", "Builder", "build", "document"]
