"""Packaged code on a host: fetched, unpacked and installed before a worker starts."""
