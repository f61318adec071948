"""Reads YAML or JSON into the models, keeping the path of each value for errors.

Accepts camelCase and snake_case, and every documented spelling of numbers and durations.
"""
