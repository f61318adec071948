"""Shells beside a rank: started with its account and in its walls, joined to their user by a keeper."""
