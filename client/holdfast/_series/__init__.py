"""Time series of ranks: what is measured, and its packed form on the wire and on disk.

An agent makes a block of each minute of a worker, the controller joins blocks and thins them out, and both use the
functions here. What isn't known is NaN, everywhere; it is never 0.
"""
