"""How pytest-xdist shares out tests; only its runs import this."""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling


class ModuleScheduling(LoadGroupScheduling):
    """A module, or a group of tests of any modules, is what a worker is given at a time."""

    def _split_scope(self, nodeid: str) -> str:
        group = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else group
