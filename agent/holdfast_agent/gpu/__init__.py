"""GPUs of the host, read in a process of its own, so that a wedged driver can't take the agent along."""
