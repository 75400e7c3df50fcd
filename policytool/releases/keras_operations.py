"""
What loaders make of operations in a graph.

Which classes each release of Keras 3 has, the arguments of their constructors and of their calls,
and which functions the op layers of Keras 2 find by name: ``data/operations.json`` is what they
said themselves (``fixtures/operations.py`` asks them, and explains it).

``data/function_operations.json`` says which function of TensorFlow and which operation compute the
same, one row each, and the dtypes of results that no row says; its schema describes them.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from policytool.releases import data, keras_objects
from policytool.releases.layer_classes import operation_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.support.text.jsontext import Json

Kinds = frozenset[str]
"""The JSON form of an argument: ``list``, ``number``, and for a list the form of its items."""

MODULES: Final = "keras.src.ops."
"""The prefixes of the modules of Keras 3's operations."""


class CallParameters(Struct, frozen=True):
    """The parameters of a method of an operation."""

    names: tuple[str, ...]
    """The parameters in order; a variadic parameter begins with ``*``."""

    optional: frozenset[str]
    """The parameters with a default."""

    @property
    def positional(self) -> tuple[str, ...]:
        """The parameters that each take one argument, in order."""
        return tuple(name for name in self.names if not name.startswith("*"))

    def takes_any(self, stars: str) -> bool:
        """Return whether the method accepts any further arguments (``*``) or names (``**``)."""
        return any(
            name.startswith(stars) and not name.startswith(f"{stars}*") for name in self.names
        )

    def surplus(self, count: int, names: frozenset[str]) -> frozenset[str]:
        """
        Return the arguments that the method does not accept: names, and the positions of arguments
        without a name.
        """
        positional_count = len(self.positional)
        surplus_positions = () if self.takes_any("*") else range(positional_count + 1, count + 1)
        unknown = () if self.takes_any("**") else names - set(self.names)
        return frozenset((*unknown, *(f"#{number}" for number in surplus_positions)))


class OperationSignature(Struct, frozen=True, kw_only=True):
    """The parameters of a class of operations."""

    config: Mapping[str, Any]
    """The constructor's parameters with their defaults, including ``name`` if it has one."""

    required: tuple[str, ...]
    """The constructor's parameters without defaults."""

    takes_more: bool
    """Whether the constructor accepts any further parameter."""

    run: CallParameters
    """The parameters of the method that runs in a call of a model."""

    built: CallParameters
    """
    The parameters of the method that runs while a model is built, which only infers the shape of
    the output.
    """

    @property
    def call(self) -> tuple[str, ...]:
        """The parameters of a call, in order; a variadic parameter begins with ``*``."""
        return self.run.names

    @property
    def takes_name(self) -> bool:
        """Whether the constructor accepts the name of the operation."""
        return "name" in self.config


class OperationUse(Struct, frozen=True, kw_only=True):
    """An operation in a graph with one of its calls: all that its compatibility depends on."""

    module: str | None
    """The last part of ``keras.src.ops.MODULE``; None for files without modules, such as HDF5."""

    class_name: str
    config: frozenset[tuple[str, Kinds]]
    args: tuple[Kinds, ...] = ()
    kwargs: frozenset[tuple[str, Kinds]] = frozenset()
    dtypes: frozenset[str] = frozenset()
    """The dtypes of the tensors in the call."""

    has_constants: bool = False
    """Whether the call contains tensors with values, such as ``ops.ones((2,))``."""


class OperationObjection(Struct, frozen=True):
    """The reason why a release does not load an operation."""

    reason: str
    arguments: tuple[str, ...] = ()
    """The affected arguments; empty if the release does not have the class."""


def signature(loader: str, module: str | None, class_name: str) -> OperationSignature | None:
    """
    Return the signature of a class of ``keras.src.ops.MODULE`` in a Keras 3 release; None if the
    release does not have the class.
    """
    for entry in _entries(module, class_name):
        if loader in entry["loaders"]:
            run = CallParameters(tuple(entry["call"]), frozenset(entry["optional"]))
            inferred = entry.get("inferred")
            return OperationSignature(
                config=entry["config"],
                required=tuple(entry["required"]),
                takes_more=entry["takes_more"],
                run=run,
                built=CallParameters(tuple(inferred["call"]), frozenset(inferred["optional"]))
                if inferred
                else run,
            )
    return None


def uses(entry: Mapping[str, Json]) -> Iterator[OperationUse]:
    """
    Yield each use of an operation in an entry of a graph: one for each call, or one if there are no
    calls.
    """
    module, config = entry.get("module"), entry.get("config")
    use = OperationUse(
        module=module.removeprefix(MODULES) if isinstance(module, str) else None,
        class_name=str(keras_objects.class_of(entry)),
        config=_kinds_by_name(config),
    )
    calls = [node for node in keras_objects.stored_calls(entry) if isinstance(node, dict)]
    if not calls:
        yield use
    for node in calls:
        args, tensors = node.get("args"), [*_tensors(node)]
        yield replace(
            use,
            args=tuple(map(value_kinds, args)) if isinstance(args, list) else (),
            kwargs=_kinds_by_name(node.get("kwargs")),
            dtypes=frozenset(
                str(keras_objects.arguments_of(tensor).get("dtype"))
                for tensor in tensors
                if keras_objects.class_of(tensor) == _TENSOR
            ),
            has_constants=any(keras_objects.class_of(tensor) == _CONSTANT for tensor in tensors),
        )


def _tensors(node: Json) -> Iterator[dict[str, Json]]:
    """Yield the tensors in a call, at any depth."""
    pending: list[Json] = [node]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            if keras_objects.class_of(value) in {_TENSOR, _CONSTANT}:
                yield value
            else:
                pending += value.values()


def value_kinds(value: Json) -> Kinds:
    """Return the kinds of the values in a value of a file, at any depth."""
    if not isinstance(value, list):
        return _KINDS[_kind(value)]
    return frozenset({_LIST, *(f"{_LIST} of {_kind(item)}" for item in value)})


def functions(entry: Mapping[str, Json]) -> Iterator[str]:
    """Yield the names of the functions in an operation's arguments; ``lambda`` for bytecode."""
    pending: list[Json] = [entry.get("config"), entry.get("inbound_nodes")]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            kind = _kind(value)
            if kind == _FUNCTION:
                yield str(value.get("config"))
            elif kind == keras_objects.CODE:
                yield "lambda"
            else:
                pending += value.values()
        elif isinstance(value, list):
            pending += value


_CONVOLVED_RANK: Final = 3
"""The smallest rank of the input and the kernel of a convolution."""


def exceeds_axes(entry: Mapping[str, Json]) -> bool:
    """Return whether the axis of an operation is out of the range that later releases check."""
    bound = operation_facts(str(keras_objects.class_of(entry))).axis_bound
    config = entry.get("config")
    if bound is None or not isinstance(config, dict):
        return False
    axis = config.get("axis")
    axes = [item for item in (axis if isinstance(axis, list) else [axis]) if type(item) is int]
    ranks = [len(shape) + bound for shape in _first_shapes(entry)]
    return any(not -rank <= item < rank for item in axes for rank in ranks)


def mismatches_channels(entry: Mapping[str, Json]) -> bool:
    """Return whether the channels of an input differ from those of its kernel."""
    axis = operation_facts(str(keras_objects.class_of(entry))).kernel_channels
    if axis is None:
        return False
    channels = 1 if keras_objects.arguments_of(entry).get("data_format") == "channels_first" else -1
    for node in keras_objects.stored_calls(entry):
        args = node.get("args") if isinstance(node, dict) else None
        shapes = [_shape(value) for value in (args[:2] if isinstance(args, list) else ())]
        if all(len(shape) >= _CONVOLVED_RANK for shape in shapes) and len(shapes) > 1:
            sizes = {shapes[0][channels], shapes[1][axis]} - {None}
            if len(sizes) > 1:
                return True
    return False


def _shape(value: Json) -> Sequence[Json]:
    """Return the shape of a tensor or array; empty for another value."""
    shape = keras_objects.arguments_of(value).get("shape")
    if isinstance(shape, list):
        return shape
    sizes: list[Json] = []
    items = keras_objects.arguments_of(value).get("value")
    while isinstance(items, list) and items:
        sizes.append(len(items))
        items = items[0]
    return sizes


def _first_shapes(entry: Mapping[str, Json]) -> Iterator[Sequence[Json]]:
    """Yield the shape of the first tensor of each call; nothing for calls on values."""
    for node in keras_objects.stored_calls(entry):
        value = node.get("args") if isinstance(node, dict) else None
        while isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict) and _kind(value) == _TENSOR:
            shape = keras_objects.arguments_of(value).get("shape")
            if isinstance(shape, list):
                yield shape


def objections(loader: str, use: OperationUse) -> Iterator[OperationObjection]:
    """
    Yield the reasons why a release of Keras 3 fails to load an operation; nothing if it loads it.
    Some release must have the operation's class.
    """
    operation = signature(loader, use.module, use.class_name)
    if operation is None:
        yield OperationObjection(f"the operation {use.class_name} does not exist")
        return
    keys, call_arguments = dict(use.config), dict(use.kwargs)
    refused = {
        *(
            ()
            if operation.takes_more
            else keys.keys() - operation.config.keys() - set(operation.required)
        ),
        *_argument_names(use, operation.built.surplus(len(use.args), frozenset(call_arguments))),
    }
    call_arguments |= zip(operation.built.positional, use.args, strict=False)
    missing_names = {
        *(name for name in operation.required if name not in keys),
        *(
            name
            for name in operation.built.positional
            if name not in call_arguments and name not in operation.built.optional
        ),
    }
    for names, words in (
        (refused - missing_names, "{} has no {}"),
        (missing_names - refused, "{} requires the {}"),
        (missing_names & refused & set(operation.required), "{} expects the {} in its config"),
        (missing_names & refused - set(operation.required), "{} expects the {} in its call"),
    ):
        if names:
            yield _objection(use, words, names)
    unread: Mapping[str, Mapping[str, Sequence[str]]] = data.read("operations")["unread"].get(
        f"{use.module}.{use.class_name}", {}
    )
    for name, kinds in unread.items():
        written = {*keys.get(name, ()), *call_arguments.get(name, ()), *(() if name else ("",))}
        for kind, loaders in kinds.items():
            if loader not in loaders or kind not in written:
                continue
            if name:
                yield _objection(use, f"{{}} does not support a {kind} as the {{}}", {name})
            else:
                yield OperationObjection(f"the operation {use.class_name} cannot be rebuilt")


def call_objections(loader: str, use: OperationUse) -> Iterator[OperationObjection]:
    """
    Yield the reasons why a model fails when it is called although a release loads its operation.
    Keras 3.15 infers the output of ``Array`` with a ``dtype``, which its call does not accept.
    """
    operation = signature(loader, use.module, use.class_name)
    if operation is None or operation.run == operation.built:
        return
    count, names = len(use.args), frozenset(name for name, _ in use.kwargs)
    surplus = operation.run.surplus(count, names) - operation.built.surplus(count, names)
    if surplus:
        words = "{} has no {} when the model is called, although it loads"
        yield _objection(use, words, _argument_names(use, surplus))


def _argument_names(use: OperationUse, arguments: Iterable[str]) -> set[str]:
    """Return the names of arguments; for arguments by position, the name that some release has."""
    names = max((entry["call"] for entry in _entries(use.module, use.class_name)), key=len)
    name_by_place = {f"#{number}": name for number, name in enumerate(names, 1)}
    return {name_by_place.get(argument, argument) for argument in arguments}


def _objection(use: OperationUse, words: str, names: set[str]) -> OperationObjection:
    listed = tuple(sorted(names))
    arguments = f"argument{'s' * (len(listed) > 1)} {', '.join(f'`{name}`' for name in listed)}"
    return OperationObjection(words.format(f"the operation {use.class_name}", arguments), listed)


def _kinds_by_name(values: Json) -> frozenset[tuple[str, Kinds]]:
    if not isinstance(values, dict):
        return frozenset()
    return frozenset((name, value_kinds(value)) for name, value in values.items())


def _kind(value: Json) -> str:
    if isinstance(value, dict):
        class_name = keras_objects.class_of(value)
        return class_name if class_name is not None and class_name in _KINDS else "object"
    if value is None:
        return "null"
    if isinstance(value, list):
        return _LIST
    return "string" if isinstance(value, str) else "number"


_LIST: Final = "list"
_FUNCTION: Final = "function"
_TENSOR: Final = "__keras_tensor__"
_CONSTANT: Final = "__tensor__"
_KINDS: Final = {
    name: frozenset({name})
    for name in (
        _LIST,
        "null",
        "number",
        "object",
        "string",
        _FUNCTION,
        "__ellipsis__",
        _TENSOR,
        keras_objects.CODE,
        "__numpy__",
        "__slice__",
        "__tensor__",
    )
}
"""The JSON forms of arguments in Keras 3, and of items of lists; objects by their class."""


def _entries(module: str | None, class_name: str) -> Sequence[Mapping[str, Any]]:
    entries: Sequence[Mapping[str, Any]] = data.read("operations")["operations"].get(
        f"{module}.{class_name}", ()
    )
    return entries


def is_known(module: str | None, class_name: str) -> bool:
    """Return whether any release has a class."""
    return f"{module}.{class_name}" in data.read("operations")["operations"]


def module_of(class_name: str) -> str | None:
    """
    Return the module that has the operation of this name; None if no module or several have it.
    """
    modules = [
        name.partition(".")[0]
        for name in data.read("operations")["operations"]
        if name.partition(".")[2] == class_name
    ]
    return modules[0] if len(modules) == 1 else None


def resolves(loader: str, function: str) -> bool:
    """Return whether the op layers of a release of Keras 2 find a function by its name."""
    return any(
        loader in loaders.split() and function in found
        for loaders, found in data.read("operations")["functions"].items()
    )


Scalar: TypeAlias = "bool | int | float | str | None"


class Unset(Enum):
    """The absence of a value, because None is a value."""

    REQUIRED = "required"


REQUIRED: Final = Unset.REQUIRED
"""The default of a parameter without a default."""


class Place(StrEnum):
    """The place of an argument in Keras 3."""

    CALL = "call"
    CONFIG = "config"


class ParameterKind(StrEnum):
    """The kind of an argument."""

    TENSOR = "tensor"
    """A tensor, an array or a number, which is promoted with the others."""

    TENSORS = "tensors"
    """A list of tensors, arrays or numbers."""

    FREE = "free"
    """A tensor, an array or a number with its own dtype, such as a condition or an index."""

    PLAIN = "plain"
    """Numbers, strings and lists of them."""

    DTYPE = "dtype"
    SHAPE = "shape"
    """A list of numbers, of which one may be a tensor: it is what is left over."""

    AXES = "axes"
    """
    One axis or several: TensorFlow's ``reverse`` wants a list, Keras 3.0 and 3.3 one number where
    there is one.
    """

    LIST = "list"
    """One axis or several, of which Keras 3.0 and 3.3 want a list."""

    SPLITS = "splits"
    """A number of parts; or TensorFlow's sizes, which are Keras 3's places of the cuts."""

    MODE = "mode"
    """A word that TensorFlow has in capitals."""


class Pair(Struct, frozen=True, kw_only=True):
    """An argument in both libraries."""

    tf: str
    keras3: str
    kind: ParameterKind = ParameterKind.PLAIN
    place: Place = Place.CALL
    default: Scalar | Unset = REQUIRED
    """The value that TensorFlow uses for a missing argument or None."""

    default3: Scalar | Unset = REQUIRED
    """The value that Keras 3 uses for a missing argument or None."""


class OperationRow(Struct, frozen=True, kw_only=True):
    """A function of TensorFlow, and the equal operation of Keras 3."""

    functions: tuple[str, ...]
    """
    The names in TensorFlow's op layers; policytool writes the first. The first pair is the
    function's first parameter.
    """

    module: str
    """The module in Keras 3: ``numpy``, ``nn``, ``math``, ``core``, ``image`` or ``linalg``."""

    op: str
    pairs: tuple[Pair, ...]
    """In the order of the operation's call; the arguments of its constructor behind them."""

    ignored: Mapping[str, tuple[Scalar, ...]]
    """Further parameters of the function, with the values that change nothing."""

    floats: bool
    """Whether both compute the same only for floating-point tensors."""

    result: str | None
    """
    The dtype of the function's result; None for that of its tensors, ``@dtype`` for what an
    argument says, and where its default is None and it says nothing, that of its tensors.
    """

    result3: str | None
    """The dtype of the operation's result if it differs."""

    others: str | None
    """The dtype of all results except the first, if it differs."""

    @property
    def call_arguments(self) -> tuple[Pair, ...]:
        """The arguments of the operation's call, in its order."""
        return tuple(pair for pair in self.pairs if pair.place is Place.CALL)


@cache
def operation_rows() -> tuple[OperationRow, ...]:
    """Return all rows."""
    return tuple(map(_row, data.read("function_operations")["rows"]))


@cache
def rows_by_function() -> Mapping[str, OperationRow]:
    """Return the first row of each function."""
    return MappingProxyType(
        {name: row for row in reversed(operation_rows()) for name in row.functions}
    )


@cache
def rows_by_operation() -> Mapping[tuple[str, str], OperationRow]:
    """Return the first row of each operation, by its module and its class."""
    return MappingProxyType({(row.module, row.op): row for row in reversed(operation_rows())})


def operation_results() -> Mapping[str, str | None]:
    """
    Return the result dtypes of the operations that are not in the operation table. ``first`` means
    the dtype of the first argument, and None that it depends on more than that. Operations whose
    results have the float dtype of their tensors are left out.
    """
    results: Mapping[str, str | None] = data.read("function_operations")["operation_results"]
    return results


def function_result(function: str, arguments: Mapping[str, object]) -> tuple[str | None, bool]:
    """
    Return the result dtype of a function that is not in the operation table, if it is always the
    same, and whether the result has the dtype of the first argument.
    """
    result = data.read("function_operations")["function_results"].get(function)
    if isinstance(result, dict):
        takes_first = any(arguments.get(key) in values for key, values in result["first"].items())
        return (None if takes_first else result["dtype"]), takes_first
    return (None, True) if result == "first" else (result, False)


def _row(entry: Mapping[str, Any]) -> OperationRow:
    module, _, op = entry["operation"].partition(".")
    return OperationRow(
        functions=tuple(entry["functions"]),
        module=module,
        op=op,
        pairs=tuple(map(_pair, entry["arguments"])),
        ignored=MappingProxyType(
            {name: tuple(values) for name, values in entry.get("ignored", {}).items()}
        ),
        floats=entry.get("floats", False),
        result=entry.get("result"),
        result3=entry.get("operation_result"),
        others=entry.get("further_results"),
    )


def _pair(entry: Mapping[str, Any]) -> Pair:
    return Pair(
        tf=entry["function"],
        keras3=entry.get("operation", entry["function"]),
        kind=ParameterKind(entry.get("kind", "plain")),
        place=Place.CONFIG if entry.get("constructor") else Place.CALL,
        default=entry.get("default", REQUIRED),
        default3=entry.get("operation_default", REQUIRED),
    )
