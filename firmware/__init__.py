"""Drivers in C and Python, self-test, energy measurement.

It needs Python 3.10, and numpy for arrays.
"""
