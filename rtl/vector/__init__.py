"""What a transformer block computes between its linears, element by element or row by row."""
