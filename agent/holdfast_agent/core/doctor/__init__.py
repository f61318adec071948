"""Checks of a host's fitness for work, one area a module: the facts as read, and the checks over them.

Each check looks at facts alone and says what it saw, why that matters, and what to type. ``shell.doctor`` gathers
the facts; what a client checks, too, is in ``holdfast.doctor``.
"""
