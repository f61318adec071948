"""Stages that every call passes: authorisation, limits, idempotency, errors, committed views.

Shared by gRPC, HTTP and enrolment; nothing about a particular method belongs here. ``bounds`` holds every field of a
request but those of a job, which ``holdfast.spec.models`` bounds.
"""
