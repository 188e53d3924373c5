"""What a step does to what is learnt: gradients summed, words updated, exponents chosen again."""
