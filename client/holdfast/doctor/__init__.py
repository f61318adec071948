"""Findings about a machine and their fixes: the page they are printed on, and checks shared by clients and hosts.

Facts are gathered by ``looks``; every check is a pure function from facts to findings. Nothing is changed. The
agent imports this, so only the standard library and gRPC are needed here.
"""
