"""Rules that a spec must satisfy beyond its types, each violation with its path and a fix.

Pure functions over the models.
"""
