"""
Every way in which models are stored, one module each.

To add a format, write its module and add one line to :data:`FORMATS`. The modules import h5py and
protobuf only when they read.
"""

from __future__ import annotations

from typing import Final

from policytool.formats import (
    architecture,
    checkpoint,
    hdf5,
    keras_directory,
    keras_metadata,
    keras_zip,
    savedmodel,
    sharded_weights,
    tfjs,
    yaml_architecture,
)
from policytool.formats._base import Format, Probe

FORMATS: Final[tuple[Format, ...]] = (
    hdf5.FORMAT,
    keras_zip.FORMAT,
    savedmodel.FORMAT,
    keras_directory.FORMAT,
    architecture.FORMAT,
    sharded_weights.FORMAT,
    checkpoint.FORMAT,
    keras_metadata.FORMAT,
    yaml_architecture.FORMAT,
    tfjs.FORMAT,
)
"""
In the order of how often they are met; exactly one recognises a file, so the order decides nothing.
"""

__all__ = ["FORMATS", "Format", "Probe"]
