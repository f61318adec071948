"""Gathers what ``core.doctor`` judges. Everything is read, nothing is changed; each look has a deadline."""
