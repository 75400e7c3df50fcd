"""Models read from documents: layers, policies, the writing release, and compatible releases."""
