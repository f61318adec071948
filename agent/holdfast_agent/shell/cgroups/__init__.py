"""Control groups and systemd scopes: created, limited, emptied, removed.

Which scope a worker gets is decided in ``core.launch``.
"""
