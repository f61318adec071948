"""Starts the controller: ``serve``, ``init``, and the commands an administrator runs on its machine.

The only package that knows all the others.
"""
