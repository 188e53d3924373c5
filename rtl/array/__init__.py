"""The systolic array: processing element, array, skew, and the stand-alone mesh."""
