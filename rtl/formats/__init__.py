"""Number formats: hardware shape, numpy arithmetic and C type."""
