"""
From a model that a loader does not take to one that it does: decoded, rewritten, judged, and
encoded. Pure; nothing is read or written here.

``architecture`` is the model between the two, ``traversal`` the ways through it; ``decoding`` and
``encoding`` are what generations write, ``keras2_graph`` and ``keras3_graph`` how each writes the
calls of a functional model; ``rewrites`` are what has to be said otherwise; ``arguments`` holds
every key against what the target takes; ``ordering`` puts layers where the target counts them;
``variables`` says where each stored variable goes, and ``compiled`` what becomes of optimizer, loss
and metrics; ``planned`` makes the plan.
"""
