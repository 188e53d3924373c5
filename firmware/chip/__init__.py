"""A system on chip: images of its firmware, jobs for it, its memory card."""
