"""Evidence of a hang: what was recorded before the kill, stack groups, and how both are rendered.

The form only; the agent takes evidence in ``shell.evidence``.
"""
