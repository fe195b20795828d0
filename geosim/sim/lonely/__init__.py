"""Exchanges that are worked out in one go, where no two payloads share a link."""
