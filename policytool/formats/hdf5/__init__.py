"""HDF5: whole models, and files of weights alone."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.hdf5 import recognition

FORMAT: Final = Format(
    package=__name__,
    document_format="h5",
    title="HDF5",
    suffixes=(".h5", ".hdf5"),
    recognise=recognition.recognise,
)
