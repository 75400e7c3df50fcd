"""
``policytool.load``: loads a saved model in the Keras of this interpreter. A model that this Keras
does not load is first converted, in a private directory.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import math
import os
import re
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.commands import migration_preview
from policytool.commands.destinations import Destination
from policytool.commands.migrate import MigrateRequest, Status, load_document, migrate_loaded
from policytool.formats import WITHOUT_WEIGHTS, discovery, format_detection, keras_hub
from policytool.migration.convert import conversion_plan
from policytool.migration.planning.options import options_from_arguments
from policytool.model import untrusted_code
from policytool.model.hazards import LAMBDA
from policytool.model.model import Outcome, verdict_of
from policytool.numerics import workers
from policytool.numerics.hand_over import NOT_RUN, HandOver
from policytool.releases import releases
from policytool.releases.releases import KERAS2, KERAS3
from policytool.support import limits, steps
from policytool.support.errors import MissingPackageError, ModelFileError, causes
from policytool.support.files.remote_path import local

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from policytool.formats.discovery import Input
    from policytool.formats.document import Document
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Verdict
    from policytool.numerics.hand_over import PrivateCopy

_LEGACY: Final = "TF_USE_LEGACY_KERAS"
"""The environment variable with which TensorFlow 2.16 and later use tf_keras."""


_COLOURS: Final = re.compile(r"\x1b\[\d*m")
_NESTED: Final = "Exception encountered: "
_CALLED: Final = "Exception encountered when calling "


class InstalledKeras(Struct, frozen=True, kw_only=True):
    """The Keras of this interpreter."""

    module: Any
    release: str
    """The release, such as ``keras3.7``; the newest known release if it is newer than that."""

    @property
    def loader(self) -> str:
        """The measured release, the verdicts and files of which are used for this one."""
        return releases.target_and_containers(self.release)[0]


def installed_keras() -> InstalledKeras:
    """
    Import Keras, and return it: tf_keras if ``TF_USE_LEGACY_KERAS`` is set or no other is
    installed, and otherwise Keras 3 or the Keras 2 of TensorFlow.

    :raises MissingPackageError: if no Keras is installed.
    """
    is_legacy = os.environ.get(_LEGACY, "").lower() in {"1", "true"}
    names = ("tf_keras", "keras") if is_legacy else ("keras", "tf_keras")
    name = next((name for name in names if importlib.util.find_spec(name) is not None), None)
    if name is None:
        raise MissingPackageError(
            "policytool.load needs Keras; install it with: pip install 'policytool[check]'"
        )
    module = importlib.import_module(name)
    library = name if name == "tf_keras" or module.__version__.startswith("3.") else "tf"
    release = f"{library}{'.'.join(module.__version__.split('.')[:2])}"
    if not releases.is_known(release):
        release = releases.newest(KERAS3 if library == "keras" else KERAS2).id
    return InstalledKeras(module=module, release=release)


def load(path: str, weights: str | None, custom_objects: Mapping[str, Any], *, trust: bool) -> Any:  # noqa: ANN401  # a class of the installed Keras
    """
    Return the model of a file, or of an architecture and its weights.

    The allow-list is applied to the private file that Keras loads: a copy, or the result of a
    conversion.

    :raises ModelFileError: if the file cannot be read, converted or loaded, or needs trust.
    :raises MissingPackageError: if no Keras is installed.
    """
    source = discovery.named_input(path)
    with (
        HandOver(trust=trust, custom_objects=True, trust_option="trust=True") as hand_over,
        limits.without_option(),
        steps.budget(path),
    ):
        named = format_detection.document(source.path, source.display_path)
        document = dataclasses.replace(named, local_path=None)  # Keras loads a copy of it
        keras = installed_keras()  # takes seconds, so files that cannot be read fail before
        copy = _loadable_copy(document, source, weights, keras, hand_over)
        custom_objects = {**_functions(copy, keras), **custom_objects}
        names = _custom_objects(copy.model, custom_objects, keras, trust=trust)
        return _load_copy(copy, names, keras, trust=trust)


def _loadable_copy(
    document: Document,
    source: Input,
    weights: str | None,
    keras: InstalledKeras,
    hand_over: HandOver,
) -> PrivateCopy:
    """Return a private copy of the model, which is converted if this Keras does not load it."""
    path = local(source.path)
    if document.format == keras_hub.FORMAT.document_format and weights is None:
        workers.check_memory(document, (None,))
        return hand_over.take(path, source.display_path)
    if weights is not None or document.format in NOT_RUN:
        migration_preview.check_migratable(document, converts=True)
        loaded = load_document(document, Path(weights) if weights is not None else None)
        return _converted(loaded, path, keras, hand_over)
    format_detection.refuse_ambiguity(document)

    def take() -> PrivateCopy:
        return hand_over.take(path, source.display_path)

    if document.config_part is None:
        migration_preview.check_migratable(document, converts=True)
        return take()
    loaded = load_document(document, None)
    verdict = _verdict(loaded, keras)
    if verdict is None or not verdict.loads:
        return _converted(loaded, path, keras, hand_over, otherwise=take)
    try:
        return take()
    except ModelFileError:
        # a conversion may replace the code of a Lambda
        if any(site.class_name == LAMBDA for site in loaded.sites):
            with suppress(ModelFileError):
                return _converted(loaded, path, keras, hand_over)
        raise


def _converted(
    loaded: LoadedModel,
    source: Path,
    keras: InstalledKeras,
    hand_over: HandOver,
    otherwise: Callable[[], PrivateCopy] | None = None,
) -> PrivateCopy:
    """
    Convert a model into the private directory, and return the result.

    :param otherwise: returns the copy to use if no conversion is necessary, or if none is possible
        and it is unknown whether Keras loads the copy
    :raises ModelFileError: if the model cannot be converted.
    """
    request = MigrateRequest(
        options=options_from_arguments(None, (), target=keras.loader, allow_weight_rewrite=True),
        destination=Destination(output=hand_over.folder(), is_directory=True, is_private=True),
        details=False,
    )
    done = migrate_loaded(loaded, source, request)
    if done.written is not None:
        planned = conversion_plan.result(loaded, request.options, None)
        copy = hand_over.adopt(done.written.target, loaded.document.path, planned)
        return replace(copy, functions=hand_over.functions(done.plan.conversion))
    verdict = _verdict(loaded, keras)
    is_possible = verdict is None or verdict.outcome is not Outcome.INCOMPATIBLE
    if otherwise is not None and (is_possible or done.status is Status.UNCHANGED):
        return otherwise()
    reasons = "; ".join(refusal.message for refusal in done.plan.refusals[:3])
    raise ModelFileError(
        loaded.document.path,
        "not-loadable",
        f"cannot be loaded by {releases.release_name(keras.release)}, and policytool migrate "
        f"--target {keras.loader} cannot convert it: "
        f"{reasons or (verdict.explanation if verdict is not None else 'unknown reason')}",
    )


def _verdict(loaded: LoadedModel, keras: InstalledKeras) -> Verdict | None:
    return verdict_of(loaded.loaders, keras.loader)


def _functions(copy: PrivateCopy, keras: InstalledKeras) -> dict[str, Any]:
    """
    Return the functions in the module of a conversion, which is code of the file; none without it.

    :raises ModelFileError: if this code cannot be run.
    """
    if copy.functions is None:
        return {}
    spec: Any = importlib.util.spec_from_file_location("policytool_functions", copy.functions)
    module = importlib.util.module_from_spec(spec)
    has_tensorflow = importlib.util.find_spec("tensorflow") is not None
    try:
        spec.loader.exec_module(module)
        functions: dict[str, Any] = module.functions(
            tf=importlib.import_module("tensorflow") if has_tensorflow else None,
            np=importlib.import_module("numpy"),
            math=math,
            keras=keras.module,
            layers=keras.module.layers,
            K=keras.module.backend,
        )
    except Exception as error:
        raise ModelFileError(
            copy.document.path,
            "not-loadable",
            f"the code of its Lambda layers cannot be run: {_first_line(error)}",
        ) from error
    return functions


def _custom_objects(
    loaded: LoadedModel, custom_objects: Mapping[str, Any], keras: InstalledKeras, *, trust: bool
) -> dict[str, Any]:
    """
    Return the custom objects with the names that the file uses, which may include a package.

    :raises ModelFileError: if an object that the file needs is neither among them nor, except for
        presets, registered, so that Keras would look it up in modules that are not trusted.
    """
    names = {
        name: custom_objects.get(name, custom_objects.get(name.rpartition(">")[2]))
        for name in untrusted_code.needed_names(loaded)
    }
    # for a preset, users import KerasHub, which also registers classes that open files
    is_preset = loaded.document.format == keras_hub.FORMAT.document_format
    missing = [
        name
        for name, value in names.items()
        if value is None and (is_preset or keras.module.utils.get_registered_object(name) is None)
    ]
    if missing and not trust:
        path = loaded.document.path
        shown = f"policytool migrate {path} --target {keras.loader} --preview shows its code"
        shown += ", if policytool can read it"
        has_lambdas = any(site.class_name == LAMBDA for site in loaded.sites)
        raise ModelFileError(
            path,
            "runs-code",
            f"needs {', '.join(missing)}; add it to custom_objects"
            f"{f' ({shown})' if has_lambdas else ''}, or use trust=True for files from a trusted "
            "source",
        )
    return {
        **custom_objects,
        **{name: value for name, value in names.items() if value is not None},
    }


def _load_copy(
    copy: PrivateCopy, custom_objects: Mapping[str, Any], keras: InstalledKeras, *, trust: bool
) -> Any:  # noqa: ANN401  # as above
    """
    Return the model of a private copy.

    :raises ModelFileError: if Keras cannot load it.
    """
    models, options = keras.module.models, {"custom_objects": custom_objects}
    try:
        with _code_allowed(keras) if trust else nullcontext():
            if copy.document.format == keras_hub.FORMAT.document_format:
                return _load_preset(copy, keras, options)
            if copy.document.format in WITHOUT_WEIGHTS:
                return models.model_from_json(json.dumps(copy.document.config), **options)
            return models.load_model(
                str(copy.path),
                **options,
                compile=_compiles(copy.model, keras),
                safe_mode=not trust,
            )
    except MissingPackageError:
        raise
    except Exception as error:  # the code of any class can raise anything
        raise ModelFileError(
            copy.document.path,
            "not-loadable",
            f"{releases.release_name(keras.release)} cannot load the model: {_first_line(error)}",
        ) from error


def _load_preset(copy: PrivateCopy, keras: InstalledKeras, options: Mapping[str, Any]) -> Any:  # noqa: ANN401  # as above
    """
    Return the backbone of a preset with its stored policies, as ``from_preset`` returns it with the
    stored ``dtype``.

    :raises MissingPackageError: if KerasHub is not installed.
    """
    try:
        importlib.import_module("keras_hub")  # registers its classes
    except ImportError as error:
        raise MissingPackageError(
            f"{copy.document.path} is a preset, for which policytool.load needs KerasHub; install "
            f"it with: {workers.HUB_INSTALL}"
        ) from error
    backbone = keras.module.models.model_from_json(json.dumps(copy.document.config), **options)
    backbone.load_weights(str(keras_hub.weights_path(copy.path)))
    return backbone


def _first_line(error: BaseException) -> str:
    """
    Return the line of an error that names its reason. Keras 3 appends the whole config, puts the
    errors of outer objects first, and hides the error of a Lambda from which it infers a shape.
    """
    lines = [line for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    nested = [line.removeprefix(_NESTED) for line in lines if line.startswith(_NESTED)]
    if lines[0].startswith(_CALLED) and lines[1:]:
        *_, hidden = causes(error)
        return lines[1] + (f" ({_first_line(hidden)})" if hidden is not error else "")
    return nested[-1] if nested else lines[0]


def _compiles(loaded: LoadedModel, keras: InstalledKeras) -> bool:
    """Return whether the training configuration loads, and needs no other code than the model."""
    verdict = _verdict(loaded, keras)
    if verdict is None or verdict.training is None:
        return False
    needed = {
        hazard.name
        for hazard in untrusted_code.needed_objects(loaded, loaded.hazards, compiles=True)
    }
    return verdict.training.outcome is Outcome.LOADS and needed <= set(
        untrusted_code.needed_names(loaded)
    )


def _code_allowed(keras: InstalledKeras) -> AbstractContextManager[None]:
    """Return a context in which the code of Lambda layers in HDF5 runs."""
    package = keras.module.__name__.partition(".")[0]
    try:
        serialization = importlib.import_module(f"{package}.src.saving.serialization_lib")
    except ImportError:  # Keras 2.12
        return nullcontext()
    scope: AbstractContextManager[None] = serialization.SafeModeScope(safe_mode=False)
    return scope
