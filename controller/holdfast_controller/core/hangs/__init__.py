"""What the controller does about a hang: asks for evidence, restarts or notifies, and remembers what was learned.

The detector itself is pure and shared, in ``holdfast.hang``.
"""
