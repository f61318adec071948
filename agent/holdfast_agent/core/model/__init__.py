"""Values that the agent's core is made of: GPUs, the host's topology, processes to start.

Workers' keys and assignments are those of the session: ``holdfast._session``. Nothing here decides anything.
"""
