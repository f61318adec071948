"""Certificates and TLS: reading, making, renewing, and enrolment.

Private; the daemons import the parts without ``cryptography``.
"""
