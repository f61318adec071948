"""Recorded samples and what the detector learned, as JSON, and scoring of the detector on corpora.

The only part of ``hang`` that opens files; everything else in it is pure.
"""
