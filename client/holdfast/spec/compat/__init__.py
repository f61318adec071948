"""Managed training services' job files: what is around the job, annotations that ask for fields, ignored fields.

Only reading, the published schema and the face of ``spec`` import this; the models know nothing of it.
"""
