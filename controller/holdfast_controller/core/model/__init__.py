"""Values that the controller's state is made of: jobs, hosts, hangs, users, the queue, quotas and leases.

Nothing here decides anything, and nothing here imports from the rest of the core.
"""
