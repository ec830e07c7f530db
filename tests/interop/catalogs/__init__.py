"""Iceberg catalogs that are products, on loopback; and tables that our runs keep in them."""
