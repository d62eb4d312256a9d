"""Topics as Parquet files with manifests: written by jobs, readable by any Parquet reader, restored byte for byte.

ARCHIVE/
├─ manifests/<query>-<batch>.json                      the files of the archive, one manifest per batch
├─ data/topic=<topic>/partition=<n>/<…>.parquet        the records, one range of offsets per file
└─ lock                                                held by the job that writes

docs/formats/archive.md is the specification.
"""
