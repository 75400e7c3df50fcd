"""How Keras serializes objects in JSON: no other module of the child process reads their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_CLASS, _CONFIG = "class_name", "config"
_FUNCTION, _TUPLE = "function", "__tuple__"
"""Classes under which functions are serialized by name, and tuples by their items."""


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
    """Return the items of a tuple that Keras 3 serialized; any other value as it is."""
    return value.get("items") if class_of(value) == _TUPLE else value


def is_serialized(value: Any) -> bool:
    """Return whether a value has a class."""
    return isinstance(value, dict) and _CLASS in value


def with_policy_dict(dtype: Any) -> Any:
    """
    Return a dtype with the name of a mixed policy as TF 2.1 to 2.4 serialize it; any other as it
    is.
    """
    is_mixed = isinstance(dtype, str) and dtype.startswith("mixed_")
    return {_CLASS: "Policy", _CONFIG: {"name": dtype}} if is_mixed else dtype
