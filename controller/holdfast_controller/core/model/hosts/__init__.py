"""A host as the controller knows it: its capacity and what of it is free, its lease, its health."""
