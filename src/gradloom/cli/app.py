"""The command line's application, to which the verbs are added."""

import typer

__all__ = ["app"]

app = typer.Typer(
    name="gradloom",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Generates FPGA accelerators that fine-tune neural networks, and runs them in simulated RTL.",
    epilog="Example: gradloom generate instantft-kv260 -o design\n\n"
    "Example: gradloom finetune instantft-kv260 --design design\n\n"
    "Exit codes: 0 done; 1 a fault of gradloom's; 2 of the request; 3 hardware differs from its reference or is beyond "
    "a budget; 4 the fine-tune diverged, its results are saved; 130 interrupted; 143 terminated.",
)
