"""
Private copies of models and weights files, which are the only files that TensorFlow loads.

The bytes are copied into a temporary directory that only the user can enter. The name of the copy
has the suffix of the detected format, because Keras selects its reader by suffix. policytool checks
the copy, and TensorFlow loads the same copy, so later changes of the original have no effect. A
file that different readers could read as different models is rejected.

An Orbax checkpoint is converted to a private ``.keras`` file instead, as ``migrate`` converts it,
because Keras silently restores only some of its variables.

Of a KerasHub preset, only the files of the backbone are copied, and only the backbone runs.

Only the files of the model are copied from a directory, and links among them are replaced by their
content. An asset that is a link out of the model stays a link while policytool reads the copy, as
in the original. The link is removed before TensorFlow loads the copy.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats import (
    WITHOUT_WEIGHTS,
    Probe,
    checkpoint,
    creating,
    format_detection,
    hdf5,
    keras_archive,
    keras_directory,
    keras_hub,
    orbax,
    other_models,
    sharded_weights,
)
from policytool.formats.base import ASSETS
from policytool.formats.checkpoint import INDEX, shard_prefix
from policytool.formats.checkpoint import whole as whole_checkpoint
from policytool.formats.document import UNKNOWN_DTYPES, Document, Layout
from policytool.formats.edits import WriteOptions
from policytool.formats.keras_archive import NPZ_SUFFIX, WEIGHTS_SUFFIX
from policytool.formats.orbax import NEEDS_PACKAGE
from policytool.formats.sharded_weights import SUFFIX as SHARD_MAP_SUFFIX
from policytool.migration.planning.options import options_from_arguments
from policytool.model import reading, untrusted_code
from policytool.model.untrusted_code import TRUST
from policytool.support import steps
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic, opening
from policytool.support.files.remote_path import local
from policytool.support.processes import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.base import Format
    from policytool.migration.plan import Conversion, Plan
    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.untrusted_code import Reason

_NAME: Final = "model"
"""The name of a copy without its suffix, so that TensorFlow gets no name from the user."""

NOT_RUN: Final = {
    "weights": (
        "contains only weights; check the architecture of the model and specify this file with "
        "--weights"
    ),
    "keras-metadata": (
        "contains only metadata, without weights or a graph; specify the SavedModel's directory"
    ),
    "tfjs": (
        "is a TensorFlow.js model, which Keras cannot run; convert it with migrate --target keras3"
    ),
    "orbax": (
        f"cannot be run: Keras loads {NEEDS_PACKAGE}; convert it first with policytool migrate "
        "--target keras3 -o NAME.keras"
    ),
}
"""Document formats that no library can run, with the reason."""

_NO_WEIGHTS: Final = "is a KerasHub preset without weights, so its backbone cannot run"

_JOIN: Final = (
    "is an Orbax checkpoint, of which Keras silently restores only some variables; join it with "
    "the architecture first: policytool migrate ARCHITECTURE --weights CHECKPOINT --target keras3 "
    "--no-verify"
)
"""Why an Orbax checkpoint cannot be the weights of an architecture that is run."""

_CONVERSION: Final = options_from_arguments(None, (), target="keras3")
"""The options of ``migrate`` with which a checkpoint is converted."""

_LITE_NAME: Final = "model.tflite"
_LITE_OPS: Final = b"Flex"
"""The beginning of the name of an op of TensorFlow in a TensorFlow Lite file."""

_REFUSALS: Final = 3
"""The maximum number of reasons in a message."""

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class PrivateCopy(Struct, frozen=True, kw_only=True):
    """
    A copy that a library may load. Only :class:`HandOver` creates copies, and a job refers to
    models only by them.
    """

    path: Path
    """The path that the library loads: a file, a directory, or the prefix of a checkpoint."""

    document: Document
    """The document that was read from the copy and checked."""

    loaded: LoadedModel | None
    """The model in the copy; None for a graph without a config, and for weights without a model."""

    original: LoadedModel | None = None
    """The model from which the copy was converted; None for a copy with the same bytes."""

    functions: Path | None = None
    """The module of :meth:`HandOver.functions`, for a conversion that calls functions by name."""

    @property
    def model(self) -> LoadedModel:
        """
        The model in the copy.

        :raises ModelFileError: if the copy contains no Keras model.
        """
        if self.loaded is None:
            raise ModelFileError(
                self.document.path, "no-config", "contains no Keras model that can be loaded"
            )
        return self.loaded

    def migration(self, options: Options) -> Options:
        """Return the options with which ``migrate`` changes the original like this copy."""
        if self.original is None:
            return options
        return replace(options, target=_CONVERSION.target, target_name=_CONVERSION.target_name)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the copy, sorted by path."""
        if self.path.is_dir():
            return tuple(sorted(path for path in self.path.rglob("*") if path.is_file()))
        return tuple(sorted(self.path.parent.iterdir()))


def encoded_job(job: Mapping[str, Any]) -> bytes:
    """
    Return a job as JSON for the child process, with the path of each copy.

    :raises TypeError: if the job contains anything but JSON values and copies, such as a path.
    """
    return json.dumps(job, default=_copy_path).encode()


def _copy_path(value: object) -> str:
    if not isinstance(value, PrivateCopy):
        raise TypeError(f"{type(value).__name__} does not belong in a job")
    return str(value.path)


class HandOver(ExitStack):
    """A private directory with the copies of a run, as a context manager that removes it."""

    def __init__(
        self, *, trust: bool = False, custom_objects: bool = False, trust_option: str = TRUST
    ) -> None:
        """
        :param trust: whether code in a file may run
        :param custom_objects: whether the user specified modules that define classes
        :param trust_option: how the user sets ``trust``, for messages
        """
        super().__init__()
        self._trust = trust
        self._custom_objects = custom_objects
        self._trust_option = trust_option
        self._taken: dict[tuple[Path, bool], PrivateCopy] = {}

    @cached_property
    def path(self) -> Path:
        """
        The directory. It is created at its first use by the process that uses it, so that it is in
        this process's list of files to remove after a signal.
        """
        return Path(self.enter_context(interrupts.temporary_directory()))

    def folder(self) -> Path:
        """Return a new, empty directory, for files of a job other than its copies."""
        return Path(tempfile.mkdtemp(dir=self.path))

    def functions(self, conversion: Conversion | None) -> Path | None:
        """
        Write a module with the functions of Lambda layers that a conversion calls by name, and
        return its path; None if it calls none, or if the user does not trust their code.

        Its function ``functions(tf, np, math, keras, layers, K)`` returns them by name.
        """
        if not self._trust or conversion is None or not conversion.functions:
            return None
        items = "".join(f"        {name!r}: {code},\n" for name, code in conversion.functions)
        path = self.folder() / "functions.py"
        path.write_text(
            f"def functions(tf, np, math, keras, layers, K):\n    return {{\n{items}    }}\n",
            encoding="utf-8",
        )
        return path

    @contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """Create an empty directory, and remove it at the end of the block."""
        with tempfile.TemporaryDirectory(dir=self.path, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def take(
        self,
        path: Path,
        display_path: str,
        *,
        compiles: bool = False,
        is_own: bool = False,
        converts: bool = False,
    ) -> PrivateCopy:
        """
        Return a copy of a model that TensorFlow may run; repeated calls return the same copy.

        :param compiles: whether it will be compiled with its saved losses and metrics
        :param is_own: whether policytool has just written the file and the targets of its links
        :param converts: whether the copy of an Orbax checkpoint is a ``.keras`` file
        :raises ModelFileError: if the file cannot be read, copied or run, or needs trust.
        """
        key = (path.absolute(), compiles)
        if key in self._taken and not is_own:
            return self._taken[key]
        model_format = self._detect_format(path, display_path)
        original = None
        if model_format is orbax.FORMAT and converts:
            original = _original(path, display_path)
            copied = _convert(path, original, self.folder())
        elif reason := NOT_RUN.get(model_format.document_format):
            raise ModelFileError(display_path, "not-runnable", reason)
        else:
            copied = self._copy(path, display_path, model_format, follow=is_own or self._trust)
        copy = self._check_copy(copied, display_path, compiles=compiles)
        self._taken[key] = replace(copy, original=original)
        return self._taken[key]

    def take_lite(self, path: Path, display_path: str) -> PrivateCopy | None:
        """
        Return a copy of a TensorFlow Lite file, of which nothing is read; None for another file.

        :raises ModelFileError: if it cannot be copied, or if it may call ops of TensorFlow, such as
            those that write files, and ``--trust`` is not set.
        """
        if other_models.format_name(path) != other_models.LITE:
            return None
        target = self.folder() / _LITE_NAME
        with (
            format_detection.reading_failures(Probe(path, display_path)),
            _reporting_full_disk(display_path, self.path),
        ):
            part = _Part(source=path, name=Path(_LITE_NAME))
            _check_space((part,))
            _copy_part(part, target.parent)
            with opening.regular_stream(target) as stream:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                with mapped:
                    calls_ops = mapped.find(_LITE_OPS) >= 0
        if calls_ops and not self._trust:
            raise ModelFileError(
                display_path,
                "runs-code",
                "may call ops of TensorFlow (Flex), which can read and write files; use --trust if "
                "you trust its author",
            )
        return PrivateCopy(
            path=target, document=Document(path=display_path, format="tflite"), loaded=None
        )

    def adopt(
        self, path: Path, display_path: str, planned: LoadedModel | None = None
    ) -> PrivateCopy:
        """
        Return a model that was just written below :meth:`folder` as a copy.

        :param planned: the model, if policytool wrote it by a plan; it is checked as it was
            planned, and the file is not read again
        :raises ModelFileError: if it cannot be run, or needs trust.
        """
        if planned is None:
            return self._check_copy(path, display_path)
        with steps.budget(display_path):
            self._check_reasons(untrusted_code.reasons_not_to_run(planned), display_path)
        return PrivateCopy(path=path, document=planned.document, loaded=planned)

    def copy_weights(self, path: Path) -> PrivateCopy:
        """
        Return a copy of a file that contains the weights of an architecture.

        :raises ModelFileError: if the file contains no weights, or if it refers to other files and
            ``--trust`` is not set.
        """
        display_path = str(path)
        key = (path.absolute(), False)
        if key in self._taken:
            return self._taken[key]
        # TensorFlow calls a checkpoint by the name without its suffix
        index = path.with_name(f"{path.name}{INDEX}")
        weights_path = index if index.exists() and not path.exists() else path
        model_format = self._detect_format(weights_path, display_path)
        if model_format.document_format in WITHOUT_WEIGHTS:
            raise ModelFileError(
                display_path, "no-weights", f"is {model_format.title}, which contains no weights"
            )
        if model_format is orbax.FORMAT:
            raise ModelFileError(display_path, "not-runnable", _JOIN)
        if model_format is checkpoint.FORMAT:
            weights_path = local(whole_checkpoint(weights_path) or weights_path)
        copied = self._copy(weights_path, display_path, model_format, follow=self._trust)
        copy = self._check_copy(copied, display_path, is_model=False)
        if model_format is checkpoint.FORMAT:
            copied = copied.with_suffix("")
        elif copy.document.layout is Layout.OBJECT_PATHS and model_format is hdf5.FORMAT:
            copied = copied.rename(copied.with_name(f"{_NAME}{WEIGHTS_SUFFIX}"))
        elif model_format is sharded_weights.FORMAT:
            names = (sharded_weights.map_name(file.name) for file in copy.files)
            copied = copied.rename(copied.with_name(next(filter(None, names), copied.name)))
        self._taken[key] = replace(copy, path=copied)
        return self._taken[key]

    def _check_copy(
        self,
        copied: Path,
        display_path: str,
        *,
        is_model: bool = True,
        compiles: bool = False,
    ) -> PrivateCopy:
        """
        Read and check a copied file, and remove its links.

        :param is_model: whether TensorFlow will run it; otherwise it contains only weights
        :raises ModelFileError: if the copy cannot be read or run, or needs trust.
        """
        with steps.budget(display_path):
            document = format_detection.document(copied, display_path)
            loaded = self._check(document, is_model=is_model, compiles=compiles)
        _remove_links(copied)
        return PrivateCopy(path=copied, document=document, loaded=loaded)

    def _check(self, document: Document, *, is_model: bool, compiles: bool) -> LoadedModel | None:
        """
        Return the model in a document that may run; None for a graph without a config, and for
        weights without a model.

        :raises ModelFileError: if it cannot be run, or needs trust.
        """
        if is_model and (reason := NOT_RUN.get(document.format)):
            raise ModelFileError(document.path, "not-runnable", reason)
        format_detection.refuse_ambiguity(document)
        if document.format == keras_hub.FORMAT.document_format and not document.tensors:
            raise ModelFileError(document.path, "not-runnable", _NO_WEIGHTS)
        has_config = is_model and document.config_part is not None
        loaded = reading.load_model(document) if has_config else None
        reasons = (
            untrusted_code.reasons_of_file(document)
            if loaded is None
            else untrusted_code.reasons_not_to_run(loaded, compiles=compiles)
        )
        self._check_reasons(reasons, document.path, is_model=is_model)
        return loaded

    def _check_reasons(
        self, reasons: Iterator[Reason], display_path: str, *, is_model: bool = True
    ) -> None:
        """
        Check that there is no reason not to run a model, or that the user trusts its author.

        :raises ModelFileError: if the model needs trust.
        """
        if self._trust:
            return
        message = untrusted_code.refusal(
            reasons,
            custom_objects=is_model and self._custom_objects,
            trust_option=self._trust_option,
        )
        if message is not None:
            raise ModelFileError(display_path, "runs-code", message)

    def change(
        self, copy: PrivateCopy, changed: LoadedModel, plan: Plan, folder: Path
    ) -> PrivateCopy:
        """
        Return a copy with the changes of a plan; the same copy if the plan has no changes.

        :param changed: the model with these changes
        :param folder: the directory for the new copy, such as one of :meth:`temporary_folder`
        :raises ModelFileError: if the changes cannot be written.
        """
        if not (plan.edits or plan.casts or plan.state is not None):
            return copy
        from policytool.formats import rewriting  # imports h5py, which only a changed copy needs

        target = folder / copy.path.name
        rewriting.write(
            copy.path,
            target,
            rewriting.Changes(edits=plan.edits, casts=plan.casts, state=plan.state),
            document_format=plan.format,
            options=WriteOptions(shown=plan.path),
        )
        return PrivateCopy(path=target, document=changed.document, loaded=changed)

    @staticmethod
    def _detect_format(path: Path, display_path: str) -> Format:
        probe = Probe(path, display_path)
        with format_detection.reading_failures(probe):
            return format_detection.detect_format(probe)

    def _copy(self, path: Path, display_path: str, model_format: Format, *, follow: bool) -> Path:
        """
        Copy the files of a model into a new directory; return the path that its reader opens.

        :param follow: whether links that lead out of the model are followed
        """
        probe = Probe(path, display_path)
        with (
            format_detection.reading_failures(probe),
            _reporting_full_disk(display_path, self.path),
        ):
            parts = tuple(_parts(probe, model_format, follow=follow))
            _check_space(parts)
            home = self.folder()
            for part in parts:
                _copy_part(part, home)
        return home / _copy_name(model_format)


def _original(path: Path, display_path: str) -> LoadedModel:
    """
    Return the model in a checkpoint.

    :raises ModelFileError: if it cannot be read, or has no config or no values that can be read.
    """
    with steps.budget(display_path):
        document = format_detection.document(path, display_path)
        format_detection.refuse_ambiguity(document)
        if document.config_part is None:
            raise ModelFileError(display_path, "not-runnable", _JOIN)
        for observation in document.observations:
            if observation.code == UNKNOWN_DTYPES:
                message = f"cannot be run, because {observation.message}"
                raise ModelFileError(display_path, "not-runnable", message)
        return reading.load_model(document)


def _convert(path: Path, original: LoadedModel, folder: Path) -> Path:
    """
    Write the ``.keras`` file to which ``migrate`` converts a checkpoint, and return its path.

    :raises ModelFileError: if the model cannot be converted, or the file cannot be written.
    """
    from policytool.migration.convert import conversion_plan

    display_path = original.document.path
    with steps.budget(display_path):
        plan = conversion_plan.plan(original, _CONVERSION, keras_archive.FORMAT.document_format)
    if plan.refusals or plan.conversion is None:
        raise ModelFileError(
            display_path,
            plan.refusals[0].code,
            "cannot be converted to the .keras file that is run: "
            + "; ".join(refusal.message for refusal in plan.refusals[:_REFUSALS]),
        )
    target = folder / _copy_name(keras_archive.FORMAT)
    options = WriteOptions(shown=display_path)
    creating.build(path, original.document, target, plan.conversion.content, options)
    return target


class _Part(Struct, frozen=True, kw_only=True):
    """A file of a model, and the path of its copy in the private directory."""

    source: Path
    name: Path
    is_link: bool = False
    """Whether the copy is also a link, because the link leads out of the model."""


def _copy_name(model_format: Format) -> str:
    """Return the name of a model's copy in its directory."""
    if model_format is checkpoint.FORMAT:
        return f"{_NAME}{INDEX}"
    if model_format is sharded_weights.FORMAT:
        return f"{_NAME}{SHARD_MAP_SUFFIX}"
    return _NAME if model_format.is_directory else f"{_NAME}{model_format.suffixes[0]}"


def _parts(probe: Probe, model_format: Format, *, follow: bool) -> Iterator[_Part]:
    """
    Yield the files of a model.

    :raises ModelFileError: if the shard map is invalid, or if a part of a preset is a link out of
        its directory.
    :raises OSError: if the directory cannot be read.
    """
    path, name = local(probe.path), Path(_copy_name(model_format))
    if model_format.is_directory:
        for part in _directory_parts(probe, model_format, follow=follow):
            yield replace(part, name=name / part.name)
        return
    yield _Part(source=path, name=name)
    if model_format is checkpoint.FORMAT:
        stem = path.name.removesuffix(INDEX)
        for other in sorted(opening.names(path.parent)):
            if shard_prefix(other) == stem:
                shard = path.with_name(other)
                yield _Part(
                    source=shard,
                    name=Path(f"{_NAME}{other.removeprefix(stem)}"),
                    is_link=not follow and opening.links_beside(shard),
                )
    elif model_format is sharded_weights.FORMAT:
        for shard_path in sharded_weights.shards(probe, []):
            yield _Part(source=local(shard_path), name=Path(shard_path.name))


def _directory_parts(probe: Probe, model_format: Format, *, follow: bool) -> Iterator[_Part]:
    """Yield the files of a model that is a directory, with their names in it."""
    if model_format is keras_hub.FORMAT:
        for part_path in keras_hub.backbone_paths(probe):
            yield _Part(source=local(part_path), name=Path(part_path.name))
        return
    walk = _Walk(local(probe.path), model_format, follow=follow)
    for entry in sorted(probe.names):
        if walk.belongs(Path(entry)):
            yield from walk.parts(Path(entry))


class _Walk:
    """The files of a directory, with links followed as in policytool's reader and in Keras."""

    def __init__(self, root: Path, model_format: Format, *, follow: bool) -> None:
        self._root = root
        self._owns = model_format.owns
        self._has_npz = model_format is keras_directory.FORMAT
        self._follow = follow

    def belongs(self, name: Path) -> bool:
        """Return whether the file or directory with a name is part of the model."""
        return (
            (self._owns is not None and self._owns(name))
            or name.parts[0] == ASSETS
            or (self._has_npz and name.name.endswith(NPZ_SUFFIX))
        )

    def parts(self, name: Path, above: frozenset[str] = frozenset()) -> Iterator[_Part]:
        """
        Yield a file, or the files below a directory.

        :param above: the resolved paths of the parent directories. A link to one of them is not
            followed, because it would never end.
        """
        path = self._root / name
        is_link = path.is_symlink() and self._is_copied_as_link(name)
        if is_link or not path.is_dir():
            yield _Part(source=path, name=name, is_link=is_link)
        elif (resolved := os.path.realpath(path)) not in above:
            for entry in sorted(opening.names(path)):
                yield from self.parts(name / entry, above | {resolved})

    def _is_copied_as_link(self, name: Path) -> bool:
        """
        Return whether the copy of a link is also a link: if it is an asset that leads out of the
        model, and its target is not trusted. Links in other files of the model are followed.
        """
        is_own = self._owns is not None and self._owns(name) and name.parts[0] != ASSETS
        return not (is_own or self._follow) and opening.links_out(self._root / name, self._root)


def _copy_part(part: _Part, home: Path) -> None:
    """Copy a file and keep its holes, or create a link to the absolute path of the target."""
    target = home / part.name
    target.parent.mkdir(parents=True, exist_ok=True)
    if part.is_link:
        target.symlink_to(os.path.realpath(part.source))
        return
    with (
        opening.regular_file(part.source) as source,
        atomic.open_descriptor(target, atomic.NEW) as descriptor,
    ):
        atomic.copy_data(source, descriptor)


def _check_space(parts: tuple[_Part, ...]) -> None:
    """
    Check that the disk has enough free space for copies of the files.

    :raises OSError: if it has not.
    """
    needed = sum(_stored_size(part.source) for part in parts if not part.is_link)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed:,} bytes are needed and {free:,} are free")


def _stored_size(path: Path) -> int:
    """Return the size of a file on disk in bytes, without its holes."""
    try:
        status = path.stat()
    except OSError:  # the copy fails and reports the error
        return 0
    blocks = getattr(status, "st_blocks", None)
    return min(status.st_size, blocks * 512) if blocks is not None else status.st_size


@contextmanager
def _reporting_full_disk(display_path: str, home: Path) -> Iterator[None]:
    """
    Convert an error about a full disk into a message.

    :raises ModelFileError: instead of that error.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise ModelFileError(
            display_path,
            "no-space",
            f"not enough space in {home.parent} for the copy that TensorFlow loads "
            f"({error.strerror or error}); set TMPDIR to a directory with more space",
        ) from error


def _remove_links(copied: Path) -> None:
    """Remove the links of a copy, which lead out of the model."""
    entries = copied.rglob("*") if copied.is_dir() else copied.parent.iterdir()
    for path in tuple(entries):
        if stat.S_ISLNK(path.lstat().st_mode):
            path.unlink()
