"""Commands about hangs: ``hang``, evidence pages, and recordings."""
