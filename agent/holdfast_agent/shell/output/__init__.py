"""Ranks' output files: bounded, indexed, read from an offset, and copied to the job's output directory.

Ranks write these files themselves; a dead agent never blocks a worker.
"""
