"""Tests of bridge/read/spark_source."""
