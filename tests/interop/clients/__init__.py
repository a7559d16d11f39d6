"""Kafka clients in several languages behind one interface, for a test that tells each of them the same story.

Every client has its default settings: what a call must name (servers, topic, group, where a new group begins), and no more.
"""
