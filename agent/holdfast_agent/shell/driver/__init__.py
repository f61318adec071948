"""Runs the reactor and executes its actions.

The only package that connects the core to the rest of the shell.
"""
