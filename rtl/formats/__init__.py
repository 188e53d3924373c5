"""Number formats: HDL shape, numpy arithmetic and C type of each, in one object."""
