"""Functions for training programs: ``holdfast.progress``, ``holdfast.idle``.

Standard library only: it is imported into the user's own process.
"""
