"""Agents without processes: what a controller hears from a thousand hosts, from one machine."""
