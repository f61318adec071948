"""Reads the host's GPUs in a helper process, so that a wedged driver cannot block the agent.

``reader`` and ``child`` are the agent's side, with the deadlines; ``helper``, ``inventory`` (which GPUs there are),
``readings`` (what they do) and ``driver`` run in the helper.
"""
