"""Backups of a controller: made while it runs, and gone on from on another disk (ADR 0028)."""
