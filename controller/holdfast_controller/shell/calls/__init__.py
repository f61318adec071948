"""What every call passes on its way in and out: authorisation, limits, idempotency, errors, committed views.

Shared by gRPC, HTTP and enrolment; nothing about a particular method belongs here.
"""
