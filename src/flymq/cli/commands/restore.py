"""`flymq restore`: restore topics and groups from a backup."""

from __future__ import annotations

from pathlib import Path

import click

from flymq.cli.commands.backup import backup_argument, show_progress
from flymq.cli.connection import confirm
from flymq.cli.options import BrokerCommand
from flymq.cli.output import note, show
from flymq.cli.spark_session import master_option, quiet_session, spark_connection, spark_failure


@click.command(cls=BrokerCommand)
@backup_argument
@click.option(
    "-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; repeatable.  [default: all]"
)
@click.option(
    "--replace", is_flag=True, help="Delete existing topics of the same names first, with all their messages."
)
@click.option("--dry-run", is_flag=True, help="Show what would be restored without changing anything.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@master_option
@click.pass_context
def restore(
    context: click.Context, path: Path, topics: tuple[str, ...], replace: bool, dry_run: bool, yes: bool, master: str
) -> None:
    """Restore topics and groups from a backup.

    Topics are restored with their settings, partitions and records, and groups with offsets committed before the record
    they would have read next. The backup is verified first. If a topic already exists, nothing is restored, unless
    --replace is given.
    """
    from flymq.spark.backup.contents import read_backup
    from flymq.spark.backup.restore import chosen_topics, existing_topics, restore_backup

    backup = read_backup(path)
    wanted = chosen_topics(backup, topics)
    broker = spark_connection(context)
    with broker.client() as client:
        there = existing_topics(client, wanted, allowed=replace)
    if not dry_run:
        if there:
            confirm(f"Delete {', '.join(there)} and all their messages?", is_sure=yes)
        with quiet_session("flymq restore", master) as spark:
            try:
                notes = restore_backup(
                    spark, path.absolute(), broker, wanted, replace=replace, on_progress=show_progress("restored")
                )
            except Exception as error:
                raise spark_failure(error) from error
        for line in notes:
            note(line)
    rows = [(topic, backup.topics[topic].partitions, backup.rows_of(topic)) for topic in wanted]
    show({topic: records for topic, _, records in rows}, [("TOPIC", "PARTITIONS", "RECORDS"), *rows])
    if dry_run:
        note("Dry run: nothing was changed.")
