"""From a document to a model: layers, policies, the release that wrote it, and who can load it."""
