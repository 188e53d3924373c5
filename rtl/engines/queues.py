"""Sizes of engines' queues that programs count on."""

__all__ = ["OPERAND_BEATS", "TAP_BEATS"]

#: Beats of a tap that wait for STORE while an encoder goes on.
TAP_BEATS = 128
#: Beats of operands of which a program may count on that they are taken before the engine has a command for them.
OPERAND_BEATS = 512
