"""
Compatibility tests: what the newest real libraries make of the fixtures.

``make test-compat`` runs them.
"""
