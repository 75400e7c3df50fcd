"""Which format a path is in; and what it is instead, where it is in none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.errors import ModelFileError
from policytool.formats import FORMATS, Probe

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.document import Document

_LFS: Final = b"version https://git-lfs.github.com/spec/"
_HTML: Final = (b"<!doctype html", b"<html")
_FOREIGN: Final = (
    (0, b"\x80\x02", "a Python pickle (PyTorch or scikit-learn)"),
    (0, b"\x80\x03", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (0, b"\x80\x05", "a Python pickle"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"\x1f\x8b", "a gzip archive; unpack it first"),
    (0, b"7z\xbc\xaf", "a 7-Zip archive; unpack it first"),
    (0, b"BZh", "a bzip2 archive; unpack it first"),
    (257, b"ustar", "a tar archive; unpack it first"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"GGUF", "a GGUF model"),
    (8, b'{"', "a safetensors file"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x89PNG", "an image"),
)
"""Offset, signature, and what it is: what people hand to a model loader by mistake."""

EXPECTED: Final = "expected HDF5, a .keras file, a SavedModel directory, or architecture JSON"


def document(path: Path, shown: str) -> Document:
    """
    Return the document at ``path``.

    :raises ModelFileError: for what does not exist, may not be read, or is no model.
    """
    probe = Probe(path, shown)
    try:
        for candidate in FORMATS:
            if candidate.recognise(probe):
                return candidate.read(probe)
        raise ModelFileError(shown, *_what_it_is(probe))
    except FileNotFoundError as error:
        raise ModelFileError(shown, "not-found", "does not exist; check the path") from error
    except PermissionError as error:
        raise ModelFileError(shown, "no-permission", "may not be read by this user; check its permissions") from error
    except IsADirectoryError as error:
        raise ModelFileError(shown, "foreign", f"is a directory where a file should be; {EXPECTED}") from error
    except OSError as error:
        raise ModelFileError(shown, "unreadable", f"cannot be read: {error.strerror or error}") from error


def is_model(path: Path) -> bool:
    """Return whether some format recognises the path; what cannot be read is none."""
    probe = Probe(path, str(path))
    try:
        return any(candidate.recognise(probe) for candidate in FORMATS)
    except OSError:
        return False


def _what_it_is(probe: Probe) -> tuple[str, str]:
    """Return code and sentence for a path that no format recognises."""
    if probe.is_directory:
        return "no-model", f"is a directory without a model in it; {EXPECTED}"
    head = probe.head
    if not head:
        return "empty", "is empty: 0 bytes; copy or download it again"
    if head.startswith(_LFS):
        return "lfs-pointer", "is a git-lfs pointer, not the model itself; run `git lfs pull` in its repository"
    if head.lstrip()[:200].lower().startswith(_HTML):
        return "html-page", "is an HTML page, not a model: a download link led to a web page; download the raw file"
    for offset, signature, what in _FOREIGN:
        if head[offset:].startswith(signature):
            return "foreign", f"is {what}; {EXPECTED}"
    return "foreign", f"is no format that policytool knows; {EXPECTED}"
