"""Helpers that several tests use; nothing here is a test."""
