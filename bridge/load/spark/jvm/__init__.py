"""The JVM under a session: find Java, start Spark fast by an archive of its classes, say why it did not start.

Read `jvm.py` first. The archive is a file of this machine; without it a start is only slower.
"""
