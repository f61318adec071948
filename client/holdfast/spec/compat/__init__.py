"""Job files of managed training services: their envelope, annotations, and fields kept with a warning.

Nothing outside ``spec`` imports this.
"""
