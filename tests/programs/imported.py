"""Allocates while it is imported: the import system's own frames lie in between."""

from allocation import allocate

allocate("import")
