"""Values that the controller's state is made of: jobs, hosts, hangs, users, the queue, quotas and leases.

Small pure rules about one value (free capacity, leases, quotas) lie beside it; nothing here imports from the rest of
the core.
"""
