"""The job file as frozen pydantic models: fields, limits, defaults and single values, under the contract's names.

Nothing here reads texts or protobuf, and no other service's words are known here.
"""
