"""The agent of a board, against simulated RTL in place of the board's devices."""
