"""Amaranth's simulator with less work a cycle."""
