"""
Writes a changed value as YAML in the form of the original text, with PyYAML's emitter.

Tags, anchors, quotes, the order of keys and the format of numbers are kept. Comments are lost.
PyYAML decides where lines break, as it did in ``model.to_yaml()``.
"""

from __future__ import annotations

import io
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from policytool.support.text import yamltext
from policytool.support.text.jsonedit import same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.support.text.jsontext import Json
    from policytool.support.text.yamltext import YamlNode


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
                yield yamltext.node_value(name), name
                yield value[key] if below is last[key] else yamltext.node_value(below), below
        for key in value:
            if key not in last:
                yield key, None
                yield value[key], None
