"""Rules that join several fields, each broken one with its place, a sentence and a fix.

Pure functions over plain mappings, so that they also run on half a spec; no model is imported here.
"""
