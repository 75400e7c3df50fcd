"""Files written from nothing but what :class:`policytool.content.Content` says and the values of a source: HDF5, ``.keras``, JSON."""
