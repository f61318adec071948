"""Ranks' output files: bounded, indexed, read from an offset, and copied to the job's output directory.

Ranks write these files themselves; a dead agent never blocks a worker. The last lines of a rank, which go with its
exit, are read by its shim: ``holdfast_agent.shim.last_lines``.
"""
