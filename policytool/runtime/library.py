"""
The Keras of this interpreter, with one interface for Keras 2 (TF 2.2 to tf_keras 2.21) and Keras 3.

Only this module reads the keys of objects that Keras serializes. It also converts errors of the
libraries to one line.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import inspect
import json
import math
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Iterator, Sequence


_CLASS, _CONFIG = "class_name", "config"
_FUNCTION, _TUPLE = "function", "__tuple__"
"""The classes of serialized functions and tuples."""


def class_of(value: Any) -> str | None:
    """Return the class of a serialized object; None for any other value."""
    name = value.get(_CLASS) if isinstance(value, dict) else None
    return name if isinstance(name, str) else None


def config_of(value: Any) -> Any:
    """Return the config of a serialized object; None for any other value."""
    return value.get(_CONFIG) if isinstance(value, dict) else None


def with_config(value: dict[str, Any], config: Any) -> dict[str, Any]:
    """Return a serialized object with another config."""
    return {**value, _CONFIG: config}


def name_and_config(value: Any) -> tuple[Any, Any]:
    """
    Return the name under which a library looks up a class or function, and the config of the
    object; a text is the name itself.
    """
    if not isinstance(value, dict):
        return value, None
    name, config = value.get(_CLASS), value.get(_CONFIG)
    return (config, None) if name == _FUNCTION or isinstance(config, str) else (name, config)


def items_of(value: Any) -> Any:
    """Return the items of a tuple that Keras 3 serialized; any other value is unchanged."""
    return value.get("items") if class_of(value) == _TUPLE else value


def is_serialized(value: Any) -> bool:
    """Return whether a value has a class."""
    return isinstance(value, dict) and _CLASS in value


def with_policy_dict(dtype: Any) -> Any:
    """
    Return a dtype whose name is a mixed policy as TF 2.1 to 2.4 serialize it; any other dtype is
    unchanged.
    """
    is_mixed = isinstance(dtype, str) and dtype.startswith("mixed_")
    return {_CLASS: "Policy", _CONFIG: {"name": dtype}} if is_mixed else dtype


_RAISED = re.compile(r"[\w.]+(?:Error|Exception|Warning): ")
_ENCOUNTERED = "Exception encountered: "
_FULL_CONFIG = "Full object config:"
"""Keras ends messages with the config of the object after these words."""

_CALLING = re.compile(
    r"""Exception encountered when calling layer ["']([^"'\n]{1,80})["'] \(type (\w{1,80})\)"""
)
_COLOURS = re.compile(r"\x1b\[\d*m")
_NODES = ("[[{{node ", "[[node ", "; NodeDef: ")


def sentence(error: BaseException) -> str:
    """Return the class and the relevant line of an error."""
    without_colors = _COLOURS.sub("", str(error))
    without_config = without_colors.partition(_FULL_CONFIG)[0]
    cause = _cause([line.strip() for line in without_config.splitlines() if line.strip()])
    return type(error).__name__ + (": " + cause[:300] if cause else "")


def layer_of(error: BaseException) -> str:
    """Return the layer in which an error of Keras 2 occurred, in brackets; empty if unknown."""
    match = _CALLING.search(str(error))
    return ' (layer "{}", type {})'.format(match.group(1), match.group(2)) if match else ""


def _cause(lines: list[str]) -> str:
    """
    Return the message of an error without its context: AutoGraph puts lines of code before it, a
    graph puts the node after it, and the loader of Keras 3 puts the config before it.
    """
    is_converted = "in user code:" in lines
    start = max(
        (
            place
            for place, line in enumerate(lines)
            if line.startswith(_ENCOUNTERED) or (is_converted and _RAISED.match(line))
        ),
        default=None,
    )
    if start is not None:
        lines = [lines[start].partition(": ")[2], *lines[start + 1 :]]
    node = next((place for place, line in enumerate(lines) if line.startswith(_NODES)), 0)
    if node:
        return lines[node - 1]
    return next(
        (
            line
            for line in lines
            if not line.endswith(":") and not line.startswith("Exception encountered")
        ),
        lines[0] if lines else "",
    )


TENSORFLOW = "tensorflow"
MASK = "_keras_mask"
"""The attribute in which Keras 2 and Keras 3 store the mask of a tensor."""

HUB = "keras_hub"

KERAS2 = "keras2"
KERAS3 = "keras3"
POLICIES = ("float16", "bfloat16", "float32", "float64", "mixed_float16", "mixed_bfloat16")
"""The names of possible global policies, without removed and quantized ones."""

BARE_NAMES = (2, 5)
"""The first TensorFlow that accepts the name of a mixed policy instead of a dict."""

REVIVED = ("saving.saved_model.load", "saving.legacy.saved_model.load")
"""The modules of the classes of revived layers, whose own class is not available."""

_MOVED_FUNCTIONS = ("list_physical_devices", "list_logical_devices", "get_visible_devices")
"""Functions of ``tf.config`` that TF 2.0 has in ``tf.config.experimental``."""

_FIRST_MAJOR = 2
_DEEPEST = 20
"""The maximum number of examined causes of an error."""


class Refused(Exception):  # noqa: N818  # it names what happened to the job, as the parent tells it
    """
    An operation that is not possible with a model, with the reason in one sentence; ``code`` is
    stable.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def is_shortage(error: BaseException) -> bool:
    """Return whether memory ran out, according to an error or its causes."""
    for cause in _causes(error):
        text = str(cause).lower()
        if (
            isinstance(cause, MemoryError)
            or type(cause).__name__ == "ResourceExhaustedError"
            or getattr(cause, "errno", None) == errno.ENOMEM
            or ("memory" in text and "alloc" in text)
        ):
            return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    cause = error  # type: BaseException | None
    for _ in range(_DEEPEST):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


@contextlib.contextmanager
def refusing(code: str, text: str, *values: Any) -> Iterator[None]:
    """
    Raise any error in the context as Refused; its sentence fills the last placeholder of the
    message.
    """
    try:
        yield
    except Refused:
        raise
    except Exception as error:  # the code of a class of someone else's can raise anything
        raise Refused(code, text.format(*values, sentence(error))) from error


@contextlib.contextmanager
def refusing_calls(tf: Any, who: str) -> Iterator[None]:
    """Raise errors of ops about the inputs in the context as Refused, except a lack of memory."""
    try:
        yield
    except tf.errors.OpError as error:
        if is_shortage(error):
            raise
        text = "{} cannot be called with these inputs: {}"
        raise Refused("not-callable", text.format(who, sentence(error))) from error


_UNDEFINED = re.compile(r"\bname '(\w+)' is not defined")
_NOT_LOCATED = re.compile(r"\bCould not locate function '(\w+)'")
_OTHER_BYTECODE = re.compile(
    r"bad marshal data|marshal data too short|EOF read where object expected|unknown opcode"
    r"|\bcode\(\) "
)


def lambda_advice(error: BaseException, release: str | None) -> str:
    """
    Return what to do about an error of the code of a Lambda layer, to append to its sentence; an
    empty text for other errors. ``release`` is the release that wrote the source of a conversion,
    and None for other files.
    """
    name = _UNDEFINED.search(str(_innermost(error))) or _NOT_LOCATED.search(str(error))
    if name:
        return (
            "; if a Lambda layer uses it, pass --custom-objects MODULE:NAME, where NAME is a dict "
            "with the key '{}'"
        ).format(name.group(1))
    if _OTHER_BYTECODE.search(str(error)):
        text = (
            "; bytecode of a Lambda layer runs only in the Python version that wrote it: specify "
            "an interpreter of that version with --python "
        )
        if release is not None:
            return text + "source=" + release
        return text + "PYTHON, or convert the model with policytool migrate --target keras3"
    return ""


_NO_SHAPE = "not automatically infer the shape"


def _innermost(error: BaseException) -> BaseException:
    """Return the first error of a chain."""
    *_, first = _causes(error)
    return first


def _imported(path: str) -> Any:
    """Return the module of a file."""
    spec: Any = importlib.util.spec_from_file_location("policytool_functions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Library:
    """The Keras that loads models of one family, and its backend."""

    def __init__(self, family: str, backends: Sequence[str] = (TENSORFLOW,)) -> None:
        """``backends`` are the possible backends of Keras 3; the first installed one is used."""
        self.family = family
        self.backend = installed_backend(backends) if family == KERAS3 else TENSORFLOW
        """The backend of the library; Keras 2 only has TensorFlow."""

        self.tf, self.keras = (
            _libraries(family) if self.backend == TENSORFLOW else _eager_libraries(self.backend)
        )
        """TensorFlow, or the part of its interface that another backend has."""

        self.custom: dict[str, Any] = {}
        """Custom classes and functions by name, as ``custom_objects`` accepts them."""

    @property
    def release(self) -> tuple[int, int]:
        """TensorFlow's release, such as ``(2, 15)``."""
        major, minor = self.tf.__version__.split(".")[:2]
        return int(major), int(minor)

    @property
    def versions(self) -> dict[str, str]:
        """The releases of the libraries, for the report."""
        return {
            self.backend: self.tf.__version__,
            "keras": str(getattr(self.keras, "__version__", self.tf.__version__)),
            "library": self.keras.__name__,
        }

    @property
    def name(self) -> str:
        """The library with its release, such as ``tf_keras 2.21.0``."""
        return "{library} {keras}".format(**self.versions)

    @property
    def traces(self) -> bool:
        """Whether functions are traced into graphs; other backends run op by op."""
        return self.backend == TENSORFLOW

    @property
    def backend_name(self) -> str:
        """The backend as messages name it."""
        return "TensorFlow" if self.traces else self.backend

    def differentiate(
        self, compute_losses: Callable[[], tuple[Any, Any]], variables: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        """
        Return the second result of a function, and the gradient of the first for each trainable
        variable of a model; None for a variable on which it does not depend. JAX has zeros instead.
        """
        if not self.traces:
            result: tuple[Any, list[Any]] = self.tf.differentiate(
                compute_losses, [variable.own for variable in variables]
            )
            return result
        with self.tf.GradientTape() as tape:
            scaled, loss = compute_losses()
        return loss, tape.gradient(scaled, [variable.raw for variable in variables])

    @property
    def has_old_policies(self) -> bool:
        """Whether the release reads mixed policies only as dicts."""
        return self.family == KERAS2 and self.release < BARE_NAMES

    def mask_of(self, tensor: Any) -> Any:
        """Return the mask that Keras stored for a tensor; None without a mask."""
        return getattr(tensor, MASK, None) if self.traces else self._masking.get_keras_mask(tensor)

    def set_mask(self, tensor: Any, mask: Any) -> None:
        """Store the mask of a tensor."""
        if self.traces:
            setattr(tensor, MASK, mask)
        else:
            self._masking.set_keras_mask(tensor, mask)

    @property
    def _masking(self) -> Any:
        return importlib.import_module("keras.src.backend")

    def register(
        self, names: Sequence[str], class_names: Sequence[str], needed: Sequence[str] = ()
    ) -> None:
        """
        Register custom classes: ``MODULE`` for all that a module defines, and for what it imports
        under a name in ``class_names``; ``MODULE:NAME`` for one attribute of it.

        ``class_names`` are the names by which the file refers to classes; one with a package
        (``package>Name``) also matches a class that was not registered here. Each name in
        ``needed`` must be defined: otherwise Keras would look it up in modules that are not
        trusted.
        """
        for name in names:
            module_name, _, attribute = name.partition(":")
            try:
                module = importlib.import_module(module_name)
                definitions = (
                    {attribute: getattr(module, attribute)}
                    if attribute
                    else {
                        **_named_attributes(module, [*class_names, *needed]),
                        **_defined_attributes(module),
                    }
                )
            except (ImportError, AttributeError) as error:
                raise Refused(
                    "custom-objects", "--custom-objects {}: {}".format(name, error)
                ) from error
            for key, value in definitions.items():
                self.custom.update(value if isinstance(value, dict) else {key: value})
        for name in (*class_names, *needed):
            class_name = name.rpartition(">")[2]
            if name not in self.custom and class_name in self.custom:
                self.custom[name] = self.custom[class_name]
        registered = getattr(
            self.keras.utils, "get_registered_object", lambda _: None
        )  # what a module registers is in none of its own names
        missing = [name for name in needed if name not in self.custom and registered(name) is None]
        if missing:
            text = (
                "the file needs {}, which --custom-objects does not define; add its module, "
                "or use --trust"
            )
            raise Refused("custom-objects", text.format(", ".join(missing)))

    def scope(self) -> Any:
        """Return a context with the custom classes."""
        return self.keras.utils.custom_object_scope(self.custom)

    def deserialising(self) -> Any:
        """
        Return a context in which configs are read as the library's loader of SavedModels reads
        them, because TF 2.12 and later also have a newer format.
        """
        options = self.optional("saving.legacy.saved_model.utils")
        if options is not None and hasattr(options, "in_tf_saved_model_scope"):
            return options.keras_option_scope(save_traces=True, in_tf_saved_model_scope=True)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def loading(
        self,
        what: str,
        class_names: Sequence[str] = (),
        *,
        release: str | None = None,
        is_selected: bool = False,
    ) -> Iterator[None]:
        """
        Raise any error of the library within the context as ``Refused``; ``class_names`` are the
        custom classes of the file. ``release`` is the release that wrote the source of a
        conversion, and None for other files; ``is_selected`` says whether the user selected an
        interpreter for the source.
        """
        try:
            yield
        except Refused:
            raise
        except Exception as error:
            reason = sentence(error).rstrip(".")
            if _NO_SHAPE in reason:  # Keras hides the error of the code
                reason += " ({})".format(sentence(_innermost(error)).rstrip("."))
            message = "{} cannot load {}: {}{}".format(self.name, what, reason, layer_of(error))
            advice = lambda_advice(error, release)
            if advice:
                message += advice
            elif class_names and not self.custom.keys() & set(class_names):
                message += (
                    "; specify the module of its custom classes ({}) with --custom-objects MODULE"
                ).format(", ".join(class_names))
            elif release is not None and not is_selected:
                message += "; load it with the release that wrote it: --python source=" + release
            raise Refused("not-loadable", message) from error

    def load(self, path: str, *, compiled: bool, trust: bool, as_is: bool = False) -> Any:
        """
        Return a saved model. With ``as_is``, policies that this release does not read are not
        converted first.
        """
        if not (compiled or as_is) and self.has_old_policies and os.path.isfile(path):
            return self._load_hdf5(path)
        options: dict[str, Any] = {"custom_objects": self.custom, "compile": compiled}
        if has_argument(self.keras.models.load_model, "safe_mode"):
            options["safe_mode"] = not trust
        model = self.keras.models.load_model(path, **options)
        if not hasattr(model, "call"):  # of a SavedModel that was exported for serving
            raise Refused("not-loadable", "{} returns only its signatures".format(self.name))
        return model

    def build(self, config: Any, weights: str | None, *, trust: bool) -> Any:
        """Return the model of an architecture, with the weights of a file if there is one."""
        options = (
            {"safe_mode": not trust}
            if has_argument(self.keras.models.model_from_json, "safe_mode")
            else {}
        )
        model = self.keras.models.model_from_json(
            json.dumps(config), custom_objects=self.custom, **options
        )
        if weights is not None:
            model.load_weights(weights)
        return model

    def build_preset(self, config: Any, weights: str, *, trust: bool) -> Any:
        """
        Return the backbone of a KerasHub preset with the policies in its config, as
        ``from_preset`` returns it with this ``dtype``.
        """
        try:
            importlib.import_module(HUB)  # registers its classes
        except ImportError as error:
            raise Refused("no-keras-hub", str(error)) from error
        return self.build(config, weights, trust=trust)

    def _load_hdf5(self, path: str) -> Any:
        """
        Return the model of an HDF5 file as ``load_model`` does, but with policies that this release
        reads.
        """
        import h5py  # every TensorFlow needs it

        with h5py.File(path, "r") as file:
            config = json.loads(file.attrs["model_config"])
        model = self.keras.models.model_from_config(
            self.config_in_format(config), custom_objects=self.custom
        )
        model.load_weights(path)
        return model

    def trust(self, functions: str | None = None) -> None:
        """
        Allow code in the file: tf_keras 2.13 and later otherwise reject the bytes of Lambda layers.

        Names in this code that programs usually give to modules are defined. ``functions`` is the
        path of a module with the functions that a conversion calls by name.
        """
        import numpy as np  # the module must load without it: it describes the error then

        modules = {
            "tf": self.tf if self.traces else None,
            "np": np,
            "math": math,
            "keras": self.keras,
            "layers": self.keras.layers,
            "K": self.keras.backend,
        }
        self.custom = {**modules, **self.custom}
        if functions is not None:
            with refusing("not-loadable", "the code of the Lambda layers cannot be run: {}"):
                self.custom = {**_imported(functions).functions(**modules), **self.custom}
        internal = getattr(self.keras, "config" if self.family == KERAS3 else "__internal__", None)
        if internal is not None and hasattr(internal, "enable_unsafe_deserialization"):
            internal.enable_unsafe_deserialization()

    @contextlib.contextmanager
    def global_policy(self, name: str | None) -> Iterator[None]:
        """
        Set the global policy in the context, which also applies to layers that code of a class
        creates.
        """
        self._set_policy(name if name in POLICIES else "float32")
        try:
            yield
        finally:
            self._set_policy("float32")

    def _set_policy(self, name: str) -> None:
        mixed = self.keras.mixed_precision
        setter = getattr(mixed, "set_global_policy", getattr(mixed, "set_dtype_policy", None))
        (setter or mixed.experimental.set_policy)(name)  # the second is Keras 3's own name

    def policy(self, name: str) -> Any:
        """Return a policy by its name."""
        mixed = self.keras.mixed_precision
        return mixed.Policy(name) if hasattr(mixed, "Policy") else mixed.experimental.Policy(name)

    def config_in_format(self, config: Any) -> Any:
        """
        Return a config with its policies in the format of this release: the names of mixed policies
        from TF 2.5 on, and dicts before.
        """
        if isinstance(config, dict):
            return {
                key: with_policy_dict(value)
                if key == "dtype" and self.has_old_policies
                else self.config_in_format(value)
                for key, value in config.items()
            }
        return (
            [self.config_in_format(value) for value in config]
            if isinstance(config, list)
            else config
        )

    def internal(self, *candidates: str) -> ModuleType:
        """
        Return an internal module of Keras 2, whose path differs between releases; ``candidates``
        are its possible paths below the root.
        """
        module = self.optional(*candidates)
        if module is None:
            raise Refused(
                "library",
                "{} has none of the modules {}".format(
                    self.versions["library"], ", ".join(candidates)
                ),
            )
        return module

    def optional(self, *candidates: str) -> ModuleType | None:
        """Return the first of these modules of Keras 2 that exists; None if none does."""
        roots = (
            self.keras.__name__.partition(".")[0] + ".src",
            "keras.src",
            "keras",
            "tensorflow.python.keras",
        )
        for root in roots if self.keras.__name__.startswith("tf_keras") else roots[1:]:
            for candidate in candidates:
                try:
                    return importlib.import_module(root + "." + candidate)
                except ImportError:
                    continue
        return None


def has_argument(function: Any, argument: str) -> bool:
    """Return whether a function of this release has an argument."""
    return argument in inspect.signature(function).parameters


def is_revived(layer: Any) -> bool:
    """Return whether a layer was revived from its traces, so that it has no code to trace again."""
    return type(layer).__module__.endswith(REVIVED)


def quantization_mode(layer: Any) -> str | None:
    """Return the mode in which a layer of Keras 3 is quantised; None if it is not."""
    # in Keras 3.3, only the policy has the mode
    source = layer if hasattr(layer, "quantization_mode") else getattr(layer, "dtype_policy", None)
    mode = getattr(source, "quantization_mode", None)
    return None if mode is None else str(mode)


def child_layers(layer: Any) -> list[Any]:
    """Return the layers directly in a layer, in the order in which Keras tracks them."""
    if hasattr(layer, "_flatten_layers"):
        layers = list(layer._flatten_layers(recursive=False, include_self=False))  # noqa: SLF001  # every layer that it tracks, not only those of a model
    else:  # TF 2.2 and 2.3 list the containers of layers instead
        tracked = list(getattr(layer, "_layers", []))
        layers = [
            inner
            for entry in tracked
            for inner in ([entry] if hasattr(entry, "get_config") else getattr(entry, "layers", []))
        ]
    return [child for child in layers if hasattr(child, "get_config")]


def paths(model: Any) -> list[tuple[str, Any]]:
    """Return every layer once with its path, names from the root down, the model itself first."""
    visited: set[int] = set()

    def walk(layer: Any, path: tuple[str, ...]) -> list[tuple[str, Any]]:
        if id(layer) in visited:
            return []
        visited.add(id(layer))
        own_path = (*path, str(layer.name).replace("/", "~1"))
        return [
            ("/".join(own_path), layer),
            *(entry for child in child_layers(layer) for entry in walk(child, own_path)),
        ]

    return walk(model, ())


def installed_backend(backends: Sequence[str]) -> str:
    """
    Return the first backend that is installed.

    :raises Refused: if none is.
    """
    if list(backends) == [TENSORFLOW]:
        return TENSORFLOW  # which may lack parts; its import says so
    for name in backends:
        if importlib.util.find_spec(name) is not None:
            return name
    raise Refused("no-backend", ", ".join(backends))


def _eager_libraries(backend: str) -> tuple[Any, Any]:
    """Return a backend other than TensorFlow, and Keras 3."""
    os.environ["KERAS_BACKEND"] = backend
    os.environ["JAX_ENABLE_X64"] = "1"  # otherwise JAX computes float64 in float32
    # As with TensorFlow, a GPU's memory is allocated as it is needed: JAX takes 75 % at the start
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        keras: Any = importlib.import_module("keras")
    except ImportError as error:
        raise Refused("no-backend", str(error)) from error
    if not hasattr(keras, "tree") or keras.backend.backend() != backend:
        raise Refused("no-backend", "found Keras {}".format(getattr(keras, "__version__", "2")))
    from .eager import EagerBackend

    return EagerBackend(backend, keras), keras


def _libraries(family: str) -> tuple[Any, Any]:
    """Return TensorFlow and the Keras of a family."""
    legacy = (
        family == KERAS2 and importlib.util.find_spec("tf_keras") is not None
    )  # TF 2.14 and 2.15 have Keras 2 without it, and fail where it is asked for
    os.environ["TF_USE_LEGACY_KERAS"] = "1" if legacy else "0"
    os.environ["KERAS_BACKEND"] = TENSORFLOW
    try:
        tf = importlib.import_module("tensorflow")
    except ImportError as error:
        raise Refused("no-tensorflow", str(error)) from error
    if int(tf.__version__.partition(".")[0]) < _FIRST_MAJOR:
        raise Refused(
            "no-tensorflow",
            "found TensorFlow {}, but 2.0 or later is required".format(tf.__version__),
        )
    for name in _MOVED_FUNCTIONS:
        if not hasattr(tf.config, name):
            setattr(tf.config, name, getattr(tf.config.experimental, name))
    for name in (
        ("tf_keras", "tensorflow.keras") if family == KERAS2 else ("keras", "tensorflow.keras")
    ):
        try:
            keras: Any = importlib.import_module(name)
        except ImportError:
            keras = getattr(tf, "keras", None) if name == "tensorflow.keras" else None
        version = (
            str(getattr(keras, "__version__", tf.__version__))
            if keras is not None and hasattr(keras, "models")
            else ""
        )
        if version and version.startswith("3") == (family == KERAS3):
            return tf, keras
    raise Refused(
        "no-tf-keras" if family == KERAS2 else "no-keras",
        "found TensorFlow {}".format(tf.__version__),
    )


def _named_attributes(module: ModuleType, names: Sequence[str]) -> dict[str, Any]:
    """
    Return the classes and functions that a module has under these names, including those that it
    imports.
    """
    attributes = {
        attribute: getattr(module, attribute, None)
        for attribute in (name.rpartition(">")[2] for name in names)
    }
    return {
        name: value
        for name, value in attributes.items()
        if inspect.isclass(value) or inspect.isfunction(value)
    }


def _defined_attributes(module: ModuleType) -> dict[str, Any]:
    """Return the classes and functions that a module defines."""
    public = ((name, value) for name, value in vars(module).items() if not name.startswith("_"))
    return {
        name: value
        for name, value in public
        if (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    }
