"""
YAML from strangers, as ``model.to_yaml()`` wrote it: composed without recursion, bounded in size,
depth and aliases, and nothing in it constructed.

PyYAML's parser gives events; what they mean is decided here. A tag of Python's is data where it
stands for data (``python/tuple``, and the wrappers of
:data:`_WRAPPERS`, which TF 1.15 to 2.2 left in their files); every other one is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from policytool.support import limits
from policytool.support.errors import CodedError
from policytool.support.steps import spend

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
Classes that TF 1.15 to 2.2 wrote calls of, each with the kind of its one argument, which is all
that they hold.
"""

_LONGEST_NUMBER: Final = 4300
"""
Characters: what Python reads of an integer.

YAML 1.1 counts in sixties too (``1:30:00``), which takes the square of the length without a bound.
"""

_LIBYAML_TOO_DEEP: Final = "exceeded maximum nesting depth"
"""
The problem that libyaml 0.2.6 (PyYAML 6.0.4) reports for more than 1,000 nested brackets. It reads
some 1,000 characters ahead of the events, and so reports it before the limit here is reached.
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
    """In full; None where the text has none."""

    anchor: str | None = None
    flow: bool = True
    """Whether a collection is in brackets."""

    style: str | None = None
    """A scalar's quote, ``|`` or ``>``; None for a plain one."""

    text: str = ""
    """A scalar as it is spelled, without its quotes."""

    scalar: str | int | float | bool | None = None
    items: list[YamlNode] = field(default_factory=list)
    """A sequence's items, or the one argument of a wrapper."""

    members: list[tuple[str, YamlNode, YamlNode]] = field(default_factory=list)
    """A mapping's keys, each with the node of the key and that of the value."""

    target: YamlNode | None = None
    """What an alias stands for."""

    size: int = 1
    """How many nodes it is with all aliases written out."""

    depth: int = 1

    @property
    def is_wrapper(self) -> bool:
        """Whether the node is a call of a class that stands for its one argument."""
        return self.tag in _WRAPPERS

    @property
    def content(self) -> YamlNode:
        """What the node stands for, wrappers taken off and aliases followed."""
        node = self
        while node.is_wrapper or node.target is not None:
            node = node.target or node.items[0]
        return node


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """What a text holds."""

    value: Json
    repeated: tuple[str, ...]
    """Keys that stand twice in one mapping; the last one counts, as in PyYAML and so in Keras."""

    wrappers: tuple[str, ...]
    """
    Classes of Python that the text has calls of, each for the argument that was read in its place.
    """


def parse(text: str) -> Parsed:
    """
    Return what a text holds.

    :raises YamlError: with code ``yaml-limit``, ``yaml-tag`` or ``invalid-yaml``.
    :raises ModelFileError: beyond the steps of the current file.
    """
    root = compose(text)
    spend(root.size, walk="YAML values")
    wrappers = (node.tag.rpartition(":")[2] for node in _nodes(root) if node.tag in _WRAPPERS)
    return Parsed(
        value=value(root),
        repeated=tuple(dict.fromkeys(_repeated_keys(root))),
        wrappers=tuple(dict.fromkeys(wrappers)),
    )


def compose(text: str) -> YamlNode:
    """
    Return the nodes of a text that holds one document.

    :raises YamlError: as :func:`parse`.
    """
    if limit_message := limits.YAML_BYTES.exceeded_message(len(text)):
        raise YamlError("yaml-limit", f"is YAML of {limit_message}")
    import yaml  # 20 ms that no other format needs

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
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise _invalid(f"{error.problem or error.context}{where}") from error
    except yaml.YAMLError as error:
        raise _invalid(" ".join(str(error).split())[:200]) from error


def value(node: YamlNode) -> Json:
    """
    Return what a node holds as a JSON value, with aliases written out; no two places share an
    object.
    """
    node = node.content
    if node.kind == "mapping":
        return {key: value(below) for key, _, below in node.members}
    if node.kind == "sequence":
        return [value(item) for item in node.items]
    return node.scalar


def _nodes(root: YamlNode) -> Iterator[YamlNode]:
    """Yield a node and all below it, each once, aliases as they stand."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += node.items
        pending += [part for _, key, below in node.members for part in (key, below)]


def _repeated_keys(root: YamlNode) -> Iterator[str]:
    for node in _nodes(root):
        seen: set[str] = set()
        for key, _, _ in node.members:
            if key in seen:
                yield key
            seen.add(key)


class _Composer:
    """
    Makes nodes of the events of one document; a stack instead of recursion, because the depth is
    the file's.
    """

    def __init__(
        self,
        reader: Any,  # noqa: ANN401  # one of PyYAML's two loaders, which have no base in common
    ) -> None:
        self._reader = reader
        self._anchors: dict[str, YamlNode] = {}
        self._open: list[tuple[YamlNode, list[YamlNode]]] = []
        """Collections that have begun, each with the nodes in it so far."""

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
                done: YamlNode | None = (
                    self._scalar(event) if name == "ScalarEvent" else self._alias(event)
                )
            elif name in {"SequenceStartEvent", "MappingStartEvent"}:
                self._begin(event, "sequence" if name.startswith("Seq") else "mapping")
                done = None
            elif name in {"SequenceEndEvent", "MappingEndEvent"}:
                done = self._close_node(event)
            else:
                done = None
            if done is not None and self._open:
                self._open[-1][1].append(done)
            elif done is not None:
                root = done

    def _begin(self, event: Any, kind: Kind) -> None:  # noqa: ANN401  # an event of PyYAML
        if len(self._open) >= self._deepest:
            raise _too_deep()
        node = YamlNode(kind=kind, tag=event.tag, anchor=event.anchor, flow=bool(event.flow_style))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._open.append((node, []))
        _check_tag(node, event.start_mark.line)

    def _close_node(self, event: Any) -> YamlNode:  # noqa: ANN401  # an event of PyYAML
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
        """Return the value of a scalar, by PyYAML's own rules for YAML 1.1."""
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
        Note how large a node is when its aliases are written out, and refuse what would grow beyond
        the bounds.
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
    """Return a key as JSON has it: text, or a number or a word as ``json.dumps`` writes it."""
    content = node.content
    if content.kind != "scalar":
        raise YamlError(
            "invalid-yaml",
            f"has a key before line {line + 1} that is not a string; config keys must be strings",
        )
    return content.scalar if isinstance(content.scalar, str) else json.dumps(content.scalar)


def _check_tag(node: YamlNode, line: int) -> None:
    """Refuse a collection's tag that stands for more than data."""
    if (
        node.tag is None
        or node.tag == "!"
        or (node.kind == "sequence" and (node.tag in _SEQUENCES or node.tag in _WRAPPERS))
    ):
        return
    if node.kind != "mapping" or node.tag != _MAPPING:
        raise _foreign(node.tag, line)


def _foreign(tag: str, line: int) -> YamlError:
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
    short = f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag
    return re.sub(r"[^\x21-\x7e]", "?", short)[:100]


def _too_deep() -> YamlError:
    return YamlError(
        "yaml-limit",
        "nests YAML to a depth of "
        f"{limits.JSON_DEPTH.exceeded_message(limits.JSON_DEPTH.value + 1, counting=True)}",
    )
