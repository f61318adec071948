"""Figures of ranks over time: what one look gives, minutes of it, and the last quarter of an hour."""
