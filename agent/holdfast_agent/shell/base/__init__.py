"""Foundations that every part of the shell may import: programs run for a job, reads that may hang, inotify.

Beside them what the host is: its inventory, topology and traits. Anything that knows about workers
belongs elsewhere; the log is ``holdfast._daemon.log``.
"""
