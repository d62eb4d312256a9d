"""Back up a whole broker to a directory: topics, settings, records and committed offsets.

BACKUP/
├─ backup.json        the contents of the backup; written last, so a backup without it is incomplete
├─ manifests/         an archive of all topics, see docs/formats/archive.md
└─ data/
"""
