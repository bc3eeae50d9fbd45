"""``rlcore data prepare`` for recorded episodes on screens: source files to prepared parquet files."""
