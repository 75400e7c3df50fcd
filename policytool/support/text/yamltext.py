"""
Parses untrusted YAML, as ``model.to_yaml()`` wrote it, and writes changed values in its form.

The parser works without recursion, with limits on the size, depth and aliases, and without
constructing Python objects. PyYAML's parser yields events, from which this module builds nodes. It
accepts the Python tags that stand for plain data: ``python/tuple``, and the wrappers of
:data:`_WRAPPERS`, which TF 1.15 to 2.2 wrote. It rejects all other tags of Python.

:func:`write` uses PyYAML's emitter. It keeps tags, anchors, quotes, the order of keys and the
format of numbers. Comments are lost. PyYAML decides where lines break, as it did in
``model.to_yaml()``.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from policytool.support import limits
from policytool.support.errors import CodedError
from policytool.support.steps import spend
from policytool.support.text.jsonedit import same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.support.text.jsontext import Json

Kind = Literal["scalar", "sequence", "mapping", "alias"]

_CORE: Final = "tag:yaml.org,2002:"
_PYTHON: Final = f"{_CORE}python/"
_SCALARS: Final = frozenset({"null", "bool", "int", "float", "str"})
_SEQUENCES: Final = frozenset({f"{_CORE}seq", f"{_PYTHON}tuple"})
_MAPPING: Final = f"{_CORE}map"
_TRACKING: Final = "tensorflow.python.training.tracking.data_structures"
_SHAPE: Final = "tensorflow.python.framework.tensor_shape"
_WRAPPERS: Final[dict[str, frozenset[Kind]]] = {
    f"{_PYTHON}object/apply:builtins.dict": frozenset({"mapping"}),
    f"{_PYTHON}object/apply:{_TRACKING}.ListWrapper": frozenset({"sequence"}),
    f"{_PYTHON}object/apply:{_SHAPE}.TensorShape": frozenset({"sequence"}),
    f"{_PYTHON}object/apply:{_SHAPE}.Dimension": frozenset({"scalar"}),
}
"""
Classes whose calls TF 1.15 to 2.2 wrote, each with the kind of its only argument, which is the
whole value.
"""

_LONGEST_NUMBER: Final = 4300
"""
Maximum length of a number in characters: that of integers in Python.

YAML 1.1 also has base-60 numbers (``1:30:00``), for which PyYAML has no limit and needs quadratic
time.
"""

_LIBYAML_TOO_DEEP: Final = "exceeded maximum nesting depth"
"""
The problem that libyaml 0.2.6 (PyYAML 6.0.4) reports for more than 1,000 nested brackets. It reads
about 1,000 characters ahead of the events, and so reports it before :data:`limits.JSON_DEPTH` is
reached.
"""


class YamlError(CodedError, ValueError):
    """
    Text that is not YAML, exceeds the limits, or contains YAML that no config has; ``code``
    distinguishes them.
    """


@dataclass(slots=True, eq=False)
class YamlNode:
    """One node of the text, and the form in which it is written."""

    kind: Kind
    tag: str | None = None
    """The full tag; None if the text has no tag."""

    anchor: str | None = None
    flow: bool = True
    """Whether a collection is in brackets."""

    style: str | None = None
    """The quote of a scalar, ``|`` or ``>``; None for a plain scalar."""

    text: str = ""
    """The text of a scalar, without its quotes."""

    scalar: str | int | float | bool | None = None
    items: list[YamlNode] = field(default_factory=list)
    """The items of a sequence, or the only argument of a wrapper."""

    members: list[tuple[str, YamlNode, YamlNode]] = field(default_factory=list)
    """The keys of a mapping, each with the node of the key and the node of the value."""

    target: YamlNode | None = None
    """The node that an alias refers to."""

    size: int = 1
    """The number of nodes below and including this node, with all aliases expanded."""

    depth: int = 1

    @property
    def is_wrapper(self) -> bool:
        """Whether the node is a call of a class whose value is its only argument."""
        return self.tag in _WRAPPERS

    @property
    def content(self) -> YamlNode:
        """The node with the value: aliases are followed, and wrappers are removed."""
        node = self
        while node.is_wrapper or node.target is not None:
            node = node.target or node.items[0]
        return node


class Parsed(Struct, frozen=True, kw_only=True):
    """The content of a YAML text."""

    value: Json
    repeated: tuple[str, ...]
    """Keys that occur twice in a mapping; the last one counts, as in PyYAML and so in Keras."""

    wrappers: tuple[str, ...]
    """Python classes whose calls the text contains; ``value`` has their arguments instead."""


def parse(text: str) -> Parsed:
    """
    Return the content of a YAML text.

    :raises YamlError: with code ``yaml-limit``, ``yaml-tag`` or ``invalid-yaml``.
    :raises ModelFileError: if the steps of the current file exceed their limit.
    """
    root = compose(text)
    spend(root.size, walk="YAML values")
    wrappers = (node.tag.rpartition(":")[2] for node in _nodes(root) if node.tag in _WRAPPERS)
    return Parsed(
        value=node_value(root),
        repeated=tuple(dict.fromkeys(_repeated_keys(root))),
        wrappers=tuple(dict.fromkeys(wrappers)),
    )


def compose(text: str) -> YamlNode:
    """
    Return the root node of a text that contains one document.

    :raises YamlError: as :func:`parse`.
    """
    if limit_message := limits.YAML_BYTES.exceeded_message(len(text)):
        raise YamlError("yaml-limit", f"is YAML of {limit_message}")
    import yaml  # the import takes 20 ms, and only YAML files need it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        reader = loader(text)
        try:
            return _Composer(reader).document()
        finally:
            reader.dispose()
    except yaml.MarkedYAMLError as error:
        if error.problem == _LIBYAML_TOO_DEEP:
            raise _too_deep() from error
        mark = error.problem_mark or error.context_mark
        position_words = (
            f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        )
        raise _invalid(f"{error.problem or error.context}{position_words}") from error
    except yaml.YAMLError as error:
        raise _invalid(" ".join(str(error).split())[:200]) from error


def node_value(node: YamlNode) -> Json:
    """
    Return the JSON value of a node, with aliases expanded. Each alias becomes a separate object.
    """
    node = node.content
    if node.kind == "mapping":
        return {key: node_value(below) for key, _, below in node.members}
    if node.kind == "sequence":
        return [node_value(item) for item in node.items]
    return node.scalar


def _nodes(root: YamlNode) -> Iterator[YamlNode]:
    """Yield a node and all nodes below it. Aliases are yielded, but not followed."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += node.items
        pending += [part for _, key, below in node.members for part in (key, below)]


def _repeated_keys(root: YamlNode) -> Iterator[str]:
    for node in _nodes(root):
        keys: set[str] = set()
        for key, _, _ in node.members:
            if key in keys:
                yield key
            keys.add(key)


class _Composer:
    """
    Builds the nodes of a document from its events. It uses a stack instead of recursion, because
    the file determines the depth.
    """

    def __init__(
        self,
        reader: Any,  # noqa: ANN401  # one of PyYAML's two loaders, which have no common base class
    ) -> None:
        self._reader = reader
        self._anchors: dict[str, YamlNode] = {}
        self._open: list[tuple[YamlNode, list[YamlNode]]] = []
        """Collections whose end was not reached yet, each with the nodes read so far."""

        self._deepest, self._most = limits.JSON_DEPTH.value, limits.YAML_VALUES.value

    def document(self) -> YamlNode:
        """Return the root of the only document."""
        root: YamlNode | None = None
        while True:
            event = self._reader.get_event()
            name = type(event).__name__
            if name == "StreamEndEvent":
                if root is None:
                    raise _invalid("it is empty")
                return root
            if name == "DocumentStartEvent" and root is not None:
                raise YamlError(
                    "invalid-yaml",
                    "contains several YAML documents, the second at line "
                    f"{event.start_mark.line + 1}; expected a single document",
                )
            if name in {"ScalarEvent", "AliasEvent"}:
                finished: YamlNode | None = (
                    self._scalar(event) if name == "ScalarEvent" else self._alias(event)
                )
            elif name in {"SequenceStartEvent", "MappingStartEvent"}:
                self._begin(event, "sequence" if name.startswith("Seq") else "mapping")
                finished = None
            elif name in {"SequenceEndEvent", "MappingEndEvent"}:
                finished = self._close_node(event)
            else:
                finished = None
            if finished is not None and self._open:
                self._open[-1][1].append(finished)
            elif finished is not None:
                root = finished

    def _begin(self, event: Any, kind: Kind) -> None:  # noqa: ANN401  # an event of PyYAML
        """Begin a collection, to which the next nodes belong."""
        if len(self._open) >= self._deepest:
            raise _too_deep()
        node = YamlNode(kind=kind, tag=event.tag, anchor=event.anchor, flow=bool(event.flow_style))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._open.append((node, []))
        _check_tag(node, event.start_mark.line)

    def _close_node(self, event: Any) -> YamlNode:  # noqa: ANN401  # an event of PyYAML
        """Return the collection that ends, with its size and depth measured."""
        node, below = self._open.pop()
        line = event.start_mark.line
        if node.kind == "mapping":
            node.members = [
                (_key(key, line), key, item)
                for key, item in zip(below[::2], below[1::2], strict=True)
            ]
        else:
            node.items = below
            if node.tag in _WRAPPERS and [item.content.kind for item in below] not in [
                [kind] for kind in _WRAPPERS[node.tag]
            ]:
                raise YamlError(
                    "yaml-tag",
                    f"has the tag {_display(node.tag)} with the wrong number of arguments, before "
                    f"line {line + 1}, which to_yaml() never writes",
                )
        self._measure(node, below)
        return node

    def _scalar(self, event: Any) -> YamlNode:  # noqa: ANN401  # an event of PyYAML
        """Return the node of a scalar."""
        from yaml.nodes import ScalarNode

        node = YamlNode(
            kind="scalar",
            tag=event.tag,
            anchor=event.anchor,
            style=event.style or None,
            text=event.value,
        )
        tag = (
            event.tag
            if event.tag not in {None, "!"}
            else self._reader.resolve(ScalarNode, event.value, event.implicit)
        )
        kind = tag.removeprefix(_CORE)
        if kind not in _SCALARS:
            raise _foreign(tag, event.start_mark.line)
        node.scalar = self._construct(
            kind, ScalarNode(tag, event.value, event.start_mark, event.end_mark), event
        )
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._measure(node, ())
        return node

    def _construct(
        self,
        kind: str,
        scalar: Any,  # noqa: ANN401  # PyYAML's
        event: Any,  # noqa: ANN401  # PyYAML's
    ) -> str | int | float | bool | None:
        """Return the value of a scalar by the rules of PyYAML for YAML 1.1."""
        if kind == "str":
            return str(event.value)
        if kind == "null":
            return None
        if len(event.value) > _LONGEST_NUMBER:
            raise _invalid(
                f"a number with {len(event.value)} characters at line {event.start_mark.line + 1}"
            )
        try:
            python_scalar: int | float | bool = getattr(self._reader, f"construct_yaml_{kind}")(
                scalar
            )
        except (ValueError, KeyError, IndexError, OverflowError) as error:
            raise _invalid(f"no {kind} at line {event.start_mark.line + 1}") from error
        return python_scalar

    def _alias(self, event: Any) -> YamlNode:  # noqa: ANN401  # an event of PyYAML
        """Return the node of an alias, whose target must be complete."""
        target = self._anchors.get(event.anchor)
        line = event.start_mark.line + 1
        if target is None:
            raise _invalid(f"the alias *{event.anchor} at line {line} is undefined")
        if any(node is target for node, _ in self._open):
            raise YamlError(
                "invalid-yaml",
                f"contains a value that refers to itself through the alias *{event.anchor} "
                f"at line {line}",
            )
        node = YamlNode(kind="alias", target=target)
        self._measure(node, (target,))
        return node

    def _measure(self, node: YamlNode, below: Iterable[YamlNode]) -> None:
        """
        Set the size and depth of a node with its aliases expanded.

        :raises YamlError: if the size or the depth exceeds its limit.
        """
        node.size = 1 + sum(item.size for item in below)
        node.depth = 1 + max((item.depth for item in below), default=0)
        if node.size > self._most:
            raise YamlError(
                "yaml-limit",
                "contains (with aliases expanded) "
                f"{limits.YAML_VALUES.exceeded_message(node.size, counting=True)}",
            )
        if node.depth > self._deepest + 1:
            raise _too_deep()


def _invalid(problem: str) -> YamlError:
    return YamlError("invalid-yaml", f"is not valid YAML: {problem}")


def _key(node: YamlNode, line: int) -> str:
    """
    Return a key as a string, as JSON requires: a number, bool or null as ``json.dumps`` writes it.
    """
    content = node.content
    if content.kind != "scalar":
        raise YamlError(
            "invalid-yaml",
            f"has a key before line {line + 1} that is not a string; config keys must be strings",
        )
    return content.scalar if isinstance(content.scalar, str) else json.dumps(content.scalar)


def _check_tag(node: YamlNode, line: int) -> None:
    """Raise YamlError for a tag of a collection that is not plain data."""
    if (
        node.tag is None
        or node.tag == "!"
        or (node.kind == "sequence" and (node.tag in _SEQUENCES or node.tag in _WRAPPERS))
    ):
        return
    if node.kind != "mapping" or node.tag != _MAPPING:
        raise _foreign(node.tag, line)


def _foreign(tag: str, line: int) -> YamlError:
    """Return the error for a tag that is not plain data."""
    if tag == f"{_CORE}merge":
        return YamlError(
            "yaml-tag", f"has a merge key (<<) at line {line + 1}, which to_yaml() never writes"
        )
    return YamlError(
        "yaml-tag",
        f"has the tag {_display(tag)} at line {line + 1}; policytool supports only tags for plain "
        "data",
    )


def _display(tag: str) -> str:
    tag_text = f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag
    return re.sub(r"[^\x21-\x7e]", "?", tag_text)[:100]


def _too_deep() -> YamlError:
    return YamlError(
        "yaml-limit",
        "nests YAML to a depth of "
        f"{limits.JSON_DEPTH.exceeded_message(limits.JSON_DEPTH.value + 1, counting=True)}",
    )


def write(value: Json, root: YamlNode, line_break: str) -> str:
    """
    Return a value as YAML in ASCII, in the form of the nodes that were read from a text.

    An alias is kept if its value still equals that of its target; otherwise, the value is written.
    """
    import yaml  # the import takes 20 ms, and only YAML files need it

    stream = io.StringIO()
    # not libyaml's dumper, which tags numbers such as 1:30 in brackets as strings
    dumper = yaml.SafeDumper(stream, line_break=line_break)
    _Writer(yaml, dumper).write_document(value, root)
    return stream.getvalue()


class _Writer:
    """Emits the events of one document."""

    def __init__(self, yaml: Any, dumper: Any) -> None:  # noqa: ANN401  # PyYAML, which has no types
        self._yaml = yaml
        self._dumper = dumper
        self._anchored: dict[str | None, tuple[YamlNode, Json]] = {}
        """By anchor: the last written node with this anchor, and its value."""

    def write_document(self, value: Json, root: YamlNode) -> None:
        """Write a value as the only document."""
        yaml, emit = self._yaml, self._dumper.emit
        emit(yaml.StreamStartEvent())
        emit(yaml.DocumentStartEvent(explicit=False))
        self._write(value, root)
        emit(yaml.DocumentEndEvent(explicit=False))
        emit(yaml.StreamEndEvent())

    def _write(self, value: Json, node: YamlNode | None) -> None:
        """
        Write a value in the form of ``node`` (its tag, anchor, flow style and quotes), unless the
        node has another kind of value. Write an alias if the value equals the last written value of
        its target.
        """
        yaml, emit = self._yaml, self._dumper.emit
        if node is not None and node.target is not None:
            node = node.target
            last, written = self._anchored.get(node.anchor, (None, None))
            if last is node and same(written, value):
                emit(yaml.AliasEvent(node.anchor))
                return
        if node is not None and not _fits(node, value):
            node = None
        anchor = self._new_anchor(value, node)
        tag, flow = (node.tag, node.flow) if node is not None else (None, False)
        if isinstance(value, list) or (node is not None and node.is_wrapper):
            start, end = yaml.SequenceStartEvent, yaml.SequenceEndEvent
        elif isinstance(value, dict):
            start, end = yaml.MappingStartEvent, yaml.MappingEndEvent
        else:
            emit(self._scalar(value, node, anchor))
            return
        emit(start(anchor, tag, tag is None, flow_style=flow))
        for part, below in _parts(value, node):
            self._write(part, below)
        emit(end())

    def _new_anchor(self, value: Json, node: YamlNode | None) -> str | None:
        """
        Return the anchor to write with a node. Return None for a second copy of the node, so that
        aliases still refer to the first copy.
        """
        if node is None or node.anchor is None:
            return None
        last, _ = self._anchored.get(node.anchor, (None, None))
        if last is node:
            return None
        self._anchored[node.anchor] = node, value
        return node.anchor

    def _scalar(self, value: Json, node: YamlNode | None, anchor: str | None) -> object:
        """
        Return the event of a scalar with the tag and quotes of the node, and with its text if the
        value is unchanged.
        """
        scalar_node = self._dumper.represent_data(value)
        tag, text, style = scalar_node.tag, scalar_node.value, None
        if node is not None:
            style = node.style
            if repr(node.scalar) == repr(value):
                text = node.text
            if node.tag is not None:
                return self._yaml.ScalarEvent(anchor, node.tag, (False, False), text, style=style)
        implicit = tuple(
            self._dumper.resolve(self._yaml.ScalarNode, text, plain) == tag
            for plain in ((True, False), (False, True))
        )
        return self._yaml.ScalarEvent(anchor, tag, implicit, text, style=style)


def _fits(node: YamlNode, value: Json) -> bool:
    """Return whether a value has the same kind as the content of a node."""
    content = node.content
    if isinstance(value, dict | list):
        return content.kind == ("mapping" if isinstance(value, dict) else "sequence")
    return content.kind == "scalar" and type(content.scalar) is type(value)


def _parts(value: Json, node: YamlNode | None) -> Iterator[tuple[Json, YamlNode | None]]:
    """
    Yield the elements of a collection, each with the node whose form it keeps. A mapping yields
    each key followed by its value, and a wrapper yields its argument.
    """
    if node is not None and node.is_wrapper:
        yield value, node.items[0]
    elif isinstance(value, list):
        items = node.items if node is not None else []
        yield from zip(value, chain(items, repeat(None)), strict=False)
    elif isinstance(value, dict):
        members = node.members if node is not None else []
        last = {key: below for key, _, below in members}  # the last of duplicate keys counts
        for key, name, below in members:
            if key in value:
                yield node_value(name), name
                yield value[key] if below is last[key] else node_value(below), below
        for key in value:
            if key not in last:
                yield key, None
                yield value[key], None
