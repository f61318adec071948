"""I/O around the core. A shell decides nothing."""
