"""Is a job slow against its own best, and which of its ranks does the slowness come from? Pure."""
