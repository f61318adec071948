"""Reads the host's GPUs in a helper process, so that a wedged driver cannot block the agent.

``reader`` and ``child`` are the agent's side, with the deadlines; ``helper`` and all of ``nvml`` run in the helper.
Its answers are dictionaries with all fields of a type of ``core``, such as ``core.gpu.signals.GpuSignals``, and no
others: ``reader`` makes a value of that type of each, and refuses any other.
"""
