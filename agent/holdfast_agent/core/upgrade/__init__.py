"""Decides whether an upgrade of the agent kept every worker process the same.

Taking the before and after pictures is the shell's.
"""
