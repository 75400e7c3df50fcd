"""
What each loader makes of a file, as far as it can be known without asking: it refuses it, it loads
it, or it is not judged.

``judging`` gives the verdicts. ``refusals`` are rows about containers, policies and graphs, each
measured; ``accepted`` is what the releases said of classes and their keys, and ``serialised`` finds
what there is to ask about in a config; ``doubts`` are what a file leaves open.
``training_refusals`` is the same about training configurations and the optimizer's state.
"""

from __future__ import annotations

from policytool.model.compatibility.verdicts import NOT_LOADED, verdicts

__all__ = ["NOT_LOADED", "verdicts"]
