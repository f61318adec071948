"""Pure decisions: no I/O, no clock, no randomness. Time is an argument; effects are returned values."""
