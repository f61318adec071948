"""One step of the reactor: the commands it accepts, the actions it returns, its timers, and look-ups in the state.

No decision about jobs or hosts belongs here; those are in the packages above.
"""
