"""The durable event log with its snapshots, answers and evidence, and the migrations of its schema.

``shell.driver`` counts when a snapshot is due. Nothing is decided here, and nothing outside this package speaks SQL.
"""
