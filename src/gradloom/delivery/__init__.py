"""Adapters as small signed packages: keys, manifest, payload, record."""
