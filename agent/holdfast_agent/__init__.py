"""The agent: launches, watches and stops the workers of one host."""
