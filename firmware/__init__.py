"""What drives an accelerator: drivers in C and Python, self-test, energy. Needs Python 3.10, and numpy for arrays."""
