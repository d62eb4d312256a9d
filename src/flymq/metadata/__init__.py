"""The metadata store: topics, partitions and settings of the cluster, behind one small interface."""
