"""What people hand to a model loader by mistake, told by its first bytes."""

from __future__ import annotations

from typing import Final

EXPECTED: Final = (
    "expected HDF5, a .keras file, a SavedModel directory, architecture JSON or YAML, a "
    "TensorFlow.js layers model, or a checkpoint's index"
)
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
"""Offset, signature, and what it is."""


def download(head: bytes) -> tuple[str, str] | None:
    """
    Return code and sentence for what a failed download leaves in a file's place; None for anything
    else.
    """
    if not head:
        return "empty", "is empty (0 bytes); copy or download it again"
    if head.startswith(_LFS):
        return (
            "lfs-pointer",
            "is a git-lfs pointer, not the model itself; run `git lfs pull` in its repository",
        )
    if head.lstrip()[:200].lower().startswith(_HTML):
        return (
            "html-page",
            ("is an HTML page, not a model; download the raw file"),
        )
    return None


def foreign(head: bytes) -> tuple[str, str]:
    """Return code and sentence for a file that no format recognises."""
    if found := download(head):
        return found
    if b"_tf_keras_" in head:
        return (
            "metadata-alone",
            (
                "contains Keras objects, but is not a complete keras_metadata.pb; specify the "
                "directory of the SavedModel, which also contains saved_model.pb"
            ),
        )
    for offset, signature, what in _FOREIGN:
        if head[offset:].startswith(signature):
            return "foreign", f"is {what}; {EXPECTED}"
    return "foreign", f"has an unrecognized file format; {EXPECTED}"
