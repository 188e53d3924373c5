"""What is wrong with the words of a command line, in one line."""

from typing import Any

__all__ = ["one_line"]

#: A bound by the name that pydantic gives it, and what is said of a text that is no such value.
_BOUNDS = {"ge": "at least", "le": "at most", "gt": "above", "lt": "below"}
_KINDS = {"int_parsing": "an integer", "int_from_float": "an integer", "float_parsing": "a number"}


def one_line(error: Exception) -> str | None:
    """Field, value and bound of an error that typer found.

    None: typer shows the help instead. Typer's classes are private, so the error is read by its attributes.
    """
    context, param = getattr(error, "ctx", None), getattr(error, "param", None)
    path = getattr(context, "command_path", None) or "gradloom"
    message = " ".join(str(getattr(error, "message", "")).split())
    if param is not None:
        said = _of_parameter(error, param, message)
    elif option := getattr(error, "option_name", None):
        said = f"{option}: {_of_option(error, context, message)}"
    elif message:
        said = message[0].lower() + message[1:].rstrip(".")
    else:
        return None
    return f"{said}; see {path} --help"


def _of_parameter(error: Exception, param: Any, message: str) -> str:
    option = next((each for each in param.opts if each.startswith("--")), None)
    name = option[2:].replace("-", "_") if option else getattr(param, "metavar", None) or param.name
    if not message:
        return f"{name}: must be given"
    found: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    if not found:
        return f"{name}: {message}"
    first = found[0]
    return f"{name}={first['input']}: must be {_wanted(first, message)}"


def _wanted(found: dict[str, Any], message: str) -> str:
    context = found.get("ctx", {})
    for key, words in _BOUNDS.items():
        if key in context:
            return f"{words} {context[key]}"
    if found["type"] in _KINDS:
        return _KINDS[found["type"]]
    _, among, choices = message.rstrip(".").partition("is not one of ")
    return f"one of {choices.replace(chr(39), '')}" if among else message


def _of_option(error: Exception, context: Any, message: str) -> str:
    if "requires an argument" in message:
        return "needs a value"
    if "does not take a value" in message:
        return "takes no value"
    said = f"no such option of {context.command_path}"
    name = getattr(error, "option_name", "").lstrip("-")
    if name in getattr(context.find_root().command, "commands", {}):
        return f"{said}, but a verb: gradloom {name} --help"
    near = getattr(error, "possibilities", None)
    return said + (f", there is {', '.join(sorted(near))}" if near else "")
