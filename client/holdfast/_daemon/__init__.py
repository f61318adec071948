"""Shared by both daemons: the log, the instance lock, systemd notification, metrics.

Private; nothing about jobs belongs here.
"""
