"""What makes a host fit for work, one area a module: facts as they were read, and the checks of them.

Each check looks at facts alone and says what it saw, why that matters, and what to type. ``shell.doctor`` gathers
the facts; what a client checks, too, is in ``holdfast.doctor``.
"""
