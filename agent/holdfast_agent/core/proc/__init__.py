"""Parses /proc, stack dumps and output lines, and turns them into counters and features.

Text in, values out; the shell reads the files.
"""
