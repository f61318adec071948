"""A placed gang from launch to end: exits, restarts, retries, budgets, stops and drains.

Where the gang is placed belongs to ``scheduling``; whether it hangs belongs to ``hangs``.
"""
