"""The quantised linear layer of a language model: frozen NF4 weights streaming, an adapter beside them."""
