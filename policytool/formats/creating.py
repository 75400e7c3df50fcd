"""
Creation of new models from :class:`policytool.formats.edits.Content` and the values of a source:
write a draft, flush it to the disk, read it back, and rename it to the target.

:data:`policytool.formats.FORMATS` provides the code of each container format.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policytool.formats import FORMATS, format_detection, keras_directory
from policytool.formats.document import Tensor, ValuesError
from policytool.formats.edits import Counts, WriteOptions, Written
from policytool.formats.format_detection import open_values
from policytool.formats.writers import Creator, flat, refuse_collisions
from policytool.formats.writing import (
    Output,
    WriteError,
    difference_error,
    report_failures,
    require_same,
    write_output,
)
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.formats.document import Document, Values
    from policytool.formats.edits import Cast, Content, Counted, Placement
    from policytool.formats.writing import AnyOutput, OutputPlace


_DEFAULT_OPTIONS: Final = WriteOptions()


def build(
    source: Path,
    document: Document,
    target: Path,
    content: Content,
    options: WriteOptions = _DEFAULT_OPTIONS,
) -> Written:
    """
    Write ``content``, with the values of ``source``, whose document is ``document``, to ``target``
    or in place of ``source``.

    The new file is complete, read back and compared with the source's values before it replaces
    anything, unless it is private. :attr:`policytool.formats.edits.Written.counts` has the effects
    of casts on values, by the path of the placement.

    :raises ModelFileError: as in :func:`policytool.formats.writing.write_output`; with the codes of
        reading, if the source is damaged.
    """
    if options.is_private:
        return _write_private(source, document, target, content)

    def output(place: OutputPlace) -> AnyOutput:
        """Return the output for a new file in the container of the content."""
        creator = _creator(content)
        expected = creator.document(content, place.target.name)
        refuse_collisions(content, creator.state_group)

        # close values between the calls: a process started then would inherit their memory limit
        def fill(path: Path) -> Counted:
            """Write the content into the draft."""
            with open_values(source, document) as values:
                return creator.write(path, content, values)

        def compare(path: Path) -> None:
            """Compare the draft with the expected document and values."""
            with open_values(source, document) as values:
                tensors = _tensors(content, creator.state_group)
                _compare(path / creator.main, expected, tensors, values)
            if creator.check is not None:
                creator.check(path, content)

        if creator.main:
            return Output(
                draft=atomic.DirectoryDraft,
                fill=lambda draft: fill(draft.create()),
                compare=lambda draft: compare(draft.path),
            )
        return Output(
            draft=atomic.Draft,
            fill=lambda draft: fill(draft.path),
            # libhdf5 cannot open a file without a name
            compare=lambda draft: compare(draft.ensure_name()),
        )

    return write_output(source, target, options, output)


def _write_private(source: Path, document: Document, target: Path, content: Content) -> Written:
    """
    Write content to an output that only this process reads, in the form that costs the least time.

    :raises ModelFileError: as :func:`build` does.
    """
    with report_failures(document.path, target), open_values(source, document) as values:
        creator = _creator(content)
        refuse_collisions(content, creator.state_group)
        if creator.unpack is not None and keras_directory.is_loaded_by(content.keras_version):
            target = target.with_suffix("")  # with that of an archive, Keras opens a file
            target.mkdir()
            write = creator.unpack
        else:
            target.touch()
            write = creator.write
        return Written(target=target, counts=write(target, content, values))


def measure(source: Path, document: Document, casts: Sequence[Cast]) -> Counted:
    """
    Return the effects that casts would have on the values of a document.

    :raises ModelFileError: if the values cannot be read.
    """
    from policytool.formats import casting  # NumPy, which no document needs

    tensors = {tensor.path: tensor for tensor in document.tensors or ()}
    counts: dict[tuple[str, ...], Counts] = {}
    with report_failures(document.path, source), open_values(source, document) as values:
        for cast in casts:
            name, total = "/".join(cast.tensor), Counts()
            try:
                for block in () if values is None else values.blocks(tensors[cast.tensor]):
                    total += casting.cast(block, cast.before, cast.after, cast.through)[1]
            except ValuesError as error:
                raise WriteError(
                    "not-rewritable", f"the values of {name} cannot be copied: {error}"
                ) from error
            counts[cast.tensor] = total
    return counts


def document(content: Content, path: str) -> Document:
    """
    Return the document of the built file, without writing the file. The document has ``path`` as
    its path.

    :raises ModelFileError: for content that no file can hold.
    """
    with report_failures(path, Path(path)):
        return _creator(content).document(content, path)


def _creator(content: Content) -> Creator:
    """Return the creator of new models in the container of the content."""
    for entry in FORMATS:
        if entry.document_format == content.container and entry.creator is not None:
            return entry.creator
    raise WriteError("not-rewritable", f"{content.container} files cannot be created, only edited")


def _compare(
    draft: Path,
    expected: Document,
    tensors: Sequence[tuple[Tensor, Placement]],
    values: Values | None,
) -> None:
    """
    Read a draft like any model file, and compare it with the expected document and values.

    :raises WriteError: if it differs.
    """
    try:
        draft_document = format_detection.document(draft, expected.path)
    except ModelFileError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno is not None:
            raise error.__cause__ from None
        raise WriteError(
            "write-differs",
            (f"the new file does not read back correctly: it {error.message}; nothing was changed"),
        ) from error
    part = next(
        (
            name
            for name in {**expected.parts, **draft_document.parts}
            if _text(expected, name) != _text(draft_document, name)
        ),
        None,
    )
    if part is not None:
        raise difference_error(part)
    require_same(
        replace(draft_document, parts={}, observations=())
        == replace(expected, parts={}, observations=()),
        "the list of variables",
    )
    with open_values(draft, draft_document) as written:
        for tensor, placement in tensors:
            require_same(_is_same(placement, tensor, values, written), "/".join(tensor.path))


def _is_same(
    placement: Placement, tensor: Tensor, values: Values | None, written: Values | None
) -> bool:
    """Return whether a written tensor has the shape, dtype and values of its placement."""
    from policytool.formats import placed_values as _values  # NumPy, which no document needs

    try:
        return written is not None and _values.same_values(
            (block for block, _ in _values.stored_blocks(placement, values)), written.blocks(tensor)
        )
    except ValuesError as error:
        raise WriteError(
            "write-differs",
            f"the new file does not read back correctly: {'/'.join(tensor.path)}: "
            f"{error}; nothing was changed",
        ) from error


def _tensors(content: Content, state_group: tuple[str, ...]) -> list[tuple[Tensor, Placement]]:
    """Return the variables as they appear in the new file's document, each with its placement."""
    pairs = [
        *(((), placement) for placement in content.placements),
        *((state_group, placement) for placement in content.state),
    ]
    return [
        (
            Tensor(
                path=(*start, *flat(placement.path)), shape=placement.shape, dtype=placement.dtype
            ),
            placement,
        )
        for start, placement in pairs
    ]


def _text(document: Document, part: str) -> str | None:
    """Return a part as text, so that NaN compares equal to NaN."""
    return json.dumps(document.parts[part]) if part in document.parts else None


__all__ = ["Creator", "build", "document", "measure"]
