"""What a training program may call: ``holdfast.progress``, ``holdfast.idle``.

Standard library only: it is imported into the user's own process.
"""
