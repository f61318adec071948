"""The databases that may hold a store, behind one interface: a file of SQLite, or PostgreSQL."""
