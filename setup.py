"""Build the compiled record codec. Where that fails, FlyMQ installs without it and uses the one in plain Python."""

from setuptools import Extension, setup

ROOM = "src/flymq/record"

setup(
    ext_modules=[
        Extension(
            "flymq.record._fast",
            [f"{ROOM}/_fast.pyx"],
            depends=[f"{ROOM}/_fast_{part}.pxi" for part in ("header", "record", "encode", "parse", "columns", "table")],
            optional=True,
        )
    ]
)
