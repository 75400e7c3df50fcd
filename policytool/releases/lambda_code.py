"""
The Python code of a Lambda layer, read as text: nothing is executed.

A config contains the byte code of the function, as ``marshal`` writes it. This module reads the
functions that compute one expression without branches or loops, of Python 3.6 to 3.13.
``data/python_opcodes.json`` has the instructions of each Python release, and
``fixtures/python_opcodes.py`` wrote it.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policytool.releases import data, keras_objects

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_LONGEST_CODE: Final = 16 << 10
"""The most bytes of code to read. That of ``lambda x: (x - 127.5) / 127.5`` has about 110 bytes."""

_LONGEST_TEXT: Final = 200
_DEEPEST: Final = 20
"""The most nested constants."""

_FLAG: Final = 0x80
"""The bit of a type that says that later references may name the value (Python/marshal.c)."""

_ARGUMENT_LISTS: Final = 0x0C
"""The flags of functions with ``*args`` and ``**kwargs`` (CO_VARARGS and CO_VARKEYWORDS)."""

_FREE: Final = 0x80
"""The kind of a variable of an enclosing function (CO_FAST_FREE, Python 3.11 and later)."""


_CASTS: Final = frozenset({"tf.cast", "tensorflow.cast", "K.cast", "backend.cast", "ops.cast"})
_FLOAT32: Final = frozenset(
    f"{argument}{dtype}" for argument in ("", "dtype=") for dtype in ("tf.float32", "'float32'")
)


class Expression(NamedTuple):
    """What a function computes from its first argument."""

    text: str
    scale: float | None = None
    """With :attr:`offset`: the value is ``scale * x + offset``; None if it is another function."""

    offset: float = 0.0
    is_cast: bool = False
    """Whether the function casts its argument to float32."""

    is_compound: bool = False
    """Whether the text needs parentheses inside another expression."""

    is_tuple: bool = False
    parameter: str = ""
    """The first parameter of the function, for an expression that a function returns."""

    @property
    def operand(self) -> str:
        """The text as a part of another expression."""
        return f"({self.text})" if self.is_compound else self.text


class _UnreadableError(Exception):
    """The code has something that this module does not read."""


class _Code(NamedTuple):
    """The parts of a code object that this module needs."""

    instructions: bytes
    constants: Sequence[object]
    names: Sequence[object]
    variables: Sequence[object]
    """Arguments, other local variables and, in Python 3.11 and later, those of functions around."""

    free: bytes | Sequence[object]
    """The kinds of the variables in Python 3.11 and later; the free variables in Python 3.10."""

    positional: int
    """The number of positional arguments, which are the first variables."""


class _Marshal:
    """A reader of the format of ``marshal`` (Python/marshal.c), for code without nested code."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0
        self._references: list[object] = []

    def code(self) -> _Code:
        """Return the code object that the content starts with."""
        if not self._content or self._content[0] & ~_FLAG != ord("c"):
            raise _UnreadableError
        if self._content[0] & _FLAG:
            self._references.append(None)
        # Python 3.8 to 3.10 write 6 numbers before the instructions, other releases 5
        count = 5 if self._content[21:22] in {b"s", b"\xf3"} else 6
        self._position = 1
        numbers = [self._number() for _ in range(count)]
        instructions, constants, names, variables, free = (self._object(0) for _ in range(5))
        if (
            not isinstance(instructions, bytes)
            or not isinstance(constants, tuple)
            or not isinstance(names, tuple)
            or not isinstance(variables, tuple)
            or not isinstance(free, bytes | tuple)
            or numbers[-1] & _ARGUMENT_LISTS
            or numbers[0] < 1
        ):
            raise _UnreadableError
        return _Code(instructions, constants, names, variables, free, numbers[0])

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._content):
            raise _UnreadableError
        part, self._position = self._content[self._position : end], end
        return part

    def _number(self) -> int:
        return int.from_bytes(self._take(4), "little", signed=True)

    def _object(self, depth: int) -> object:
        """Return the next object. A value that others refer to is counted before its parts."""
        if depth > _DEEPEST:
            raise _UnreadableError
        kind = self._take(1)[0]
        place = len(self._references) if kind & _FLAG else None
        if place is not None:
            self._references.append(None)
        value = self._value(chr(kind & ~_FLAG), depth)
        if place is not None:
            self._references[place] = value
        return value

    def _value(self, kind: str, depth: int) -> object:
        match kind:
            case "N" | "T" | "F" | ".":
                return {"N": None, "T": True, "F": False, ".": ...}[kind]
            case "i":
                return self._number()
            case "g":
                return struct.unpack("<d", self._take(8))[0]
            case "s" | "u" | "a" | "A":
                content = self._take(self._number())
            case "z" | "Z":
                content = self._take(self._take(1)[0])
            case "(" | ")":
                size = self._take(1)[0] if kind == ")" else self._number()
                if not 0 <= size <= len(self._content):
                    raise _UnreadableError
                return tuple(self._object(depth + 1) for _ in range(size))
            case "r":
                number = self._number()
                if not 0 <= number < len(self._references):
                    raise _UnreadableError
                return self._references[number]
            case _:
                raise _UnreadableError
        return content if kind == "s" else content.decode("utf-8", "surrogatepass")


def expression(config: Mapping[str, Any]) -> Expression | None:
    """
    Return what the function of a Lambda computes, from the layer's config; None if the config has
    no byte code, or code that this module does not read.
    """
    function = config.get("function")
    if isinstance(function, dict) and keras_objects.class_of(function) == keras_objects.CODE:
        inner = function.get("config")
        inner = inner if isinstance(inner, dict) else {}
        code, defaults, closure = inner.get("code"), inner.get("defaults"), inner.get("closure")
    elif isinstance(function := _untagged(function), list) and len(function) == 3:  # noqa: PLR2004  # func_dump of Keras 2
        code, defaults, closure = function
    else:
        return None
    arguments = config.get("arguments")
    if not isinstance(code, str) or len(code) > 2 * _LONGEST_CODE:
        return None
    try:
        parsed = _Marshal(_byte_code(code)).code()
        values = _defaults(parsed, defaults)
        values |= arguments if isinstance(arguments, dict) else {}
        found = set(_readings(parsed, closure if isinstance(closure, list) else [], values))
    except (_UnreadableError, UnicodeError):
        return None
    return found.pop() if len(found) == 1 else None


def source(config: Mapping[str, Any]) -> str | None:
    """Return the function of a Lambda as Python code; None if :func:`expression` cannot read it."""
    found = expression(config)
    if found is None:
        return None
    arguments = config.get("arguments")
    parameters = [found.parameter, *(arguments if isinstance(arguments, dict) else ())]
    if not all(map(str.isidentifier, parameters)):
        return None
    return f"lambda {', '.join(parameters)}: {found.text}"


def _defaults(code: _Code, values: object) -> dict[Any, object]:
    """Return the default values of the last positional arguments, by name."""
    values = _untagged(values)
    names = code.variables[: code.positional]
    listed = values if isinstance(values, list) else []
    return dict(zip(reversed(names), reversed(listed), strict=False))


def _byte_code(text: str) -> bytes:
    """Return the byte code in a text: base64, or characters in Keras 2.0 and earlier."""
    try:
        return base64.b64decode(text.encode("ascii"))
    except (UnicodeEncodeError, binascii.Error):
        return text.encode("raw_unicode_escape")


def _untagged(value: object) -> object:
    """Return the items of a tuple as SavedModels store it; other values unchanged."""
    return value.get("items") if isinstance(value, dict) else value


def _readings(
    code: _Code, closure: Sequence[object], arguments: Mapping[Any, object]
) -> Iterator[Expression]:
    """
    Yield what the function computes, for each Python release whose instructions it consists of:
    the code does not name its release.
    """
    is_python_3_11 = isinstance(code.free, bytes)
    for instructions in data.read("python_opcodes").values():
        # RESUME exists in Python 3.11 and later
        if is_python_3_11 == ("RESUME" in instructions["instructions"].values()):
            try:
                yield _Machine(code, closure, arguments, instructions).result()
            except (_UnreadableError, LookupError, OverflowError):
                continue


class _Machine:
    """Follows the instructions of a function with expressions instead of values."""

    def __init__(
        self,
        code: _Code,
        closure: Sequence[object],
        arguments: Mapping[Any, object],
        table: Mapping[str, Any],
    ) -> None:
        self._code = code
        self._symbols = table["symbols"]
        self._table = table
        self._stack: list[Expression] = []
        self._constant: object = None
        self._keywords: object = ()
        self._has_null_bit = "PUSH_NULL" in table["instructions"].values()
        self._has_method_bit = (
            self._has_null_bit and "LOAD_METHOD" not in table["instructions"].values()
        )
        self._variables = {
            place: _constant(arguments[name])
            for place, name in enumerate(code.variables)
            if name in arguments
        }
        self._variables[0] = Expression(_name(code.variables[0]), 1.0)
        if isinstance(code.free, bytes):
            free = [place for place, kind in enumerate(code.free) if kind & _FREE]
        else:
            free = list(range(len(code.free)))
        self._enclosed = {
            place: _constant(value) for place, value in zip(free, closure, strict=False)
        }

    def result(self) -> Expression:
        """Return what the function returns."""
        code, caches = self._code.instructions, 0
        for place in range(0, len(code) - 1, 2):
            number, argument = code[place : place + 2]
            if caches:  # their values say nothing
                caches -= 1
                if number:
                    raise _UnreadableError
                continue
            name = self._table["instructions"].get(str(number))
            caches = self._table["caches"].get(name, 0)
            if name == "RETURN_VALUE":
                if place != len(code) - 2 or len(self._stack) != 1:
                    break
                return self._stack[0]._replace(parameter=_name(self._code.variables[0]))
            self._follow(name, argument)
            if self._stack and len(self._stack[-1].text) > _LONGEST_TEXT:
                break
        raise _UnreadableError

    def _follow(self, name: str | None, argument: int) -> None:
        """Apply an instruction to the stack."""
        stack = self._stack
        match name:
            case "RESUME" | "COPY_FREE_VARS" | "PUSH_NULL" | "PRECALL":
                pass  # they change nothing that the text shows
            case "LOAD_FAST" | "LOAD_DEREF" | "LOAD_CONST" | "LOAD_GLOBAL":
                stack.append(self._loaded(name, argument))
            case "LOAD_FAST_LOAD_FAST":  # two variables, with 4 bits each (Python 3.13)
                stack += [self._variables[argument >> 4], self._variables[argument & 15]]
            case "STORE_FAST":
                self._variables[argument] = stack.pop()
            case "LOAD_ATTR" | "LOAD_METHOD":
                attribute = _name(self._code.names[argument >> self._has_method_bit])
                stack.append(Expression(f"{stack.pop().operand}.{attribute}"))
            case "KW_NAMES":
                self._keywords = self._code.constants[argument]
            case "CALL" | "CALL_FUNCTION" | "CALL_METHOD" | "CALL_KW" | "CALL_FUNCTION_KW":
                if name.endswith("KW"):
                    stack.pop()
                    self._keywords = self._constant
                arguments = self._pop(argument)
                stack.append(_call(stack.pop(), arguments, self._keywords))
                self._keywords = ()
            case "UNARY_NEGATIVE":
                stack.append(_binary("-", Expression("", 0.0), stack.pop()))
            case _:
                stack.append(self._joined(name, argument))

    def _loaded(self, name: str, argument: int) -> Expression:
        """Return the variable or constant that an instruction loads."""
        if name == "LOAD_FAST":
            return self._variables[argument]
        if name == "LOAD_DEREF":
            return self._enclosed[argument]
        if name == "LOAD_GLOBAL":
            return Expression(_name(self._code.names[argument >> self._has_null_bit]))
        self._constant = self._code.constants[argument]
        return _constant(self._constant)

    def _joined(self, name: str | None, argument: int) -> Expression:
        """Return the value that an instruction makes of several values."""
        match name:
            case "BINARY_SUBSCR":
                value, index = self._pop(2)
                return _item(value, index)
            case "BINARY_SLICE":
                value, *bounds = self._pop(3)
                return _item(value, _slice(bounds))
            case "BUILD_SLICE":
                return _slice(self._pop(argument))
            case "BUILD_TUPLE" | "BUILD_LIST":
                return _sequence(self._pop(argument), is_tuple=name == "BUILD_TUPLE")
        symbol = self._symbols[str(argument) if name == "BINARY_OP" else name]
        return _binary(symbol.rstrip("="), *self._pop(2))

    def _pop(self, count: int) -> list[Expression]:
        """Remove the last values, and return them."""
        if count > len(self._stack):
            raise _UnreadableError
        first = len(self._stack) - count
        values, self._stack[first:] = self._stack[first:], []
        return values


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.isidentifier():
        raise _UnreadableError
    return value


def _constant(value: object) -> Expression:
    """Return a constant of the code, or a value of the config."""
    is_tagged = isinstance(value, dict)
    value = _untagged(value)
    if isinstance(value, tuple | list):
        is_tuple = is_tagged or isinstance(value, tuple)
        return _sequence([_constant(item) for item in value], is_tuple=is_tuple)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Expression(repr(value), 0.0, float(value), is_compound=value < 0)
    if isinstance(value, str | bool) or value is None or value is ...:
        return Expression("..." if value is ... else ascii(value))
    raise _UnreadableError


def _sequence(items: Sequence[Expression], *, is_tuple: bool) -> Expression:
    text = ", ".join(item.text for item in items)
    if not is_tuple:
        return Expression(f"[{text}]")
    return Expression(f"({text}{',' * (len(items) == 1)})", is_tuple=True)


def _slice(bounds: Sequence[Expression]) -> Expression:
    return Expression(":".join("" if bound.text == "None" else bound.text for bound in bounds))


def _item(value: Expression, index: Expression) -> Expression:
    inner = index.text[1:-1] if index.is_tuple else index.text
    return Expression(f"{value.operand}[{inner}]")


def _call(function: Expression, values: Sequence[Expression], keywords: object) -> Expression:
    """Return a call. A cast to float32 keeps the value."""
    if not isinstance(keywords, tuple) or len(keywords) > len(values):
        raise _UnreadableError
    names = [*[""] * (len(values) - len(keywords)), *(f"{_name(key)}=" for key in keywords)]
    texts = [f"{name}{value.text}" for name, value in zip(names, values, strict=True)]
    text = f"{function.operand}({', '.join(texts)})"
    if function.text in _CASTS and len(values) == 2 and texts[1] in _FLOAT32:  # noqa: PLR2004
        return values[0]._replace(text=text, is_cast=True, is_compound=False)
    return Expression(text)


def _binary(symbol: str, left: Expression, right: Expression) -> Expression:
    """Return an operation of two values, as a function of the argument if it is linear."""
    text = f"{left.operand} {symbol} {right.operand}" if left.text else f"{symbol}{right.operand}"
    scale, offset = _linear(symbol, left, right)
    is_linear = scale is not None and math.isfinite(scale) and math.isfinite(offset)
    return Expression(
        text,
        scale if is_linear else None,
        offset if is_linear else 0.0,
        is_cast=left.is_cast or right.is_cast,
        is_compound=True,
    )


def _linear(symbol: str, left: Expression, right: Expression) -> tuple[float | None, float]:
    """Return the scale and the offset of an operation of two values; None if it is not linear."""
    if left.scale is None or right.scale is None:
        return None, 0.0
    match symbol:
        case "+":
            return left.scale + right.scale, left.offset + right.offset
        case "-":
            return left.scale - right.scale, left.offset - right.offset
        case "*" if 0 in (left.scale, right.scale):
            factor = right.offset if right.scale == 0 else left.offset
            other = left if right.scale == 0 else right
            return (other.scale or 0.0) * factor, other.offset * factor
        case "/" if right.scale == 0 and right.offset:
            return left.scale / right.offset, left.offset / right.offset
    return None, 0.0
