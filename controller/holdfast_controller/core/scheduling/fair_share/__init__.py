"""Fair share among projects: whose turn it is, guarantees and their claims, weights and quotas that admins set.

On which hosts a job starts, and which one gives way outside of a guarantee, belongs to ``scheduling`` itself.
"""
