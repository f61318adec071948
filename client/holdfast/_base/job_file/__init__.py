"""Words and rules of the job file that those who read it share with those who carry it out.

No reading of a file and no decision about a job belongs here: what is allowed beside what is in ``spec``.
"""
