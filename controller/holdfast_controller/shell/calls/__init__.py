"""Stages that every call passes: authorisation, limits, idempotency, errors, committed views.

Shared by gRPC, HTTP and enrolment; nothing about a particular method belongs here.
"""
