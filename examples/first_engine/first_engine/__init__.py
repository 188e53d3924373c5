"""A Scale engine for gradloom: trainable factors, one a channel."""
