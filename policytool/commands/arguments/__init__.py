"""
The options of each command, each declared once.

Each command has a class of arguments. Each field of it declares an option with its name, type,
default, help and level. The option of the command line, the key of settings files, the keyword of
the Python function, and the reference page are created from these declarations.
"""
