"""Judges what the kernel and the driver say of the host's hardware; see ``engine``."""
