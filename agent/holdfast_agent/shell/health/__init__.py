"""Reads what the kernel and the driver say of the host's hardware, for ``core.health``."""
