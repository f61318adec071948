"""What a launch needs before any process is started: environment, accounts, scopes, containers, preflight checks.

Pure plans; the shell carries them out.
"""
