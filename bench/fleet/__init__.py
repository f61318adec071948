"""Scheduling of a fleet: traces of real clusters, played in virtual time to the real reactor and to model policies."""
