"""The shim, one per worker: parent of its ranks. Standard library only, for `python -I -S`.

It imports nothing else of Holdfast: it outlives the agent that started it.
"""
