"""`python -m odradek_cli`: the command without its script, for processes that start it again."""

from odradek_cli.main import main

main()
