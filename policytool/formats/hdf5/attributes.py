"""
Stored attributes: they are read, copied and compared without a change of type, and new texts are
written with the type of the old text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from h5py import h5a, h5s, h5t

from policytool.formats.writing import WriteError
from policytool.support import limits

if TYPE_CHECKING:
    from collections.abc import Container

    import h5py
    from h5py import h5d, h5g

    Object: TypeAlias = h5g.GroupID | h5d.DatasetID | h5t.TypeID


_PLAIN: Final = {
    h5t.INTEGER,
    h5t.FLOAT,
    h5t.TIME,
    h5t.BITFIELD,
    h5t.OPAQUE,
    h5t.ENUM,
    h5t.REFERENCE,
}
"""
Classes whose bytes are the value. The bytes of a reference are valid only in its own file;
references are never copied to another file.
"""


def is_plain(kind: h5t.TypeID) -> bool:
    """Return whether the stored bytes of a type are the values, not addresses of the values."""
    match kind.get_class():
        case h5t.STRING:
            return not kind.is_variable_str()
        case h5t.ARRAY:
            return is_plain(kind.get_super())
        case h5t.COMPOUND:
            return all(
                is_plain(kind.get_member_type(index)) for index in range(kind.get_nmembers())
            )
        case other:
            return other in _PLAIN


def refuse_references(kind: h5t.TypeID, subject: str) -> None:
    """
    Reject references, which would be invalid in a new file.

    :raises WriteError: for references to objects.
    """
    if kind.detect_class(h5t.REFERENCE):
        raise WriteError(
            "not-rewritable",
            f"{subject} contains HDF5 references, which Keras never writes and which cannot "
            "be copied to a new file",
        )


def names(item: Object) -> list[bytes]:
    """
    Return the names of an object's attributes, listed in one pass because HDF5 reads all attributes
    again to open an attribute by index.

    :raises WriteError: if there are too many to copy one by one.
    """
    if excess := limits.H5_ATTRIBUTES.exceeded_message(h5a.get_num_attrs(item)):
        raise WriteError("not-rewritable", f"an HDF5 object has {excess}")
    attribute_names: list[bytes] = []
    h5a.iterate(item, lambda name, *_: attribute_names.append(name))
    return attribute_names


def raw(attribute: h5a.AttrID) -> np.ndarray[Any, Any] | None:
    """
    Return the stored value, as bytes if the bytes are the value; None without a data space.
    """
    space, kind = attribute.get_space(), attribute.get_type()
    if space.get_simple_extent_type() == h5s.NULL:
        return None
    stored = is_plain(kind)
    array = np.zeros(
        space.get_simple_extent_dims() or (),
        dtype=f"V{kind.get_size()}" if stored else attribute.dtype,
    )
    attribute.read(array, mtype=kind if stored else None)
    return array


def freeze(value: Any) -> object:  # noqa: ANN401  # whatever HDF5 holds
    """
    Return a form of the value that can be compared bit by bit, also for arrays of texts and nested
    arrays.
    """
    if isinstance(value, np.ndarray):
        return (
            (value.shape, tuple(freeze(item) for item in value.ravel().tolist()))
            if value.dtype.hasobject
            else (value.shape, value.tobytes())
        )
    return (
        repr(value)
        if isinstance(value, float)
        else tuple(freeze(item) for item in value)
        if isinstance(value, tuple)
        else value
    )


def copy(source: Object, target: Object, excluded: Container[bytes] = ()) -> None:
    """Copy the attributes of an object, except those in ``excluded``."""
    for name in (name for name in names(source) if name not in excluded):
        attribute = h5a.open(source, name)
        kind = attribute.get_type()
        refuse_references(kind, f"the attribute {name.decode('utf-8', 'replace')}")
        target_attribute = h5a.create(target, name, kind.copy(), attribute.get_space())
        value = raw(attribute)
        if value is not None:
            target_attribute.write(value, mtype=kind if is_plain(kind) else None)


def copy_text(source: h5g.GroupID, target: h5g.GroupID, name: bytes, text: bytes) -> None:
    """
    Write a text attribute with the type of the source's attribute: its kind of length, character
    set and padding.
    """
    attribute = h5a.open(source, name)
    _write_text(
        h5a.create(target, name, _type_for(attribute.get_type(), text), attribute.get_space()), text
    )


def change_text(file: h5py.File, name: bytes, text: bytes) -> None:
    """
    Replace the text of an attribute, with the same type, and remove the old text from the file.

    The caller must first wipe the old bytes of a text of variable length
    (:func:`policytool.formats.hdf5.storage.wipe`).
    """
    attribute = h5a.open(file.id, name)
    kind, space = attribute.get_type(), attribute.get_space()
    if kind.is_variable_str():
        _write_text(attribute, text)
        return
    attribute.write(np.zeros((), dtype=f"V{kind.get_size()}"), mtype=kind)
    file.flush()  # otherwise the zeros would not be written
    del attribute
    h5a.delete(file.id, name)
    _write_text(h5a.create(file.id, name, _type_for(kind, text), space), text)


def stored_text(group: h5g.GroupID, name: bytes) -> bytes | None:
    """Return the bytes of a scalar text attribute; None if the group does not have one."""
    if not h5a.exists(group, name):
        return None
    attribute = h5a.open(group, name)
    kind = attribute.get_type()
    if kind.get_class() != h5t.STRING or attribute.shape != ():
        return None
    value = raw(attribute)
    if value is None:
        return None
    scalar = value.item()
    text = scalar if isinstance(scalar, bytes) else str(scalar).encode("utf-8", "surrogateescape")
    return (
        text
        if kind.is_variable_str()
        else text.rstrip(b" " if kind.get_strpad() == h5t.STR_SPACEPAD else b"\0")
    )


def is_variable(group: h5g.GroupID, name: bytes) -> bool:
    """Return whether a text attribute is of variable length."""
    return bool(h5a.open(group, name).get_type().is_variable_str())


def is_unicode(group: h5g.GroupID, name: bytes) -> bool:
    """Return whether an attribute is Unicode text of variable length, which h5py 2 decodes."""
    if not h5a.exists(group, name):
        return False
    kind = h5a.open(group, name).get_type()
    is_text = kind.get_class() == h5t.STRING
    return bool(is_text and kind.is_variable_str() and kind.get_cset() == h5t.CSET_UTF8)


def same_text_type(attribute: h5a.AttrID, other: h5a.AttrID) -> bool:
    """Return whether two texts have the same kind of length, character set, padding and shape."""
    first, second = attribute.get_type(), other.get_type()
    if first.get_class() != h5t.STRING or second.get_class() != h5t.STRING:
        return False
    return all(
        getattr(first, question)() == getattr(second, question)()
        for question in ("is_variable_str", "get_cset", "get_strpad")
    ) and _shape(attribute) == _shape(other)


def same_attribute(expected: h5a.AttrID, other: h5a.AttrID) -> bool:
    """Return whether two attributes have the same type, shape and value."""
    return (
        bool(expected.get_type().equal(other.get_type()))
        and _shape(expected) == _shape(other)
        and freeze(raw(expected)) == freeze(raw(other))
    )


def _shape(attribute: h5a.AttrID) -> tuple[int, object]:
    space = attribute.get_space()
    return space.get_simple_extent_type(), space.get_simple_extent_dims()


def _type_for(kind: h5t.TypeID, text: bytes) -> h5t.TypeID:
    copied = kind.copy()
    if not copied.is_variable_str():
        copied.set_size(max(1, len(text) + (copied.get_strpad() == h5t.STR_NULLTERM)))
    return copied


def _write_text(attribute: h5a.AttrID, text: bytes) -> None:
    """Write a text into an existing attribute."""
    kind = attribute.get_type()
    if kind.is_variable_str():
        value = np.empty((), dtype=attribute.dtype)
        value[()] = text
        attribute.write(value)
        return
    attribute.write(
        np.array(
            text.ljust(kind.get_size(), b" " if kind.get_strpad() == h5t.STR_SPACEPAD else b"\0"),
            dtype=f"V{kind.get_size()}",
        ),
        mtype=kind,
    )
