"""Keep the last record of each key: rewrite sealed segments and swap them in so that a crash leaves old or new."""
