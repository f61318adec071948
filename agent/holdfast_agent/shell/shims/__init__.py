"""Starts shims, talks to them, reads their journals, and finds orphaned processes.

What runs inside a shim is in ``holdfast_agent.shim``, which imports nothing from here.
"""
