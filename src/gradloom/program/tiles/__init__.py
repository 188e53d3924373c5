"""Programs of the tile machine: tensors as tiles, jobs of its engines, their order and their slots."""
