"""The queue played ahead in a copy: when each waiting job would start, and what a job would do that isn't submitted.

Nothing here changes what is: the passes that place jobs are in the folder above.
"""
