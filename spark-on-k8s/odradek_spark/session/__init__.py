"""Spark itself: its additional jars, its session, files and the driver's pod."""
