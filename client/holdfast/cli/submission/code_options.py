"""The options by which ``submit`` takes local code, in the words of another service's command."""

from __future__ import annotations

import functools
import re
from typing import Any

import click

from holdfast.cli.kit.parameters import C
from holdfast.cli.submission.packaging import CodeOptions
from holdfast.cli.submission.reference_options import split_list

_BETWEEN = re.compile(r",(?![^\[\]]*\])(?!\s*[<>=!~])")
_OPTIONS = (
    click.option(
        "--local-package-path", "folder", metavar="DIR", help="Folder that is packed and sent along.  [default: .]"
    ),
    click.option(
        "--script", metavar="FILE", help="What to run, as a path in that folder: a Python or Bash script."
    ),
    click.option("--python-module", "module", metavar="NAME", help="What to run, as a module in that folder."),
    click.option(
        "--requirements",
        multiple=True,
        metavar="LIST",
        help="What to install, with commas, or a file of it; requirements.txt of the folder counts by itself. It goes "
        "into an environment of the hosts' Python that has nothing of yours.",
    ),
    click.option(
        "--extra-packages",
        multiple=True,
        metavar="LIST",
        help="Wheels, archives or folders to install, with commas.",
    ),
    click.option(
        "--extra-dirs",
        multiple=True,
        metavar="LIST",
        help="Further folders to send along, with commas; each lies in the working directory under its own name.",
    ),
)


def code_options(command: C) -> C:
    """Adds the options; the command gets them together, as ``code``, or None where there are none."""

    @functools.wraps(command)
    def gathered(**words: Any) -> object:
        folder, script, module = words.pop("folder"), words.pop("script"), words.pop("module")
        lists = {name: items(words.pop(name)) for name in ("extra_packages", "extra_dirs")}
        lists["requirements"] = requirement_items(words.pop("requirements"))
        if script and module:
            raise click.UsageError("Give one of --script and --python-module.")
        code = None
        if folder or script or module:
            code = CodeOptions(
                folder=folder or ".",
                script=script or "",
                module=module or "",
                requirements=lists["requirements"],
                packages=lists["extra_packages"],
                folders=lists["extra_dirs"],
            )
        elif any(lists.values()):
            raise click.UsageError(
                "Say with --local-package-path, --script or --python-module what they belong to."
            )
        return command(code=code, **words)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered  # type: ignore[return-value]


def items(values: tuple[str, ...]) -> tuple[str, ...]:
    """Every item of every list."""
    return tuple(item.strip() for item in split_list(values) if item.strip())


def requirement_items(values: tuple[str, ...]) -> tuple[str, ...]:
    """Every requirement of every list, such as ``a[x,y]>=1,<2,b``: some of its commas are a requirement's own."""
    found = [_BETWEEN.split(value) if value[:1] != "^" else split_list((value,)) for value in values]
    return tuple(item.strip() for each in found for item in each if item.strip())
