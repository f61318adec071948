"""Questions to NVIDIA's driver: inventory, readings, health. In the helper process alone, as any call may hang.

Nothing here judges what was read.
"""
