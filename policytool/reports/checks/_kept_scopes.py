"""The layers of a graph that automatic mixed precision left in float32, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import graph_ops
from policytool.reports.figures import many
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import GraphRewrite, KeptScope

_SCOPE_REASONS: Final = 3
"""How many reasons are listed, the most frequent first."""

_OPS: Final = 3
_LISTED: Final = (("deny", "on TensorFlow's deny list"), (None, "on none of TensorFlow's lists"))
"""The lists whose ops are never converted."""


def computing_scopes(graph_rewrite: GraphRewrite) -> Iterator[KeptScope]:
    """Yield the scopes whose ops compute; the others only pass values on."""
    yield from (kept_scope for kept_scope in graph_rewrite.kept if _ops(kept_scope))


def kept_scope_facts(graph_rewrite: GraphRewrite) -> Iterator[tuple[str, str]]:
    """
    Yield a label and a text for the scopes that stay in float32 as a whole, and for those that do
    in part.
    """
    for label, is_whole in (("kept", True), ("kept in part", False)):
        by_reason: dict[str, list[str]] = {}
        for kept_scope in computing_scopes(graph_rewrite):
            if kept_scope.is_whole is is_whole and graph_rewrite.unchanged is None:
                by_reason.setdefault(kept_reason(graph_rewrite, kept_scope), []).append(
                    kept_scope.scope
                )
        if by_reason:
            yield label, _text(by_reason)


def kept_reason(graph_rewrite: GraphRewrite, kept: KeptScope) -> str:
    """Return why ops of a scope stay in float32, according to TensorFlow's lists."""
    ops = _ops(kept)
    lists = {op: graph_ops.amp_list(op, graph_rewrite.dtype) for op in ops}
    listed = [
        f"{_are([op for op in ops if lists[op] == name])} {what}"
        for name, what in _LISTED
        if name in lists.values()
    ]
    if listed:
        return ", ".join(listed)
    return f"{_are(ops)} converted only between other converted ops"


def _text(by_reason: dict[str, list[str]]) -> str:
    ranked_reasons = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    reason_texts = [
        f"{join_first(scopes)} ({why})" for why, scopes in ranked_reasons[:_SCOPE_REASONS]
    ]
    more = sum(len(scopes) for _, scopes in ranked_reasons[_SCOPE_REASONS:])
    return (
        f"{many(sum(map(len, by_reason.values())), 'layer')} in float32: {'; '.join(reason_texts)}"
        f"{f'; {more} more for other reasons' if more else ''}"
    )


def _ops(kept: KeptScope) -> list[str]:
    return [op for op in kept.ops if not graph_ops.moves_values(op)]


def _are(ops: list[str]) -> str:
    return f"{join_first(ops, _OPS)} {'is' if len(ops) == 1 else 'are'}"
