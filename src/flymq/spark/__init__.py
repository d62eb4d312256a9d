"""Topics in Spark: a source and a sink without a jar, and the pipelines that are built on them."""
