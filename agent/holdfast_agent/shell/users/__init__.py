"""Accounts of the host, and file operations that are safe in directories that other users own.

Every path in a worker's directory that root touches goes through here.
"""
