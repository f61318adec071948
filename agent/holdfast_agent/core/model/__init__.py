"""Values that the agent's core is made of: worker keys, assignments, GPUs.

Nothing here decides anything.
"""
