"""Facts as data, each file with its source; read by the module that needs it."""
