"""Rules about what a file does to who loads it, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.safety import (
    claims_more_than_it_stores,
    custom_code,
    data_outside,
    doubled_or_escaping_member,
    endless_graph,
    executes_code,
    graph_touches_files,
    loads_another_file,
    names_foreign_code,
    path_in_name,
    unknown_symbol,
    unread_limits,
)

if TYPE_CHECKING:
    from policytool.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    executes_code.RULE,
    names_foreign_code.RULE,
    custom_code.RULE,
    loads_another_file.RULE,
    graph_touches_files.RULE,
    data_outside.RULE,
    doubled_or_escaping_member.RULE,
    path_in_name.RULE,
    unread_limits.RULE,
    claims_more_than_it_stores.RULE,
    endless_graph.RULE,
    unknown_symbol.RULE,
)
