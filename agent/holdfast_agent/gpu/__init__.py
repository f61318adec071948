"""Reads the host's GPUs in a helper process, so that a wedged driver cannot block the agent.

``reader`` and ``child`` are the agent's side, with the deadlines; ``helper`` and all of ``nvml`` run in the helper.
"""
