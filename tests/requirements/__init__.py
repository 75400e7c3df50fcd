"""The lock files of the development and test dependencies: pinned versions with hashes."""
