"""What one part of the system costs, as CPU time or memory, beside the same without it."""
