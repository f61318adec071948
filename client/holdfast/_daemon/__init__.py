"""What both daemons need as daemons: the log, the instance lock, systemd notification, metrics.

Private; nothing about jobs belongs here.
"""
