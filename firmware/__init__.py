"""What drives an accelerator: drivers in C and Python, self-test, energy. Needs numpy and nothing else."""
