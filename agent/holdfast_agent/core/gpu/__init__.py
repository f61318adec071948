"""Interprets GPU readings: utilisation, health, and which process holds which GPU.

Reading them is I/O and belongs to ``holdfast_agent.gpu``.
"""
