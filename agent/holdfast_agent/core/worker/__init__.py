"""The life of one worker on this host, and the reactor that runs all of them.

Pure: effects are returned as actions for the shell's executor.
"""
