"""Build the compiled record codec. Where that fails, FlyMQ installs without it and uses the one in plain Python."""

from pathlib import Path

from setuptools import Extension, setup

ROOM = "src/flymq/record"

setup(
    ext_modules=[
        Extension(
            "flymq.record._fast",
            [f"{ROOM}/_fast.pyx"],
            depends=sorted(map(str, Path(ROOM).glob("_fast_*.pxi"))),
            optional=True,
        )
    ]
)
