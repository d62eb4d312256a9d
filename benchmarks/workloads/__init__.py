"""What people do with a broker, one family a module: each has `run(quick)`, which returns rows.

The load comes from prepared batches on plain sockets unless a row says otherwise, so that the broker is the limit.
"""
