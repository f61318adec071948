"""What is wrong with a machine, and what mends it: findings, their page, and what a client and a host both check.

Facts are gathered by ``looks``; every check is a pure function from facts to findings. Nothing is changed. The
agent imports this, so only the standard library and gRPC are needed here.
"""
