"""Rules about the effects of a model on the machine that loads it, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.safety import (
    ambiguous_format,
    custom_code,
    cyclic_graph,
    duplicate_or_escaping_member,
    executes_code,
    external_data,
    graph_accesses_files,
    limits_reached,
    loads_external_file,
    oversized_dataset,
    path_in_name,
    unknown_symbol,
    unsafe_reference,
)

if TYPE_CHECKING:
    from policytool.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    executes_code.RULE,
    unsafe_reference.RULE,
    custom_code.RULE,
    loads_external_file.RULE,
    graph_accesses_files.RULE,
    external_data.RULE,
    duplicate_or_escaping_member.RULE,
    path_in_name.RULE,
    limits_reached.RULE,
    oversized_dataset.RULE,
    cyclic_graph.RULE,
    unknown_symbol.RULE,
    ambiguous_format.RULE,
)
