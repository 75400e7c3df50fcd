"""
Conversion of a model for a release that does not load it: decode, rewrite, check, encode.

Pure: nothing is read or written here. ``architecture`` is the model between the two libraries, with
the functions that visit its parts. ``decoding`` and ``encoding`` are the configs of both libraries,
with the calls of functional models. ``rewrites`` are the steps between; ``arguments`` keeps the
keys that the target accepts; ``ordering`` puts layers in the order in which the target counts them.
``tensor_facts`` knows dtypes and sizes of tensors, and ``masks`` where masks travel. ``variables``
places each stored variable, ``compiled`` converts optimizer, losses and metrics. ``target`` is the
release with its container; ``conversion_plan`` makes the plan of all that.
"""
