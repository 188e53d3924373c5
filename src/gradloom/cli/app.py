"""The command line's application, to which the verbs are added."""

from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["PANELS", "Interrupted", "app"]

#: Verbs in the order of their use, by what they are for.
PANELS = {
    "Learn": ("finetune", "plan", "choose", "compare"),
    "Answer": ("infer",),
    "Design": ("generate", "selftest", "report", "build", "flash", "doctor", "monitor", "energy", "run", "sweep"),
    "Models": ("import", "export", "merge", "quantize", "pack", "fetch"),
    "Boards in the field": ("card", "package"),
    "Lists": ("list",),
}


class Interrupted(BaseException):
    """An interrupt within a verb, its cause; typer makes an exit code of the interrupt itself."""


class _Panels(TyperGroup):
    """A group of verbs in panels."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of verbs in the order of their use."""
        return [verb for verbs in PANELS.values() for verb in verbs]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of a name, which knows its panel."""
        found: Any = self.commands.get(cmd_name)
        if found is not None:
            found.rich_help_panel = next(title for title, verbs in PANELS.items() if cmd_name in verbs)
        return found


app = typer.Typer(
    name="gradloom",
    cls=_Panels,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Generates FPGA accelerators that fine-tune neural networks, and runs them in simulated RTL.",
    epilog="Example: gradloom finetune lenet5\n\n"
    "Example: gradloom generate mine.onnx --board kv260 -o design\n\n"
    "Exit codes: 0 done; 1 a fault of gradloom's; 2 of the request; 3 hardware differs from its reference or is beyond "
    "a budget; 4 the fine-tune diverged, its results are saved; 130 interrupted; 143 terminated.",
)
