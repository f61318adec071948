"""Foundations that every part of the shell may import: the log, inotify, and the host's inventory.

Anything that knows about workers belongs elsewhere.
"""
