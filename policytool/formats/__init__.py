"""
Every way in which models are stored, one module each.

To add a format, write its module and add one line to :data:`FORMATS`. The modules import h5py and
protobuf only when they read.
"""

from __future__ import annotations

from typing import Final

from policytool.formats.architecture import read as architecture
from policytool.formats.base import Format, Probe
from policytool.formats.checkpoint import read as checkpoint
from policytool.formats.hdf5 import read as hdf5
from policytool.formats.keras_archive import read as keras_zip
from policytool.formats.keras_directory import read as keras_directory
from policytool.formats.keras_metadata import read as keras_metadata
from policytool.formats.saved_model import read as savedmodel
from policytool.formats.sharded_weights import read as sharded_weights
from policytool.formats.tfjs import read as tfjs
from policytool.formats.yaml_architecture import read as yaml_architecture

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
