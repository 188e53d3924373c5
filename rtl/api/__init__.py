"""gradloom: accelerators that fine-tune neural networks on FPGAs."""
