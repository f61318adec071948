"""The gRPC services as JSON over HTTP, for callers that have curl and no stubs.

Each route (``routes``) stands for one gRPC method, whose handler it calls with a message made from the request;
who calls comes from the client certificate, as there. So validation, authorisation and errors have one place.
"""
