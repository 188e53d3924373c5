"""Files of a test bench, copied as they are."""
