"""`flymq demo`: an end-to-end demo that runs in a temporary folder."""

from flymq.cli.commands.demo.command import demo as demo
