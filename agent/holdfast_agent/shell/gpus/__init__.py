"""Which GPUs the host has, and whether a finished worker has released its own.

Readings come from the helper process of ``holdfast_agent.gpu``.
"""
