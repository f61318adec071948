"""Reads YAML, JSON, plain data and protobuf into the models, or reports everything that is wrong at once.

No field is named here: names, limits and values are the models', rules that join fields are in ``rules``.
"""
