"""Foundations that every part of the shell may import: the configuration and the audit log.

Anything that knows about jobs, hosts or calls belongs elsewhere.
"""
