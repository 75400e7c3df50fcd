"""
What each command can be called with, declared once.

A command has a class of arguments, and each field of it declares an option: its name, its type, its
default, its help and its level. From these come the option of the command line, the key of settings
files, the keyword of the Python function, and the reference page.
"""
