"""
Which findings count: the rules that are asked, what is suppressed with a reason, and what a
baseline knows already. Pure.

``selectors`` says which rules a user's words mean, ``patterns`` which files, ``suppressions`` lets
findings pass, ``baselines`` remembers them.
"""
