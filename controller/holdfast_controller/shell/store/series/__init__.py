"""Series of ranks: the file that keeps them, and the thread that alone reads and writes it. No decision rests on it."""
