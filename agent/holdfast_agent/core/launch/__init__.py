"""Plans for a launch, made before any process starts: environment, accounts, scopes, containers, preflight checks.

Pure plans; the shell carries them out.
"""
