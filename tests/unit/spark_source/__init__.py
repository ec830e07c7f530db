"""Tests of bridge/spark_source."""
