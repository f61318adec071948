"""Everything between PREPARE and PREPARED: checks, hooks, ports, secrets, and the launch order for the shim.

Nothing here starts a rank.
"""
