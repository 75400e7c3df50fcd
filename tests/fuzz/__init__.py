"""
Fuzzing: structurally valid files of each format, changed in ways that a hostile hand would, and one
contract that every reading of them keeps.
"""
