"""Reconciles jobs and hosts after the controller was restored from a backup.

Making and reading backups is I/O and belongs to the shell.
"""
