"""``npu-sim run``: a Python file run with the emulator, and what its operators did."""

from __future__ import annotations

from typing import Annotated

import typer

from ops.cli import shapes
from ops.cli.output import console, print_prose
from ops.cli.usage import output_path


def run_command(
    file: Annotated[str, typer.Argument(metavar="FILE.py", help="Python file that calls operators.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its own arguments; behind -- if they begin with -.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print tiling, walk and launches of every operator it called.")
    ] = False,
    product: shapes.ScriptProductOption = None,
    order: shapes.OrderOption = "program",
    core_order: shapes.CoreOrderOption = None,
    json_path: shapes.JsonOption = None,
) -> None:
    """Run a Python file with the emulator; its calls that name no product run on --product.

    How much a file computes cannot be known before it runs, so nothing is
    announced. Exit code 0: the file ended well; 1: it ended with an error; 2: bad
    input; 3: internal error; 130: interrupted.
    """
    # Imported here: it loads the compiler, which the help does not need.
    from ops.cli import scripts

    chip = scripts.one_product(product)
    output_path("--json", json_path, file)
    wanted = explain or json_path is not None
    with shapes.orders_used(order, core_order):
        outcome = scripts.run_script(file, arguments or (), chip, explain=wanted, quiet=json_path == "-")
    if explain and json_path != "-":
        screen = console()
        for made in outcome.explanations:
            scripts.print_explanation(made, screen)
        if not outcome.explanations:
            screen.print("no operator was called")
    elif json_path is None:
        for made in outcome.explanations:
            print_prose(console(), f"launched: {made.heading}")
    if json_path is not None:
        scripts.write_report(scripts.explanations_document(file, outcome), json_path, file, {})
    raise typer.Exit(outcome.code)
