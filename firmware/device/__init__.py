"""How a host deals with an accelerator: registers, transports, programs, self-test, energy."""
