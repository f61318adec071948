"""Access control: roles, users, their accounts on hosts, and secrets.

Authentication and the enforcement at each call belong to the shell.
"""
