"""The job spec as frozen models: fields, types and defaults.

Rules across fields are in ``spec.rules``; reading text is in ``spec.parse``.
"""
